"""Answers as documents, and as bytes that are packed until somebody asks.

Answers resemble each other: the same knobs, the same devices, the same words. A dictionary trained on the first
ones packs each of the others to a seventh, and unpacking one takes a few microseconds; so a service keeps
100,000 of them ready, evidence and all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import zstandard

from space.arch import DEVICES
from space.rank import roofline_us
from tuner.answering.answers import Answer, measured
from tuner.evidence.records import Best
from tuner.hints import tune_command
from tuner.tables.entries import best_of, canonical, config_document, entry, problem_document

#: What stands for the evidence while the rest of an answer is rendered; no text of ours has a NUL in it.
_EVIDENCE: Final = "\0evidence"
_RENDERED_EVIDENCE: Final = canonical(_EVIDENCE)
_DICTIONARY_BYTES: Final = 2**16
#: A dictionary of fewer answers than this is not worth it.
_SAMPLES: Final = 200


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer as canonical JSON.

    Attributes:
        start, stop: where its evidence stands: the table's entry, byte for byte.
    """

    text: bytes
    start: int
    stop: int


def document(answer: Answer) -> dict[str, Any]:
    """An answer as `GET /v1/best` gives it; `schemas.BestOut` describes it."""
    problem, limits = answer.problem, DEVICES.get(answer.device)
    return {
        "problem": problem_document(problem),
        "device": answer.device,
        "policy": answer.policy.value,
        "source": answer.source,
        "why": answer.why,
        "config": config_document(answer.config) if answer.config else None,
        "time_us": answer.time_us,
        "interval_us": list(answer.interval_us) if answer.interval_us else None,
        "tflops": answer.tflops,
        "roofline_us": roofline_us(problem, limits) if limits else None,
        "grounds": list(answer.grounds),
        "evidence": entry(answer.best) if answer.best else None,
        "tune": tune_command(problem),
    }


def render(best: Best) -> Rendered:
    """The answer that a best is, for the very problem that it is of."""
    told = document(measured(best))
    evidence = canonical(told["evidence"])
    before, _, after = canonical(told | {"evidence": _EVIDENCE}).partition(_RENDERED_EVIDENCE)
    return Rendered(before + evidence + after, len(before), len(before) + len(evidence))


def evidence_of(device: str, rendered: Rendered) -> Best:
    """The best that a measured answer was made of."""
    return best_of(device, orjson.loads(rendered.text[rendered.start : rendered.stop]))


class Packer:
    """Packs answers and unpacks them, in any thread.

    Args:
        samples: answers to learn from; with only a few, each is packed on its own.
    """

    def __init__(self, samples: Sequence[bytes] = ()) -> None:
        learned = zstandard.train_dictionary(_DICTIONARY_BYTES, list(samples)) if len(samples) >= _SAMPLES else None
        self._dictionary = learned
        # A compressor serves one thread at a time.
        self._mine = threading.local()

    def pack(self, text: bytes) -> bytes:
        """`text`, smaller."""
        if not hasattr(self._mine, "packer"):
            self._mine.packer = zstandard.ZstdCompressor(dict_data=self._dictionary)
        # A copy: the compressor's own result lies in a block for the worst case, which it would keep.
        return bytes(memoryview(self._mine.packer.compress(text)))

    def unpack(self, packed: bytes) -> bytes:
        """What was packed."""
        if not hasattr(self._mine, "unpacker"):
            self._mine.unpacker = zstandard.ZstdDecompressor(dict_data=self._dictionary)
        text: bytes = self._mine.unpacker.decompress(packed)
        return text
