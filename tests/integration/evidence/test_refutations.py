"""A build that was wrong once is served no longer, however often it was right before and is right afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from space.config import Config
from space.families.common import starts_early
from space.family import is_own
from space.kinds.gemm import Gemm
from space.rank import roofline_us
from tests.fleet import PROBLEMS, FakeDevice, FakeRound, Fleet, Hand, provenance
from tests.support import DEVICE, FACTS, FAMILY, PROVENANCE, measured, study_key
from tuner.errors import NothingCorrect, NothingMeasured
from tuner.evidence import measurements
from tuner.evidence.picks import bests_of
from tuner.evidence.records import Best, Policy, Provenance, StoredMeasurement
from tuner.evidence.revocations import revoke
from tuner.evidence.store import Store
from tuner.fleet.campaigns.outcomes import verdict
from tuner.fleet.campaigns.records import CampaignBudget
from tuner.studying.candidates import candidates_for
from tuner.studying.guidance import Guidance
from tuner.studying.records import FINALISTS
from tuner.studying.retune import compare, retune
from tuner.studying.study import Budget, tune
from tuner.views.outlook import outlook
from tuner.views.studies import in_full, page
from tuner.views.versions import of_study
from workers.measurement import Measurement, Outcome, Stage
from workers.ports import More, Round, no_more

PROBLEM = PROBLEMS[0]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def built(one: Measurement) -> Measurement:
    """A measurement of one of ours, with the digest of its build."""
    digest = hashlib.sha256(one.config.key.encode()).hexdigest()
    return replace(one, build_digest=digest) if is_own(one.config) else one


def wrong(config: Config, problem: Gemm = PROBLEM, stage: Stage = "screen") -> Measurement:
    return built(measured(config, problem=problem, stage=stage, outcome=Outcome.WRONG_RESULT))


class Flaky(FakeDevice):
    """A device on which one config is wrong in some stages."""

    def __init__(self, config: Config | None = None, stages: Sequence[Stage] = ()) -> None:
        super().__init__()
        self._config, self._stages = config, stages

    def begin(self, problem: Gemm) -> Round:
        return FlakyRound(problem, self._config, self._stages)


class FlakyRound(FakeRound):
    """See `Flaky`."""

    def __init__(self, problem: Gemm, config: Config | None, stages: Sequence[Stage]) -> None:
        super().__init__(problem, provenance(), lambda _: False)
        self._config, self._stages = config, stages

    def screen(self, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
        return map(self._told, super().screen(candidates, more))

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        # Those that start early are not screened.
        plain = [config for config in finalists if not starts_early(config)]
        return tuple(map(self._told, super().finals(plain, turns)))

    def _told(self, one: Measurement) -> Measurement:
        if one.config == self._config and one.stage in self._stages:
            return wrong(one.config, self._problem, one.stage)
        return built(one)


def tuned(store: Store, device: Flaky, candidates: int = 8, fresh: bool = False) -> Config:
    """What a tune serves."""
    return tune(store, device, PROBLEM, Budget(candidates, turns=11), fresh=fresh).best.config


def served(store: Store) -> Config:
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    return best.config


def test_a_best_that_is_wrong_in_a_later_screening_is_replaced_by_a_slower_one(store: Store) -> None:
    fastest = tuned(store, Flaky())
    assert tuned(store, Flaky(fastest, ["screen"]), fresh=True) != fastest
    assert served(store) != fastest
    *_, last = store.best_changes(PROBLEM, DEVICE)
    assert last.reason.endswith("found the old one's build wrong")


def test_a_best_under_a_policy_that_the_next_study_leaves_out_is_gone(store: Store) -> None:
    study, finals = store.begin_study(study_key(PROBLEM)), [FAMILY.config({"tile_n": each}) for each in (64, 128)]
    taken = [built(measured(config, 10.0 + place, PROBLEM, "final", policy=policy))
             for policy, some in ((Policy.CHAIN, finals[:1]), (Policy.BURST, finals))
             for place, config in enumerate(some)]  # fmt: skip
    store.set_bests(bests_of(PROBLEM, store.record_many(study.id, taken, PROVENANCE), 2, {}))
    later = store.begin_study(study_key(PROBLEM), fresh=True)
    others = [built(measured(FAMILY.config({"tile_n": each}), problem=PROBLEM)) for each in (96, 192)]
    found = store.record_many(later.id, [wrong(finals[0]), *others], PROVENANCE)
    again = built(measured(finals[1], 12.0, PROBLEM, "final", policy=Policy.BURST))
    store.set_bests(bests_of(PROBLEM, store.record_many(later.id, [again], PROVENANCE), 3, {"wrong_result": 1}))
    assert [best.policy for best in store.bests_by_policy(DEVICE)] == [Policy.BURST]
    assert served(store) == finals[1]
    gone = next(each for each in store.best_changes(PROBLEM, DEVICE) if each.measurement_id is None)
    assert (gone.policy, gone.reason) == (Policy.CHAIN, f"measurement {found[0].id} found its build wrong")


@pytest.mark.parametrize(("second_us", "stands"), [(11.0, True), (13.0, False)])
def test_the_fastest_of_all_finals_that_are_right_takes_the_place_of_one_that_was_wrong(
    store: Store, second_us: float, stands: bool
) -> None:
    first, second, third = (FAMILY.config({"tile_n": each}) for each in (64, 128, 96))

    def finals(us: dict[Config, float], policies: Sequence[Policy]) -> list[Measurement]:
        return [built(measured(config, each, PROBLEM, "final", policy=policy))
                for policy in policies for config, each in us.items()]  # fmt: skip

    study = store.begin_study(study_key(PROBLEM))
    both = finals({first: 10.0, second: second_us}, (Policy.CHAIN, Policy.BURST))
    store.set_bests(bests_of(PROBLEM, store.record_many(study.id, both, PROVENANCE), 2, {}))
    later = store.begin_study(study_key(PROBLEM), fresh=True)
    screened = [built(measured(config, problem=PROBLEM)) for config in (second, third)]
    (found, *_) = store.record_many(later.id, [wrong(first), *screened], PROVENANCE)
    taken = store.record_many(later.id, finals({third: 12.0}, (Policy.CHAIN,)), PROVENANCE)
    remarks = store.set_bests(bests_of(PROBLEM, taken, 3, {"wrong_result": 1}))
    assert any("slower: 12 µs instead of 11 µs" in remark for remark in remarks) == stands
    bests = {best.policy: best for best in store.bests_by_policy(DEVICE)}
    assert {policy: best.config for policy, best in bests.items()} == {
        Policy.CHAIN: second if stands else third, Policy.BURST: second
    }  # fmt: skip
    assert (served(store), bests[Policy.CHAIN].tried) == ((second, 0) if stands else (third, 3))
    because = f"measurement {found.id} found the old one's build wrong"
    assert [change.reason for change in store.best_changes(PROBLEM, DEVICE)[2:]] == [because, because]


def test_a_wrong_best_is_gone_although_what_comes_in_its_place_was_found_wrong_too(store: Store) -> None:
    study, (first, second) = store.begin_study(study_key(PROBLEM)), candidates_for(PROBLEM, FakeDevice())[:2]
    final = store.record_many(study.id, [built(measured(first, 10.0, PROBLEM, "final"))], PROVENANCE)
    store.set_bests(bests_of(PROBLEM, final, 1, {}))
    later = store.begin_study(study_key(PROBLEM), fresh=True)
    final = store.record_many(later.id, [built(measured(second, 9.0, PROBLEM, "final"))], PROVENANCE)
    decided = bests_of(PROBLEM, final, 1, {})
    for config in (first, second):
        refute(store, wrong(config))
    (remark,) = store.set_bests(decided)
    assert "found the same build wrong" in remark
    assert store.bests_by_policy(DEVICE) == []


def test_a_best_that_is_put_back_after_the_report_was_revoked_decides_again(store: Store) -> None:
    study, config = store.begin_study(study_key(PROBLEM)), FAMILY.config({"tile_n": 64})
    finals = [built(measured(config, 10.0, PROBLEM, "final", policy=policy)) for policy in (Policy.CHAIN, Policy.BURST)]
    store.set_bests(bests_of(PROBLEM, store.record_many(study.id, finals, PROVENANCE), 1, {}))
    others = [built(measured(FAMILY.config({"tile_n": each}), problem=PROBLEM)) for each in (96, 192)]
    tell(Fleet(store).hand(1), PROBLEM, [wrong(config), *others])
    later = store.begin_study(study_key(PROBLEM), fresh=True)
    burst = built(measured(FAMILY.config({"tile_n": 96}), 12.0, PROBLEM, "final", policy=Policy.BURST))
    store.set_bests(bests_of(PROBLEM, store.record_many(later.id, [burst], PROVENANCE), 1, {}))
    (gone,) = (each for each in store.best_changes(PROBLEM, DEVICE) if each.measurement_id is None)
    assert served(store) == burst.config
    revoke(store, worker="worker-1")
    store.roll_back(PROBLEM, DEVICE, gone.id)
    assert {best.policy: best.served for best in store.bests_by_policy(DEVICE)} == {
        Policy.CHAIN: True, Policy.BURST: False
    }  # fmt: skip
    assert [best.policy for _, best in store.bests_after(0, 10) if isinstance(best, Best)] == [Policy.CHAIN]
    assert served(store) == config


def test_what_is_wrong_in_finals_is_not_served_by_the_same_study_after_it_is_right(store: Store) -> None:
    fastest = tuned(store, Flaky())
    with Store.open("sqlite://") as other:
        second = tuned(other, Flaky(fastest, ["final"]))
        assert second != fastest
        assert tuned(other, Flaky(), candidates=12) == second
        assert served(other) == second


def test_no_rollback_brings_back_what_was_found_wrong(store: Store) -> None:
    fastest = tuned(store, Flaky())
    second = tuned(store, Flaky(fastest, ["screen"]), fresh=True)
    change = next(each for each in store.best_changes(PROBLEM, DEVICE) if each.reason.endswith("build wrong"))
    with pytest.raises(NothingMeasured, match="found the same build wrong"):
        store.roll_back(PROBLEM, DEVICE, change.id)
    assert served(store) == second != fastest


def test_it_may_be_served_on_another_problem_and_with_another_build(store: Store) -> None:
    fastest = tuned(store, Flaky())
    elsewhere, otherwise = wrong(fastest, PROBLEMS[1]), replace(wrong(fastest), build_digest="another")
    for told, problem in ((elsewhere, PROBLEMS[1]), (otherwise, PROBLEM)):
        refute(store, told, problem)
    assert tuned(store, Flaky(), fresh=True) == served(store) == fastest


def refute(store: Store, told: Measurement, problem: Gemm = PROBLEM, beside: int = 2) -> None:
    """A study by another program, in which one was wrong and others were right."""
    study = store.begin_study(replace(study_key(problem), source="another"), fresh=True)
    store.record(study.id, told, PROVENANCE)
    others = (config for config in candidates_for(problem, FakeDevice())[::-1] if config != told.config)
    for config, _ in zip(others, range(beside), strict=False):
        store.record(study.id, built(measured(config, problem=problem)), PROVENANCE)


def test_a_build_that_was_wrong_in_another_study_is_not_served(store: Store) -> None:
    fastest = tuned(store, Flaky())
    refute(store, wrong(fastest))
    assert tuned(store, Flaky(), fresh=True) == served(store) != fastest


def test_a_studys_page_picks_no_build_that_was_wrong(store: Store) -> None:
    fastest = tuned(store, Flaky())
    (study,) = page(store, PROBLEM, DEVICE, 1_000, 10)
    version = of_study(store, study.id)
    refute(store, wrong(fastest))
    assert of_study(store, study.id) != version, "a page that is kept would pick it still"
    found = in_full(store, study.id)
    configs = {final.measurement_id: final.config for final in found.finals}
    assert {configs[pick.measurement_id] for pick in found.picks} == {tuned(store, Flaky(), fresh=True)}
    assert fastest in configs.values()


@pytest.mark.parametrize("stage", ["screen", "final"])
def test_what_another_process_stores_during_the_finals_takes_no_rival_away(
    stage: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, kept = candidates_for(PROBLEM, FakeDevice())[-1], store.record_many

    def together(study: int, measurements: Sequence[Measurement], by: Provenance) -> list[StoredMeasurement]:
        found = kept(study, measurements, by)
        if measurements[0].stage == "final":
            kept(study, [built(measured(other, 20.0, PROBLEM, stage))], PROVENANCE)
        return found

    monkeypatch.setattr(store, "record_many", together)
    assert tuned(store, Flaky()) == served(store)


def test_a_study_in_which_most_is_wrong_shows_a_bad_gpu_and_refutes_nothing(store: Store) -> None:
    fastest = tuned(store, Flaky())
    refute(store, wrong(fastest), beside=1)
    assert tuned(store, Flaky(), fresh=True) == served(store) == fastest


def tell(hand: Hand, problem: Gemm, told: Sequence[Measurement]) -> None:
    """One round of a new campaign, whose worker screened and timed these."""
    hand._fleet.campaign([problem])
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, told, ended="done")


def test_a_fleet_serves_the_next_one_until_another_study_after_the_report_was_revoked(store: Store) -> None:
    fleet = Fleet(store)
    good, doubtful = fleet.hand(0), fleet.hand(1)
    fast, slow = candidates_for(PROBLEM, good.device)[:2]
    screened = [built(measured(config, problem=PROBLEM)) for config in (fast, slow)]
    right = [built(measured(config, us, PROBLEM, "final")) for config, us in ((fast, 10.0), (slow, 12.0))]
    tell(good, PROBLEM, [*screened, *right])
    assert served(store) == fast
    tell(doubtful, PROBLEM, [wrong(fast, stage="final"), right[1]])
    assert served(store) == slow
    # Decided before they are stored.
    tell(good, PROBLEM, right)
    assert served(store) == slow
    revoke(store, worker="worker-1")
    tell(good, PROBLEM, right)
    assert served(store) == fast


def test_finals_that_were_all_wrong_before_decide_nothing() -> None:
    config = FAMILY.config({})
    final = built(measured(config, problem=PROBLEM, stage="final"))
    with Store.open("sqlite://") as store:
        study = store.begin_study(study_key(PROBLEM))
        (stored,) = store.record_many(study.id, [final], PROVENANCE)
    refuted = {(config.key, final.build_digest)}
    decided = verdict(PROBLEM, [stored], refuted)
    assert isinstance(decided, NothingCorrect)
    with pytest.raises(NothingCorrect, match="every one's build was found wrong before"):
        raise decided
    assert verdict(PROBLEM, [], refuted) is None


@pytest.mark.parametrize("fresh", [True, False])
def test_builds_that_were_wrong_take_no_finalists_place(store: Store, fresh: bool) -> None:
    tuned(store, Flaky(), candidates=24)
    with store.transaction() as session:
        finals = measurements.final_series(session, 1)
    known = {final.measurement.config for final in finals if is_own(final.measurement.config)}
    assert len(known) >= FINALISTS
    for config in known:
        refute(store, wrong(config))
    report = tune(store, Flaky(), PROBLEM, Budget(24, turns=11), fresh=fresh)
    own = {final.config for final in report.finals if is_own(final.config)}
    assert own
    assert not own & known
    assert served(store) == report.best.config


def test_a_target_that_a_build_found_wrong_reached_ends_no_search_and_leaves_a_gain(store: Store) -> None:
    tuned(store, Flaky())
    screened = [one.measurement for one in store.measurements_of(1, "screen")]
    fastest_us = min(one.median_us for one in screened)
    target, before = roofline_us(PROBLEM, FACTS.profile) / fastest_us, outlook(store, 1, None)
    for one in screened:
        if one.median_us == fastest_us:
            refute(store, wrong(one.config))
    report = tune(store, Flaky(), PROBLEM, Budget(12, turns=11, target=target))
    assert report.new == 12 - len(screened)
    after = outlook(store, 1, None)
    assert before.gain is not None
    assert after.gain is not None
    assert after.gain > before.gain


def test_a_round_goes_on_without_builds_that_were_wrong_elsewhere(store: Store) -> None:
    hand = Fleet(store).hand(0)
    fast, slow = candidates_for(PROBLEM, hand.device)[:2]
    hand._fleet.campaign([PROBLEM])
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, [built(measured(config, problem=PROBLEM)) for config in (fast, slow)])
    refute(store, wrong(fast))
    found = hand.begin(hand.claimed())
    assert {entry.config: entry.outcome for entry in found.tried} == {
        fast: Outcome.WRONG_RESULT, slow: Outcome.CORRECT
    }  # fmt: skip
    assert slow in (finalists := found.finalists())
    assert fast not in finalists


def test_a_campaign_serves_the_library_where_all_that_was_right_was_found_wrong_elsewhere(store: Store) -> None:
    hand = Fleet(store).hand(0)
    screened = candidates_for(PROBLEM, hand.device)[:2]
    hand._fleet.campaign([PROBLEM], budget=CampaignBudget(candidates=2, rounds=11))
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, [built(measured(config, problem=PROBLEM)) for config in screened])
    for config in screened:
        refute(store, wrong(config))
    task = hand.claimed()
    search = hand.begin(task)
    assert not search.propose()
    finalists = search.finalists()
    assert finalists, "without any a worker runs no finals"
    hand.report(task, FlakyRound(PROBLEM, None, ()).finals(finalists, 11), ended=search.ended)
    assert hand._fleet.statuses(1) == {"done": 1}
    assert not is_own(served(store))


def test_a_campaign_runs_finals_again_where_all_of_ours_in_them_were_wrong_elsewhere(store: Store) -> None:
    hand = Fleet(store).hand(0)
    fast, slow = candidates_for(PROBLEM, hand.device)[:2]
    screened = [built(measured(config, problem=PROBLEM)) for config in (fast, slow)]
    tell(hand, PROBLEM, [*screened, built(measured(fast, 10.0, PROBLEM, "final"))])
    for known in (True, False):
        hand._fleet.campaign([PROBLEM])
        task = hand.claimed()
        begun = hand._fleet.rounds.begin(task.round_id, task.lease, provenance(0))
        assert begun.finals_done == known
        hand.report(task, ended="done")
        refute(store, wrong(fast))


def test_a_best_whose_build_was_found_wrong_since_is_stale_and_replaced(store: Store) -> None:
    fastest, device = tuned(store, Flaky()), Flaky()
    refute(store, wrong(fastest))
    (stale,) = compare(store, device, store.bests_by_policy(DEVICE), None)
    assert any(clause.endswith("found its build wrong") for clause in stale.changes)
    (again,) = retune(store, device, [stale], Budget(8, turns=11), Guidance())
    assert again.stands
    assert served(store) == again.best.config != fastest  # type: ignore[union-attr]
    (then,) = compare(store, device, store.bests_by_policy(DEVICE), None)
    assert not any("wrong" in clause for clause in then.changes)
