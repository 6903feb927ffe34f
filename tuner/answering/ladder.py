"""Ladders: the problems of one weight for every M, and where their times have cliffs.

Correct times of one weight obey two bounds, whatever the kernels. The kernel of a larger M also computes a smaller one,
by padding: t(M) ≤ t(M'). And repeating a smaller M computes a larger one: t(M') ≤ ⌈M'/M⌉ · t(M). A broken bound shows
that the search has missed something, and names what to measure again. Only times of one policy bound each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from space.config import Config
from space.devices import DeviceProfile
from space.errors import ProblemError
from space.explain import legal_among
from space.problem import Problem
from workers.measurement import Policy

#: Every octave, and its middle above 16: what serving stacks ask for.
MS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
             8192, 12288, 16384)  # fmt: skip
#: Most rungs: each M that was not measured is computed, which takes ten milliseconds.
MOST_MS: Final = 256
#: Times this close count as equal.
BAND: Final = 0.02


@dataclass(frozen=True, slots=True)
class Rung:
    """A table's entry for one M.

    Attributes:
        config: the one that is served.
        time_us, policy: its time, and what that stands for.
        runner_up: the second fastest, where known.
    """

    problem: Problem
    config: Config
    time_us: float
    policy: Policy
    runner_up: Config | None = None


@dataclass(frozen=True, slots=True)
class Cliff:
    """Two rungs that can't both be right.

    Attributes:
        kind: `inversion`: the smaller M takes longer; `jump`: the larger one takes longer than repeating the smaller.
        suspect: the rung that is too slow.
        witness: the one that shows it.
        bound_us: the most that the suspect should take, according to the witness.
        again: configs to measure for the suspect's problem: its own first, then those of the rungs beside it.
    """

    kind: Literal["inversion", "jump"]
    suspect: Rung
    witness: Rung
    bound_us: float
    again: tuple[Config, ...]

    @property
    def sentence(self) -> str:
        """The cliff in words."""
        slow, by = self.suspect, self.witness
        verb = "computes it by padding" if self.kind == "inversion" else "computes it by repetition"
        return (
            f"M = {slow.problem.extents[0]:,} takes {slow.time_us:.2f} µs, though the kernel of "
            f"M = {by.problem.extents[0]:,} {verb} in {self.bound_us:.2f} µs"
        )


def problems(weight: Problem, ms: Sequence[int] = MS) -> list[Problem]:
    """The ladder of the weight that `weight` multiplies with, smallest M first.

    Raises:
        ProblemError: there is no M, there are too many, or an M is not a valid extent.
    """
    if not ms:
        raise ProblemError("a ladder needs at least one M: give some, or leave them out for 1 to 16,384")
    if (count := len(set(ms))) > MOST_MS:
        raise ProblemError(
            f"{count:,} values of M are too many for one ladder: give at most {MOST_MS}, in larger steps: 1..8192:x2 "
            "has 14, and 64..8192:+64 has 128"
        )
    return [weight.resized(m, *weight.extents[1:]) for m in sorted(set(ms))]


def cliffs(table: Sequence[Rung], device: DeviceProfile) -> list[Cliff]:
    """The rungs of one weight that are too slow, worst first; each once, with the witness of its tightest bound.

    Args:
        device: on which they were measured.
    """
    rungs = sorted(table, key=lambda rung: rung.problem.extents[0])
    worst: dict[int, Cliff] = {}
    for place, suspect in enumerate(rungs):
        for kind, bound, witness in _bounds(rungs, place):
            found = worst.get(place)
            if suspect.time_us > bound * (1 + BAND) and (found is None or bound < found.bound_us):
                worst[place] = Cliff(kind, suspect, witness, bound, _again(rungs, place, device))
    return sorted(worst.values(), key=lambda cliff: cliff.bound_us / cliff.suspect.time_us)


_Bound = tuple[Literal["inversion", "jump"], float, Rung]


def _bounds(rungs: Sequence[Rung], place: int) -> list[_Bound]:
    """The bounds that the other rungs of its policy set for this one."""
    m, policy = rungs[place].problem.extents[0], rungs[place].policy
    above: list[_Bound] = [("inversion", rung.time_us, rung) for rung in rungs[place + 1 :]]
    below: list[_Bound] = [("jump", -(-m // rung.problem.extents[0]) * rung.time_us, rung) for rung in rungs[:place]]
    return [bound for bound in above + below if bound[2].policy is policy]


def _again(rungs: Sequence[Rung], place: int, device: DeviceProfile) -> tuple[Config, ...]:
    """The rung's own config, and those of the rungs beside it that are legal here."""
    problem = rungs[place].problem
    beside = [rungs[near] for near in (place - 1, place + 1) if 0 <= near < len(rungs)]
    found = [rungs[place].config, *(config for rung in beside for config in (rung.config, rung.runner_up) if config)]
    legal = legal_among(problem, found, device)
    return tuple(dict.fromkeys(config for config in found if config in legal))
