"""Study: the main job. Tunes one problem on one device, and can be stopped and resumed at any moment.

Truth is in the store: each measurement is committed before the next proposal, and the Optuna study is
rebuilt from the store when a run resumes.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import optuna
from optuna.trial import TrialState, create_trial

from space.arch import DEVICES, DeviceLimits, arch_named
from space.config import Config, parse_knobs
from space.enumerate import enumerate_space
from space.errors import ProblemError
from space.explain import legal_mask
from space.family import Family, family_for
from space.problem import Problem
from space.rank import rank
from tuner.errors import NothingCorrect
from tuner.picks import LIBRARY, TIE_BAND, enumeration_order, pick
from tuner.records import Best, Ratio, StoredMeasurement, StudyKey, StudyRecord, StudyStatus
from tuner.sampler import Exhausted, LegalSampler, distributions
from tuner.stats import chance_within, ratio
from tuner.store.store import Store
from workers.measurement import Measurement, Outcome, Policy, Provenance
from workers.ports import Round, Worker

#: Proposals of one batch: enough to keep the compilers ahead of the device, few enough to learn from.
BATCH = 16
#: Candidates that go into the interleaved finals.
FINALISTS = 4
#: Only candidates whose estimate is within this many times the best estimate are proposed.
WITHIN_ESTIMATE = 2.0


@dataclass(frozen=True, slots=True)
class Budget:
    """When a study stops. Earlier runs of the same study count.

    Attributes:
        candidates: how many are measured.
        seconds: wall time of this run, set-up excluded; None for no limit.
        rounds: interleaved rounds of the finals.
    """

    candidates: int = 96
    seconds: float | None = None
    rounds: int = 30

    def __post_init__(self) -> None:
        for name, least in (("candidates", 1), ("rounds", 5)):
            if getattr(self, name) < least:
                raise ProblemError(f"{name} = {getattr(self, name)} is no budget: give at least {least}")
        if self.seconds is not None and not self.seconds > 0:
            raise ProblemError(f"seconds = {self.seconds} is no budget: give a positive number")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running study stands; sent after every measurement.

    Attributes:
        phase: `screen` or `finals`.
        tried, total: candidates measured, earlier runs included, and the budget.
        resumed: how many of them came from earlier runs.
        failed: by outcome.
        best: the fastest correct one so far.
        last: the measurement just taken; None before the first.
        seconds, seconds_left: spent in this run, and expected until the end.
    """

    phase: str
    tried: int
    total: int
    resumed: int
    failed: dict[str, int]
    best: Measurement | None
    last: Measurement | None
    seconds: float
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """How a study ended.

    Attributes:
        best: the winner with its evidence.
        chance: that the winner is within the tie band of the fastest finalist, by paired bootstrap.
        finals: all final measurements, the library's too.
        candidates: how many were worth trying; `best.tried` of them were.
        stopped_because: one sentence.
        new: how many were measured by this run.
    """

    best: Best
    chance: float
    finals: tuple[Measurement, ...]
    candidates: int
    stopped_because: str
    new: int
    seconds: float


Watch = Callable[[Progress], None]

# Every trial is told to the watcher; Optuna's own log would say it twice.
optuna.logging.set_verbosity(optuna.logging.WARNING)


def tune(
    store: Store,
    worker: Worker,
    problem: Problem,
    budget: Budget,
    *,
    watch: Watch = lambda _: None,
    fresh: bool = False,
    seed: int = 0,
    policy: Policy = Policy.COLD_GRAPH,
) -> Report:
    """Tunes `problem` on the worker's device, or resumes where an earlier run stopped.

    Args:
        watch: called after every measurement.
        fresh: start over instead of resuming; earlier measurements stay in the store.

    Raises:
        NothingCorrect: no candidate is legal, or none that was tried is correct.
        WorkerError: the device can't be used.
        StoreError: the store can't be written.
    """
    family = family_for(worker.facts.arch)
    candidates = candidates_for(family, problem, worker)
    round_ = worker.begin(problem, policy)
    key = StudyKey(problem, worker.facts.name, worker.facts.kind, policy, family.name, source_of(round_.provenance))
    record = store.begin_study(key, fresh=fresh)
    run = _Run(store, round_, family, candidates, budget, watch, record, seed)
    because = run.screen()
    return run.conclude(problem, worker, because)


def candidates_for(family: Family, problem: Problem, worker: Worker) -> list[Config]:
    """Legal candidates worth trying that the worker can measure, best estimate first.

    Raises:
        NothingCorrect: there is none, with the rules that emptied the space.
    """
    space = enumerate_space(family, problem, arch_named(worker.facts.arch))
    if not len(space):
        first = ", ".join(sorted(space.removed, key=lambda rule: -space.removed[rule])[:3])
        raise NothingCorrect(
            f"no {family.name} config is legal for {problem.dtype} {problem.layout} {problem.shape}: rules {first} "
            f"leave none; `gemmtune space {problem.shape}` counts what each removes"
        )
    limits = DEVICES.get(worker.facts.name) or next(d for d in DEVICES.values() if d.arch == worker.facts.arch)
    measurable = worker.measurable(problem)
    if measurable is None:
        return rank(space, limits, within=WITHIN_ESTIMATE).configs()
    return _recorded_candidates(family, problem, measurable, limits)


def _recorded_candidates(family: Family, problem: Problem, keys: frozenset[str], limits: DeviceLimits) -> list[Config]:
    configs = [family.config(parse_knobs(key.partition(":")[2])) for key in sorted(keys) if key.startswith(family.name)]
    columns = family.columns(problem, configs)
    legal = legal_mask(family, columns)
    estimates = family.estimate_us(columns, limits)
    order = sorted(range(len(configs)), key=lambda row: (estimates[row], enumeration_order(configs[row])))
    if not order:
        raise NothingCorrect(
            f"the recording holds nothing of {problem.dtype} {problem.layout} {problem.shape}: "
            f"`gemmtune doctor` lists what was recorded, `gemmtune best {problem.shape}` predicts"
        )
    return [configs[row] for row in order if legal[row]]


def source_of(provenance: Provenance) -> str:
    """Identity of what measures: two studies with the same one may be merged, others never."""
    parts = (provenance.kernel_source_digest, provenance.nvrtc, provenance.driver, provenance.cublaslt)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class _Run:
    """One run of a study: what was measured before it, and what it adds."""

    def __init__(
        self,
        store: Store,
        round_: Round,
        family: Family,
        candidates: Sequence[Config],
        budget: Budget,
        watch: Watch,
        record: StudyRecord,
        seed: int,
    ) -> None:
        self._store, self._round, self._family = store, round_, family
        self._candidates, self._budget, self._watch, self._record = candidates, budget, watch, record
        self._started = time.monotonic()
        self._screened = [stored.measurement for stored in store.measurements_of(record.id, "screen")]
        self._resumed = len(self._screened)
        self._distributions = distributions(family)
        self._optuna = optuna.create_study(sampler=LegalSampler(family, candidates, seed=seed))
        for measurement in self._screened:
            self._optuna.add_trial(self._trial_of(measurement))

    def screen(self) -> str:
        """Proposes and measures until the budget is spent; returns why it stopped."""
        total = min(self._budget.candidates, len(self._candidates))
        self._tell_watch("screen", None)
        while (left := total - len(self._screened)) > 0:
            if self._out_of_time():
                return f"the time budget of {self._budget.seconds:g} s is spent"
            if self._record.status is StudyStatus.FINISHED:
                self._store.reopen_study(self._record.id)
            try:
                self._batch(min(BATCH, left))
            except Exhausted:
                break
        if len(self._candidates) <= self._budget.candidates:
            return "every candidate worth trying was tried"
        return f"the budget of {self._budget.candidates} candidates is spent"

    def _batch(self, size: int) -> None:
        trials: dict[Config, optuna.Trial] = {}
        for _ in range(size):
            trial = self._optuna.ask(self._distributions)
            trials[self._family.config(trial.params)] = trial
        for measurement in self._round.screen(list(trials)):
            self._store.record(self._record.id, measurement, self._round.provenance)
            self._screened.append(measurement)
            trial = trials[measurement.config]
            if measurement.outcome is Outcome.CORRECT:
                self._optuna.tell(trial, measurement.median_us)
            else:
                self._optuna.tell(trial, state=TrialState.FAIL)
            self._tell_watch("screen", measurement)

    def conclude(self, problem: Problem, worker: Worker, because: str) -> Report:
        """Finals, the pick, and the best in the store."""
        correct = [m for m in self._screened if m.outcome is Outcome.CORRECT]
        failed = dict(Counter(m.outcome.value for m in self._screened if m.outcome is not Outcome.CORRECT))
        if not correct:
            kinds = ", ".join(f"{count} {kind}" for kind, count in failed.items()) or "none tried"
            raise NothingCorrect(f"no candidate of {problem.shape} is correct ({kinds}): nothing can be served")
        finals = self._finals(correct)
        rivals = [stored.measurement for stored in finals]
        winner = pick(rivals, problem, worker.facts.name)
        stored = next(entry for entry in finals if entry.measurement is winner)
        runner_up = next((m.config for m in sorted(rivals, key=lambda m: m.median_us) if m is not winner), None)
        library = [m for m in rivals if m.config.family == LIBRARY]
        best = Best(
            problem, worker.facts.name, worker.facts.kind, stored,
            versus_first=_versus(library[:1], winner), versus_best=_versus(library[-1:], winner),
            runner_up=runner_up, tried=len(self._screened), failed=failed,
        )  # fmt: skip
        self._store.set_best(best)
        self._store.finish_study(self._record.id, because)
        chance = chance_within([m.samples_us for m in rivals], rivals.index(winner), TIE_BAND)
        new = len(self._screened) - self._resumed
        return Report(best, chance, tuple(rivals), len(self._candidates), because, new, self._seconds())

    def _finals(self, correct: list[Measurement]) -> list[StoredMeasurement]:
        """The finals of this state of the study; taken anew only when something was screened since."""
        done = self._store.final_series(self._record.id)
        if done:
            return done
        finalists = sorted(correct, key=lambda m: (m.median_us, enumeration_order(m.config)))[:FINALISTS]
        self._tell_watch("finals", None)
        finals = self._round.finals([m.config for m in finalists], self._budget.rounds)
        right = [m for m in finals if m.outcome is Outcome.CORRECT]
        if not right:
            reasons = "; ".join(sorted({m.detail for m in finals}))
            raise NothingCorrect(f"none of the finalists is correct when measured again: {reasons}")
        stored = self._store.record_many(self._record.id, finals, self._round.provenance)
        return [entry for entry in stored if entry.measurement.outcome is Outcome.CORRECT]

    def _trial_of(self, measurement: Measurement) -> optuna.trial.FrozenTrial:
        correct = measurement.outcome is Outcome.CORRECT
        return create_trial(
            state=TrialState.COMPLETE if correct else TrialState.FAIL,
            value=measurement.median_us if correct else None,
            params=measurement.config.knobs,
            distributions=self._distributions,
        )

    def _tell_watch(self, phase: str, last: Measurement | None) -> None:
        failed = Counter(m.outcome.value for m in self._screened if m.outcome is not Outcome.CORRECT)
        best = min(self._screened, key=lambda m: m.median_us, default=None)
        total = min(self._budget.candidates, len(self._candidates))
        new = len(self._screened) - self._resumed
        left = (total - len(self._screened)) * self._seconds() / new if new else None
        if left is not None and self._budget.seconds is not None:
            left = min(left, max(self._budget.seconds - self._seconds(), 0))
        self._watch(
            Progress(
                phase, len(self._screened), total, self._resumed, dict(failed),
                best if best and best.samples_us else None, last, self._seconds(), left,
            )
        )  # fmt: skip

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _out_of_time(self) -> bool:
        return self._budget.seconds is not None and self._seconds() >= self._budget.seconds


def _versus(library: Sequence[Measurement], winner: Measurement) -> Ratio | None:
    return ratio(library[0].samples_us, winner.samples_us) if library else None
