"""Answers as JSON documents, and as bytes that stay compressed until a request needs them.

Answers resemble each other: the same knobs, devices and words. With a zstandard dictionary trained on the first ones,
each of the others shrinks to a seventh and decompresses in a few microseconds, so the service keeps 100,000 answers in
memory, evidence included.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import zstandard

from space.devices import find_profile
from space.rank import roofline_us
from tuner.answering.answers import Answer, measured
from tuner.evidence.records import Best
from tuner.hints import tune_command
from tuner.tables.entries import best_of, canonical, config_document, entry, problem_document

#: Placeholder for the evidence while the rest of an answer is rendered; none of our texts contains a NUL.
_EVIDENCE: Final = "\0evidence"
_RENDERED_EVIDENCE: Final = canonical(_EVIDENCE)
_DICTIONARY_BYTES: Final = 2**16
#: With fewer answers than this, no dictionary is trained.
_SAMPLES: Final = 200


@dataclass(frozen=True, slots=True)
class RenderedBest:
    """An answer as canonical JSON.

    Attributes:
        start, stop: slice of `text` that holds the evidence, which is the table's entry byte for byte.
    """

    text: bytes
    start: int
    stop: int


def document(answer: Answer) -> dict[str, Any]:
    """An answer as `GET /v1/best` returns it; `schemas.BestOut` is its schema."""
    problem, limits = answer.problem, find_profile(answer.device)
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


def render(best: Best) -> RenderedBest:
    """The answer to the question for a best's own problem."""
    content = document(measured(best))
    evidence = canonical(content["evidence"])
    before, _, after = canonical(content | {"evidence": _EVIDENCE}).partition(_RENDERED_EVIDENCE)
    return RenderedBest(before + evidence + after, len(before), len(before) + len(evidence))


def evidence_of(device: str, rendered: RenderedBest) -> Best:
    """The best from which a measured answer was rendered."""
    return best_of(device, orjson.loads(rendered.text[rendered.start : rendered.stop]))


class AnswerCompressor:
    """Compresses and decompresses answers, from any thread.

    Args:
        samples: answers to train the dictionary on; with fewer than 200, answers are compressed without one.
    """

    def __init__(self, samples: Sequence[bytes] = ()) -> None:
        dictionary = zstandard.train_dictionary(_DICTIONARY_BYTES, list(samples)) if len(samples) >= _SAMPLES else None
        self._dictionary = dictionary
        # zstandard's objects serve one thread at a time.
        self._local = threading.local()

    def compress(self, text: bytes) -> bytes:
        """`text`, compressed."""
        if not hasattr(self._local, "compressor"):
            self._local.compressor = zstandard.ZstdCompressor(dict_data=self._dictionary)
        # A copy: the result of `compress` occupies a worst-case allocation, which would stay alive with it.
        return bytes(memoryview(self._local.compressor.compress(text)))

    def decompress(self, compressed: bytes) -> bytes:
        """The inverse of `compress`."""
        if not hasattr(self._local, "decompressor"):
            self._local.decompressor = zstandard.ZstdDecompressor(dict_data=self._dictionary)
        text: bytes = self._local.decompressor.decompress(compressed)
        return text
