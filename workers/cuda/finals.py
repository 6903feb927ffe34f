"""Finals: the rivals of one problem, verified again and timed under every policy that applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from space.config import Config
from space.families.common import starts_early
from space.family import is_own
from space.rank import at_power_limit_us
from space.structures import best_of_structures
from workers.cuda.bench import Bench, Ready
from workers.cuda.driver import CudaError
from workers.cuda.outputs import SLOTS
from workers.cuda.regimes import (
    BRIEF,
    CAPPED,
    LONG,
    METERED_SECONDS,
    SHORT,
    Pace,
    Rival,
    met_power_limit,
    take_bursts,
    take_chained,
    take_energy,
    take_rounds,
    take_sustained,
)
from workers.cuda.verification import Verdict
from workers.measurement import Measurement, Outcome, Policy

#: Bursts of every rival, and of those that are near the fastest by them.
FIRST_BURSTS, BURSTS = 3, 6
#: A rival that is behind the fastest by more than this share of its time under `burst` takes part in nothing else,
#: except the first of ours. In 41 finals on H100s the one of ours that was fastest under `sustained` was at most 3 %
#: behind.
NEAR: Final = 0.04
#: Rivals that take part in everything, beside the library's first choice, its best and, if that is near, its second.
#: Power changes the order of bursts by up to 3 %, so where it decides, the first two by bursts and by what they load
#: take part: they lose 0.009 % to all of four or more (benchmarks/results/finals_h200_now.md). By bursts alone the
#: fastest under `sustained` was left out of one of two finals of 16384×4096×4096, which cost 1.4 %
#: (docs/kernels/search.md). Elsewhere those that are fastest under `burst` may differ in their raster alone, so the
#: best of another structure takes part.
FASTEST, OF_STRUCTURES = 2, 3
#: The library's second takes part if it is behind its best by at most this share of its time under `burst`. In 35
#: finals in which it was farther behind, it was the faster one in one, by 0.7 % (docs/kernels/search.md).
SECOND_NEAR: Final = 0.01


class Finals:
    """The rivals of one problem: added one by one, then timed together."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._rivals: list[Rival] = []
        self._unlisted: list[Rival] = []
        self._failed: list[Measurement] = []

    def add(self, config: Config, digest: str) -> str:
        """Loads and verifies a rival; returns why it is wrong, empty where it is right.

        Raises:
            CudaError: it failed.
        """
        rival, reason = self._verified(self._bench.ready(config, digest))
        if rival is not None:
            (self._rivals if is_own(config) else self._unlisted).append(rival)
        return reason

    def add_baselines(self) -> None:
        """Adds every correct candidate of the libraries, each library's first choice first, and behind them what was
        added that no library lists.
        """
        for config in self._bench.baselines:
            if len(self._rivals) + len(self._unlisted) == SLOTS:
                break
            self._add_baseline(config)
        self._rivals += self._unlisted
        self._unlisted = []

    def run(self, turns: int) -> list[Measurement]:
        """Times the rivals; returns one measurement for each rival and policy, by policy, in the order of addition, and
        behind them one for each of the libraries' candidates that failed before.

        Args:
            turns: fewest turns under `chain` where it decides; `rounds`, and `chain` elsewhere, take a third.
        """
        bench, measured = self._bench, list[Measurement]()
        plain = [rival for rival in self._rivals if not starts_early(rival.ready.config)]
        if plain:
            take_bursts(bench, plain, FIRST_BURSTS, BURSTS, NEAR)
        if leaders := self._leaders(_right(plain)):
            take_chained(bench, leaders, turns, Policy.CHAIN)
        if leaders := _right(leaders):
            take_rounds(bench, leaders, turns)
        if leaders := _right(leaders):
            first = next((rival for rival in leaders if not is_own(rival.ready.config)), None)
            # Behind the turns, in which the limiter of the power has begun to settle.
            if self._take_sustained(leaders, first).block_seconds < METERED_SECONDS:
                take_energy(bench, _quickest(leaders, first))
            if early := [rival for rival in self._rivals if rival not in plain]:
                # The fastest of ours that doesn't start early may be the faster one even where it could.
                fastest_plain = [rival for rival in _quickest(leaders, first) if is_own(rival.ready.config)]
                library = [rival for rival in _right(leaders) if not is_own(rival.ready.config)]
                take_chained(bench, [*early, *fastest_plain, *library], turns, Policy.CHAIN_PDL)
        for policy in Policy:
            measured += [self._measured(rival, policy) for rival in self._rivals if policy in rival.taken]
        measured += self._failed
        self.drop()
        return measured

    def drop(self) -> None:
        """Frees the rivals."""
        for rival in (*self._rivals, *self._unlisted):
            rival.ready.discard()
        self._rivals, self._unlisted, self._failed = [], [], []

    def _leaders(self, rivals: Sequence[Rival]) -> list[Rival]:
        """The rivals that take part in everything, in the order of addition."""
        if not rivals:
            return []
        ahead = sorted(rivals, key=lambda rival: rival.taken[Policy.BURST].median_us)
        near = [rival for rival in ahead if _within(NEAR, rival, ahead[0])]
        library = [rival for rival in rivals if not is_own(rival.ready.config)]
        ours = [rival for rival in ahead if rival not in library]
        own = sorted((rival for rival in ours if rival in near), key=self._expected_us) or ours[:1]
        most = FASTEST if self._bench.power_decides else OF_STRUCTURES
        chosen = best_of_structures(own, lambda rival: rival.ready.config, FASTEST, most)
        theirs = [rival for rival in ahead if rival in library]
        second = [rival for rival in theirs[1:2] if rival in near and _within(SECOND_NEAR, rival, theirs[0])]
        chosen += library[:1] + theirs[:1] + second
        return [rival for rival in rivals if rival in chosen]

    def _expected_us(self, rival: Rival) -> float:
        """What orders ours, by their bursts: the time under the policy that decides, up to a factor."""
        burst_us = rival.taken[Policy.BURST].median_us
        return at_power_limit_us(rival.ready.config, burst_us) if self._bench.power_decides else burst_us

    def _take_sustained(self, leaders: Sequence[Rival], first: Rival | None) -> Pace:
        """Times leaders under `sustained`; the pace that counts."""
        limited = SHORT if self._bench.may_reach_power_limit else BRIEF
        pace = LONG if self._bench.power_decides else limited
        take_sustained(self._bench, leaders, pace, lambda rival: rival is first)
        if pace is BRIEF and met_power_limit(leaders) and (right := _right(leaders)):
            # Its blocks end before the limiter settles.
            take_sustained(self._bench, right, pace := CAPPED, lambda rival: rival is first)
        return pace

    def _measured(self, rival: Rival, policy: Policy) -> Measurement:
        if rival.wrong:
            return self._bench.outcome(rival.ready, Outcome.WRONG_RESULT, rival.wrong, rival.verdict, "final", policy)
        taken = rival.taken[policy]
        return self._bench.measured(
            rival.ready, "final", policy, taken.samples_us, taken.clocks, rival.verdict, taken.remark,
            taken.product_joules,
        )  # fmt: skip

    def _verified(self, ready: Ready) -> tuple[Rival | None, str]:
        verdict: Verdict | None = None
        try:
            verdict = self._bench.verify(ready)
        finally:
            if verdict is None or verdict.reason:
                ready.discard()
        return (None, verdict.reason) if verdict.reason else (Rival(ready, verdict), "")

    def _add_baseline(self, config: Config) -> None:
        rival, outcome = None, Outcome.WRONG_RESULT
        try:
            rival, reason = self._verified(self._bench.ready(config, ""))
        except CudaError as error:
            if error.sticky:
                raise
            # A library may refuse some of its own candidates when they run.
            outcome, reason = Outcome.LAUNCH, str(error)
        if rival is None:
            self._failed.append(self._bench.failure(config, "", outcome, reason, stage="final"))
        else:
            self._rivals.append(rival)


def _quickest(rivals: Sequence[Rival], first: Rival | None) -> list[Rival]:
    """Of right ones: ours and the library's that are fastest under `chain`, and the library's first choice."""
    right = sorted(_right(rivals), key=lambda rival: rival.taken[Policy.CHAIN].median_us)
    ours = [rival for rival in right if is_own(rival.ready.config)]
    theirs = [rival for rival in right if rival not in ours]
    return list(dict.fromkeys([*ours[:1], *theirs[:1], *(rival for rival in theirs if rival is first)]))


def _within(share: float, rival: Rival, first: Rival) -> bool:
    """Whether a rival is behind another by at most a share of the other's time under `burst`."""
    return rival.taken[Policy.BURST].median_us <= first.taken[Policy.BURST].median_us * (1 + share)


def _right(rivals: Sequence[Rival]) -> list[Rival]:
    """Those that were not found wrong."""
    return [rival for rival in rivals if not rival.wrong]
