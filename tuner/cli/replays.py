"""What commands print beside replayed times: when a GPU measured them, with which kernels, and how much it recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from space.problem import Problem
from tuner.cli.output import console
from tuner.errors import NothingCorrect
from tuner.settings import settings
from tuner.studying.candidates import candidates_for, count_worth_trying
from tuner.studying.open_worker import recorded_worker_of
from workers.measurement import replay_part

#: Sentences, and problems whose candidates are counted, at most: a count takes a tenth of a second.
_MOST: Final = 3


def print_replays(notes: Mapping[Problem, str], device: str) -> None:
    """Prints what stands behind the replayed times of a device's problems.

    Args:
        notes: of the measurements; one that a GPU of this store took prints nothing.
    """
    replayed = {problem: part for problem, note in notes.items() if (part := replay_part(note))}
    print_sentences(replayed.values())
    for problem in list(replayed)[:_MOST]:
        if counted := _counted(problem, device, replayed[problem]):
            held, worth = counted
            console.print(f"  {problem.title}: {held:,} candidates were recorded; {worth:,} are worth trying on a GPU")


def print_sentences(parts: Iterable[str]) -> None:
    """Prints when GPUs measured, each sentence once."""
    sentences = sorted(set(parts))
    for sentence in sentences[:_MOST]:
        console.print(f"  {sentence}")
    if len(sentences) > _MOST:
        console.print(f"  and {len(sentences) - _MOST} more moments; `gemmtune best` tells each problem's")


def _counted(problem: Problem, device: str, replay: str) -> tuple[int, int] | None:
    """How many candidates the recording that was replayed holds, and how many are worth trying; None without a usable
    one."""
    if worker := recorded_worker_of(problem, device, replay, settings()):
        with worker, suppress(NothingCorrect):
            return len(candidates_for(problem, worker)), count_worth_trying(problem, worker)
    return None
