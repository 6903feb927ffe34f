"""Study: tunes one problem on one device; can be stopped and resumed at any moment.

The store is authoritative: each measurement is committed before the next proposal, and a resumed run rebuilds the
Optuna study from the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from space.config import Config
from space.families.common import plain_twin
from space.family import families_for, is_own
from space.problem import Problem
from tuner.errors import AlreadyMeasured, NothingCorrect
from tuner.evidence.legality import all_forbidden
from tuner.evidence.picks import TIE_BAND, bests_of
from tuner.evidence.records import Best, StoredMeasurement, StudyKey, StudyRecord, StudyStatus
from tuner.evidence.stats import chance_within
from tuner.evidence.store import Store
from tuner.studying.candidates import candidates_for, count_worth_trying
from tuner.studying.guidance import Guidance
from tuner.studying.order import Outlook
from tuner.studying.records import Budget as Budget  # part of what `tune` takes
from tuner.studying.records import Trial, names_of, source_of, standing
from tuner.studying.screening import Search, screen
from workers.measurement import Measurement, Outcome, Stage
from workers.ports import Round, Worker

_ALONE: Final = Guidance()
_BUSY: Final = "; times are unstable where something else uses the GPU: `nvidia-smi` lists what does"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a running study, sent after every measurement.

    Attributes:
        phase: `screen` or `finals`.
        tried, total: candidates measured, earlier runs included, and the budget.
        resumed: how many of these earlier runs measured.
        failed: failures by outcome.
        best: the fastest correct one so far.
        last: the measurement just taken; None before the first.
        seconds, seconds_left: time spent in this run, and expected time until its end.
    """

    phase: str
    tried: int
    total: int
    resumed: int
    failed: dict[str, int]
    best: Trial | None
    last: Measurement | None
    seconds: float
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a study.

    Attributes:
        best: the winner that is served, with its evidence.
        chance: probability that the winner is within 2 % of the fastest finalist, by bootstrap.
        finals: all correct final measurements under every policy, including the library's.
        candidates: number of candidates that the device could measure; `best.tried` of them were tried.
        screened_us: the winner's time in screening; None where it was not screened, as cuBLASLt's candidates.
        worth_trying: number of legal candidates that the worth rules leave. A recording holds fewer; on a GPU, those
            expected to be far slower than the best are no candidates.
        stopped_because: the reason, as one sentence.
        outlook: expected gain of further measurements; None before the first correct candidate.
        new: number of candidates that this run measured.
        remarks: sentences about winners that did not become best, because a better one stands or the card is unknown.
    """

    best: Best
    chance: float
    finals: tuple[Measurement, ...]
    candidates: int
    stopped_because: str
    outlook: Outlook | None
    new: int
    seconds: float
    worth_trying: int
    screened_us: float | None
    remarks: tuple[str, ...] = ()


Watch = Callable[[Progress], None]


def tune(
    store: Store,
    worker: Worker,
    problem: Problem,
    budget: Budget,
    *,
    watch: Watch = lambda _: None,
    fresh: bool = False,
    guidance: Guidance = _ALONE,
    without: Collection[str] = (),
    also: Sequence[Config] = (),
    begun: Round | None = None,
) -> Report:
    """Tunes `problem` on the worker's device, or resumes where an earlier run stopped.

    Args:
        watch: called after every measurement.
        fresh: start over instead of resuming; earlier measurements stay in the store.
        guidance: learned model and winners; if it has no winners, the store provides those of similar problems.
        without: ids of worth rules whose configs are candidates too.
        also: configs that are candidates where they are legal, whatever is worth trying, and finalists where they are
            correct.
        begun: the problem's round on the worker, where one has begun.

    Raises:
        NothingCorrect: no candidate is legal, or no tried candidate is correct.
        FamilyError: `without` names no worth rule.
        WorkerError: the device can't be used.
        StoreError: the store can't be written.
    """
    model = guidance.model_of(worker.facts.name)
    candidates = candidates_for(problem, worker, without, model, also)
    round_ = begun or worker.begin(problem)
    facts, competing = worker.facts, names_of(families_for(worker.facts.arch, problem))
    key = StudyKey(problem, facts.name, facts.kind, round_.policy, competing, source_of(round_.provenance))
    record = store.begin_study(key, fresh=fresh)
    guided = replace(guidance, winners=guidance.winners or store.winners_near(problem, facts.name, record.id))
    screened = [Trial.of(stored.measurement) for stored in store.measurements_of(record.id, "screen")]
    tried = standing(screened, store.refuted_in(record.id))
    search = Search(problem, facts.name, candidates, budget, tried, guided)
    run = _Run(store, round_, search, budget, watch, record)
    because = run.screen()
    wrong = store.refuted_in(record.id)
    finalists = search.finalists(also=[plain_twin(config) for config in also], without=wrong)
    worth_trying = count_worth_trying(problem, worker, without)
    return run.conclude(problem, finalists, wrong, len(candidates), worth_trying, because)


class _Run:
    """One run of a study: earlier measurements, and what this run adds."""

    def __init__(
        self, store: Store, round_: Round, search: Search, budget: Budget, watch: Watch, record: StudyRecord
    ) -> None:
        self._store, self._round, self._search, self._budget = store, round_, search, budget
        self._watch, self._record = watch, record
        self._started = time.monotonic()
        self._resumed = len(search.tried)

    def screen(self) -> str:
        """Proposes and measures until the budget is spent; returns why it stopped."""
        self._tell_watch("screen", None)
        for measurement in screen(self._round, self._search, self._reopen, lambda: not self._out_of_time()):
            # What another run of this study has measured meanwhile counts as well as ours.
            with suppress(AlreadyMeasured):
                self._store.record(self._record.id, measurement, self._round.provenance)
            self._tell_watch("screen", measurement)
        return self._search.ended or f"the time budget of {self._budget.seconds:g} s is spent"

    def conclude(
        self, problem: Problem, finalists: Sequence[Config], wrong: Collection[str], candidates: int,
        worth_trying: int, because: str,
    ) -> Report:  # fmt: skip
        """Runs the finals, picks the winner and stores it as the best."""
        if not finalists:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self._search.failed.items()) or "none tried"
            busy = _BUSY if Outcome.UNSTABLE in self._search.failed else ""
            raise NothingCorrect(
                f"no candidate of {problem.shape} is correct ({kinds}), and {because}: nothing can be served{busy}"
            )
        finals = self._finals(finalists, wrong)
        bests = bests_of(problem, finals, len(self._search.tried), self._search.failed)
        best = bests[0]
        remarks = tuple(self._store.set_bests(bests))
        self._store.finish_study(self._record.id, because)
        rivals = [stored.measurement for stored in finals if stored.measurement.outcome is Outcome.CORRECT]
        field = [rival for rival in rivals if rival.policy is best.policy]
        winner = field.index(best.winner.measurement)
        chance = chance_within([rival.samples_us for rival in field], winner, TIE_BAND)
        new = len(self._search.tried) - self._resumed
        return Report(
            best, chance, tuple(rivals), candidates, because, self._search.outlook(), new, self._seconds(),
            worth_trying, self._screened_us(best.config), remarks,
        )  # fmt: skip

    def _screened_us(self, config: Config) -> float | None:
        return next((entry.median_us for entry in self._search.tried if entry.config == config), None)

    def _reopen(self, stage: Stage, batch: Sequence[Config]) -> None:
        if self._record.status is StudyStatus.FINISHED:
            self._store.reopen_study(self._record.id)

    def _finals(self, finalists: Sequence[Config], wrong: Collection[str]) -> list[StoredMeasurement]:
        """The study's finals; run again only after new screenings, or where none of ours in them may win by now.

        Args:
            wrong: texts of screened configs whose build was found wrong.
        """
        done = self._store.final_series(self._record.id)
        key, configs = self._record.key, [one.measurement.config for one in done]
        others = any(plain_twin(config).key not in wrong for config in finalists)
        refuted = bool(wrong) and others and not any(map(is_own, configs))
        if done and not (refuted or all_forbidden(key.problem, configs, key.device)):
            return done
        self._tell_watch("finals", None)
        finals = self._round.finals(finalists, self._budget.turns)
        recorded = self._store.record_many(self._record.id, finals, self._round.provenance)
        # Read again: a build that was wrong once, in this study or another, is no rival.
        standing = {each.id for each in self._store.finals_beside(recorded[0].id)} if recorded else set()
        return [each for each in recorded if each.id in standing or each.measurement.outcome is not Outcome.CORRECT]

    def _tell_watch(self, phase: str, last: Measurement | None) -> None:
        tried, total = self._search.tried, self._search.total
        best = min(tried, key=lambda entry: entry.median_us, default=None)
        new = len(tried) - self._resumed
        left = (total - len(tried)) * self._seconds() / new if new else None
        if left is not None and self._budget.seconds is not None:
            left = min(left, max(self._budget.seconds - self._seconds(), 0))
        self._watch(
            Progress(
                phase, len(tried), total, self._resumed, self._search.failed,
                best if best and best.outcome is Outcome.CORRECT else None, last, self._seconds(), left,
            )
        )  # fmt: skip

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _out_of_time(self) -> bool:
        return self._budget.seconds is not None and self._seconds() >= self._budget.seconds
