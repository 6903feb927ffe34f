"""Found: the answer of a source of configs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from space.config import Config
from space.problem import Problem


@dataclass(frozen=True, slots=True)
class Found:
    """A source's answer.

    Attributes:
        config: the config to launch; None if there is none.
        why: the reason, as one sentence.
        build_digest: of the kernel that was verified for exactly this problem on this device model; any other is
            verified here before its first launch. Empty if none was.
        cublaslt: version of cuBLASLt that a config of the library was measured with; empty if unknown.
        program: its cubin; empty if it has to be built.
        for_now: whether the source may soon say something else, as a service that was too busy.
    """

    config: Config | None
    why: str
    source: str = ""
    cublaslt: str = ""
    build_digest: str = ""
    program: bytes = b""
    for_now: bool = False


class Source(Protocol):
    """Finds configs."""

    def find(self, problem: Problem, device: str) -> Found:
        """The best config for a problem on a device model; an unknown problem or device is an answer, not an error."""
        ...
