"""Answers as JSON documents, and as bytes that stay compressed until a request needs them.

Answers resemble each other: the same knobs, devices and words. With a zstandard dictionary trained on the first ones,
each of the others shrinks to a ninth and decompresses in a few microseconds, so the service keeps 100,000 answers in
50 MB, evidence included.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

import zstandard

from tuner.answering.answers import Source, measured
from tuner.evidence.legality import forbidden
from tuner.evidence.records import Best
from tuner.tables.answer_document import document
from tuner.tables.entries import canonical

#: Placeholder for the evidence while the rest of an answer is rendered; none of our texts contains a NUL.
_EVIDENCE: Final = "\0evidence"
_RENDERED_EVIDENCE: Final = canonical(_EVIDENCE)
_DICTIONARY_BYTES: Final = 2**16
#: Answers that a dictionary is trained on; training takes 0.1 s, and with more of them answers shrink little further.
SAMPLES: Final = 200


class RenderedBest(NamedTuple):
    """An answer as canonical JSON, and the slice of it that holds the evidence: the table's entry, byte for byte.

    Its source is `none` where a rule forbids the config by now: it answers nothing.
    """

    text: bytes
    start: int
    stop: int
    source: Source


def render(best: Best) -> RenderedBest:
    """The answer to the question for a best's own problem."""
    answer = measured(best)
    content = document(answer)
    evidence = canonical(content["evidence"])
    before, _, after = canonical(content | {"evidence": _EVIDENCE}).partition(_RENDERED_EVIDENCE)
    source: Source = "none" if forbidden(best.problem, best.config, best.device) else answer.source
    return RenderedBest(before + evidence + after, len(before), len(before) + len(evidence), source)


class AnswerCompressor(threading.local):
    """Compresses and decompresses answers, from any thread: each has its own pair of zstandard's objects.

    Args:
        dictionary: from `dictionary_for`; without one, answers shrink to a third.
    """

    def __init__(self, dictionary: zstandard.ZstdCompressionDict | None) -> None:
        self._compressor = zstandard.ZstdCompressor(dict_data=dictionary)
        self._decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)

    def compress(self, text: bytes) -> bytes:
        """`text`, compressed."""
        # A copy: the result of `compress` occupies a worst-case allocation, which would stay alive with it.
        return bytes(memoryview(self._compressor.compress(text)))

    def decompress(self, compressed: bytes) -> bytes:
        """The inverse of `compress`."""
        return self._decompressor.decompress(compressed)


def dictionary_for(samples: Sequence[bytes]) -> zstandard.ZstdCompressionDict:
    """A dictionary for answers like these `SAMPLES`."""
    return zstandard.train_dictionary(_DICTIONARY_BYTES, [*samples])
