"""Workers and what they report, as rounds go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from space.kind import problem_from_key
from tests.fleet import PROBLEMS, Fleet, facts, failing, provenance, time_of
from tests.support import DEVICE, FAMILY, measured
from tuner.errors import FleetError, ResultRefused, SlotTaken
from tuner.fleet.campaigns.records import RoundReport
from workers.measurement import Outcome, Policy


class TestWorkers:
    def test_one_worker_a_gpu(self, fleet: Fleet) -> None:
        first = fleet.hand()
        with pytest.raises(SlotTaken, match="GPU-0"):
            fleet.workers.register("other", facts(0))
        fleet.fall_silent()
        fleet.sweeper.sweep()
        second = fleet.workers.register("other", facts(0))
        assert [worker.id for worker in fleet.workers.page()] == [second.worker_id]
        assert {worker.id: worker.status for worker in fleet.workers.page(gone=True)}[first.id] == "gone"

    def test_recorded_devices_are_told_apart_by_name(self, fleet: Fleet) -> None:
        replay = type(facts())(**{**facts_of(), "kind": "recorded", "uuid": "digest"})
        fleet.workers.register("one", replay)
        fleet.workers.register("two", replay)
        with pytest.raises(SlotTaken, match="one"):
            fleet.workers.register("one", replay)

    def test_a_recorded_worker_screens_under_its_recordings_policy(self, fleet: Fleet) -> None:
        fleet.campaign(devices=((DEVICE, "recorded"),))
        replay = replace(facts(), kind="recorded", screening=Policy.SUSTAINED)
        task = fleet.rounds.claim(fleet.workers.register("replay", replay).worker_id)
        assert task is not None
        fleet.rounds.begin(task.round_id, task.lease, provenance())
        rows = [measured(FAMILY.config({}), problem=problem_from_key(task.problem_key), policy=policy)
                for policy in (Policy.BURST, Policy.SUSTAINED)]  # fmt: skip
        with pytest.raises(ResultRefused, match="screens under sustained"):
            fleet.rounds.finish(task.round_id, task.lease, RoundReport((rows[0],), provenance(), 0.0))
        fleet.rounds.finish(task.round_id, task.lease, RoundReport((rows[1],), provenance(), 0.0))
        assert replace(replay, kind="cuda").screens_under is Policy.BURST

    def test_a_draining_worker_gets_no_more(self, fleet: Fleet) -> None:
        fleet.campaign()
        hand = fleet.hand()
        task = hand.claimed()
        assert fleet.workers.drain(hand.id).status == "draining"
        assert fleet.workers.beat(hand.id, task.round_id).drain
        with pytest.raises(FleetError, match="report it before"):
            fleet.workers.leave(hand.id)
        hand.work(task)
        assert hand.claim() is None
        fleet.workers.leave(hand.id)
        fleet.workers.leave(hand.id)
        assert fleet.workers.page() == []

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"arch": "sm_90"}, "sm_90a"),
            ({"arch": "sm_100a"}, "built for"),
            ({"name": "NVIDIA B200"}, "sm_100a"),
            ({"sm_count": 200}, "132 SMs"),
            ({"name": ""}, "device name"),
            ({"uuid": "x" * 100}, "device uuid"),
        ],
    )
    def test_facts_that_can_not_be_are_refused(self, fleet: Fleet, change: dict[str, object], said: str) -> None:
        with pytest.raises((FleetError, ValueError), match=said):
            fleet.workers.register("liar", type(facts())(**{**facts_of(), **change}))  # type: ignore[arg-type]
        assert fleet.store.counts()["worker"] == 0


def facts_of() -> dict[str, object]:
    found = facts()
    return {name: getattr(found, name) for name in type(found).__dataclass_fields__}


class TestReports:
    """A report is validated completely before any of it is stored."""

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (lambda m: replace(m, problem_key=PROBLEMS[3].key), "the round is of"),
            (lambda m: replace(m, config=FAMILY.config({"tile_n": 256, "stages": 16})), "illegal"),
            (lambda m: replace(m, config=replace(m.config, values=(("tile_m", 64),))), "knobs"),
            (lambda m: replace(m, config=replace(m.config, family="cublaslt")), "are sm90_wgmma, mma_sync, gemv"),
            (lambda m: replace(m, samples_us=(1e-6, 1e-6, 1e-6)), "roofline"),
            (lambda m: replace(m, samples_us=(1.0, float("inf"))), "positive"),
            (lambda m: replace(m, verification=replace(m.verification, elements=5)), "elements"),
            (lambda m: replace(m, verification=replace(m.verification, worst_ratio=float("nan"))), "worst_ratio = nan"),
            (lambda m: replace(m, detail="x" * 10_000), "longer"),
            (lambda m: replace(m, build_digest="../../x"), "SHA-256"),
        ],
    )
    def test_a_measurement_that_can_not_be_is_refused(self, fleet: Fleet, spoil, said: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        task = hand.claimed()
        batch = hand.begin(task).propose()
        good = [measured(config, time_of(config), PROBLEMS[0]) for config in batch[:3]]
        with pytest.raises(ResultRefused, match=said):
            hand.report(task, [*good[:2], spoil(good[2])])
        assert fleet.store.counts()["measurement"] == 0
        # It is still the worker's round.
        hand.report(task, good)

    def test_a_repeated_config_and_a_foreign_device_are_refused(self, fleet: Fleet) -> None:
        fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        task = hand.claimed()
        batch = hand.begin(task).propose()
        with pytest.raises(ResultRefused, match="twice"):
            hand.report(task, [measured(batch[0], 30.0, PROBLEMS[0])] * 2)
        hand.number = 3
        with pytest.raises(ResultRefused, match="GPU-3"):
            hand.report(task, [measured(batch[0], 30.0, PROBLEMS[0])])
        with pytest.raises(ResultRefused, match="GPU-3"):
            hand.begin(task)

    def test_an_illegal_announcement_is_refused(self, fleet: Fleet) -> None:
        fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        task = hand.claimed()
        with pytest.raises(ResultRefused, match="illegal"):
            hand.announce(task, [FAMILY.config({"tile_n": 256, "stages": 16})])

    def test_a_wrong_kernel_is_stored_and_never_served(self, fleet: Fleet) -> None:
        fleet.campaign(PROBLEMS[:1])
        hand = fleet.hand()
        task = hand.claimed()
        batch = hand.begin(task).propose()
        hand.report(task, [failing(batch[0], PROBLEMS[0], Outcome.WRONG_RESULT)], ended="tried")
        assert (fleet.store.counts()["measurement"], fleet.store.bests()) == (1, [])
