"""Retuning: measures bests with a changed program again, and says which winners moved."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from space.devices import find_profile
from space.family import is_own
from space.rank import may_reach_power_limit
from tuner.answering.staleness import outdated, same_kernels, staleness
from tuner.errors import NothingCorrect
from tuner.evidence.legality import forbidden
from tuner.evidence.picks import versus
from tuner.evidence.records import Best, Outcome
from tuner.evidence.refutations import refuting
from tuner.evidence.store import Store
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import first_choice
from tuner.studying.guidance import Guidance
from tuner.studying.study import Budget, tune
from workers.errors import WorkerError
from workers.measurement import Measurement, Program
from workers.ports import Worker

#: A model's untried first choice is worth measuring if it promises to gain more than 2 %.
_PROMISE: Final = 1.02


@dataclass(frozen=True, slots=True)
class Stale:
    """A best and what has changed since it was measured, one clause each; no clause if nothing has."""

    best: Best
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retuned:
    """A best that was measured again.

    Attributes:
        stale: the old one.
        best: the new winner; None if the problem could not be measured.
        old_now: the old winner in today's finals, under the policy of the new; None if it was not a finalist.
        stands: whether the store has the new winner now, and serves it where the old one was served; `why` says why
            not, or what went wrong.
    """

    stale: Stale
    best: Best | None
    old_now: Measurement | None
    stands: bool
    why: str

    @property
    def moved(self) -> bool:
        """Whether another config wins today."""
        return self.best is not None and self.best.config != self.stale.best.config

    @property
    def gain(self) -> float | None:
        """How many times faster than the old winner the new one is, both today; None if unknown."""
        if self.best is None or self.old_now is None:
            return None
        return versus(self.old_now, self.best.winner.measurement, self.best.device).value


def compare(store: Store, worker: Worker, bests: Iterable[Best], model: LearnedModel | None) -> Iterator[Stale]:
    """Compares the bests of the worker's device, problem by problem, with the program that the worker would run.

    Of several bests of a problem, the first that has changed speaks for all: one study measures it under every policy.
    A problem that the worker does not know is left out.

    Args:
        bests: the served one first of each problem, as `Store.bests_by_policy` has them.
        model: of the device, whose first choice counts as a change where it was never measured and promises a gain.
    """
    for problem, found in groupby(bests, lambda best: best.problem):
        try:
            program = worker.program(problem)
        except WorkerError:
            continue
        first, *others = found
        if any(each.winner.provenance.program == program for each in (first, *others)):
            # Today's program has run already: what it left under another policy it would leave again.
            others = []
        stale = (Stale(each, (*_found_wrong(store, each), *_changes_of(each, program))) for each in (first, *others))
        changed = next((each for each in stale if each.changes), None)
        yield changed or Stale(first, tuple(_promise(store, worker, first, model)))


def _found_wrong(store: Store, best: Best) -> list[str]:
    """That a study which was cut off found its build wrong: the next one that ends replaces it."""
    with store.transaction() as session:
        number = refuting(session, best.winner.id)
    return [f"measurement {number} found its build wrong"] if number else []


def _changes_of(best: Best, program: Program) -> tuple[str, ...]:
    broken = forbidden(best.problem, best.config, best.device)
    return (*([f"its config breaks {broken} by now"] if broken else []), *_changes(best, program))


def _changes(best: Best, program: Program) -> list[str]:
    then = best.winner.provenance.program
    own = is_own(best.config)
    changes = [clause] if (clause := staleness(best)) else []
    if own and then.nvrtc != program.nvrtc:
        changes.append(f"NVRTC {then.nvrtc} is now {program.nvrtc}")
    if then.driver != program.driver:
        changes.append(f"driver {then.driver} is now {program.driver}")
    if then.cublaslt != program.cublaslt:
        changes.append(f"cuBLASLt {then.cublaslt or 'missing'} is now {program.cublaslt or 'missing'}")
    if then.rotation_bytes != program.rotation_bytes and _memory_decides(best):
        before = f"{then.rotation_bytes:,} bytes" if then.rotation_bytes else "three times L2"
        changes.append(f"operands rotated through {before}, now through {program.rotation_bytes:,} bytes")
    same = same_kernels(best.device, then.kernel_source_digest, program.kernel_source_digest)
    if not same and (clause := outdated(best)):
        # Another recording has newer ones; from one of the same kernels nothing new would come.
        changes.append(clause)
    if best.served and not own and not same:
        # The answer stays `measured`: what it names is as it was. Its rivals are not.
        changes.append("our kernels have changed since they lost")
    return changes


def _memory_decides(best: Best) -> bool:
    """Whether its time depends on what a launch finds in L2."""
    profile = find_profile(best.device)
    return profile is None or not may_reach_power_limit(best.problem, profile)


def _promise(store: Store, worker: Worker, best: Best, model: LearnedModel | None) -> list[str]:
    profile = find_profile(best.device)
    found = first_choice(model, best.problem, profile) if model and profile else None
    if found is None:
        return []
    config, expected_us, measurable = found.config, found.under(best.policy)[0], worker.measurable(best.problem)
    if best.median_us / expected_us < _PROMISE or (measurable is not None and config.key not in measurable):
        return []
    taken = (each for each in store.every(best.device, best.problem) if each.device_kind == best.device_kind)
    if any(each.measurement.config == config for each in taken):
        return []
    return [f"the model expects {expected_us:.2f} µs of a config that was never tried: {config.key}"]


def retune(
    store: Store,
    worker: Worker,
    stale: Sequence[Stale],
    budget: Budget,
    guidance: Guidance,
    seconds: float | None = None,
) -> Iterator[Retuned]:
    """Measures each problem again, the old winner and runner-up among the first candidates.

    Args:
        budget: of each problem.
        seconds: no problem is begun after this; the last one may end later.

    Raises:
        StoreError: the store can't be written.
    """
    started = time.monotonic()
    for each in stale:
        if seconds is not None and time.monotonic() - started >= seconds:
            return
        yield _again(store, worker, each, budget, guidance)


def _again(store: Store, worker: Worker, stale: Stale, budget: Budget, guidance: Guidance) -> Retuned:
    old = stale.best
    before = [config for config in (old.config, old.runner_up) if config is not None]
    near = store.winners_near(old.problem, old.device)
    try:
        # A study of the same program would be resumed, and would have nothing left to measure.
        same = not _changes(old, worker.program(old.problem))
        guided = replace(guidance, winners=(*before, *near))
        report = tune(store, worker, old.problem, budget, fresh=same, guidance=guided, also=before)
    except (NothingCorrect, WorkerError) as error:
        return Retuned(stale, None, None, stands=False, why=str(error))
    best = report.best if old.served else store.best(old.problem, old.device, old.policy)
    if best is None or best.winner.measurement not in report.finals:
        why = "; ".join(report.remarks) or f"nothing was measured under {old.policy.value}: that best stays stale"
        return Retuned(stale, None, None, stands=False, why=why)
    finals = (one for one in report.finals if one.outcome is Outcome.CORRECT and one.policy is best.policy)
    old_now = next((one for one in finals if one.config == old.config), None)
    if not old.served:
        return Retuned(stale, best, old_now, stands=True, why="")
    served = store.best(old.problem, old.device)
    stands = served is not None and served.winner.id == report.best.winner.id
    beside = served is not None and served.device_kind != old.device_kind
    why = "; ".join(report.remarks) or ("the store serves what a GPU measured, not a replay" if beside else "")
    return Retuned(stale, report.best, old_now, stands, why)
