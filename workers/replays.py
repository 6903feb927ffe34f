"""Where a replayed time comes from: when a GPU measured it, and with which kernels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Final

from space.config import Config
from space.family import families_for, is_own
from space.plug import Family
from space.problem import Problem
from workers.kernels.source import digests_alike, sources_digest
from workers.measurement import REPLAYED, Provenance

if TYPE_CHECKING:
    from workers.recording import Recording

#: Digits of a digest that are shown.
SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Sources:
    """This version's kernels for a problem: the sources of every family that competes for it.

    Attributes:
        digest: of all of them.
        alike: that one, and those of earlier texts that compile to the same machine code.
    """

    digest: str
    alike: frozenset[str]


def sources_here(problem: Problem, arch: str) -> Sources:
    """This version's kernels for a problem."""
    families = families_for(arch, problem)
    return Sources(sources_digest(families, problem), _alike(families))


@cache
def _alike(families: tuple[Family, ...]) -> frozenset[str]:
    """What many problems' sources have in common: each answer asks for it."""
    return frozenset(digests_alike(families))


def replay_sentence(
    config: Config, by: Provenance, moment: datetime | None, here: Sources, *, kept: bool = False
) -> str:
    """A sentence on when the GPU measured a recorded time, and with which kernel source.

    Args:
        moment: UTC; None where the recording does not say.
        here: what `sources_here` returns.
        kept: the sentence is stored, and read where "here" is another version.
    """
    sentence = _measured(moment)
    if not is_own(config):
        return sentence
    then = by.kernel_source_digest
    where, verb = ("when it was replayed", "was") if kept else ("here", "is")
    now = f"which {verb} {here.digest[:SHOWN]} {where}"
    if then in here.alike:
        now = f"the same as {where}" if then == here.digest else f"{now}, with the same machine code"
    return f"{sentence} with kernel source {then[:SHOWN]}, {now}"


def replayed_from(recording: Recording, sentence: str) -> bool:
    """Whether a recording has a measurement of the moment that the sentence on a replay names."""
    return any(sentence.startswith(_measured(moment)) for moment in set(recording.taken_at))


def _measured(moment: datetime | None) -> str:
    when = f"on {moment:%Y-%m-%d at %H:%M} UTC" if moment else "at an unrecorded time"
    return f"{REPLAYED} a GPU measured this {when}"


def noted(note: str, sentence: str) -> str:
    """The note of a replay: what was noted when the GPU measured, marked as of then, and the sentence on the replay."""
    return f"when it was recorded: {note}; {sentence}" if note else sentence
