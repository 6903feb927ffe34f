"""Retuning finds what a new program changes, measures it within its budget, and says what moved."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from space.config import Config
from space.devices import profile_named
from space.enumerate import enumerate_space
from space.family import families_for, family_named
from space.kinds.gemm import Gemm
from space.problem import Problem
from tests.fleet import FakeDevice, FakeRound, time_of
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.answering.answers import measured as answered
from tuner.evidence.records import Best, Policy, Provenance
from tuner.evidence.store import Store
from tuner.prediction.files import model_for
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import FirstChoice, first_choice
from tuner.studying.candidates import candidates_for
from tuner.studying.guidance import Guidance
from tuner.studying.retune import Retuned, Stale, compare, retune
from tuner.studying.study import Budget, tune
from workers.errors import ProcessError
from workers.kernels.source import sources_digest
from workers.measurement import Measurement, Program
from workers.ports import More, Round, no_more

BUDGET = Budget(candidates=12, turns=5)
OTHER = Gemm.parse("256x256x512")
TODAY = replace(PROVENANCE, kernel_source_digest=sources_digest(families_for("sm_90a", PROBLEM)))
NEWER = replace(TODAY, driver="590.1")


class Device(FakeDevice):
    """A device with a program of its own, on which some configs take another time than on others."""

    def __init__(self, provenance: Provenance, slower: tuple[Config, ...] = (), broken: bool = False) -> None:
        super().__init__()
        self._provenance, self._slower, self._broken = provenance, slower, broken

    def program(self, problem: Problem) -> Program:
        return self._provenance.program

    def begin(self, problem: Gemm) -> Round:
        if self._broken:
            raise ProcessError("the GPU fell off the bus")
        return _Round(problem, self._provenance, self._slower)


class _Round(FakeRound):
    def __init__(self, problem: Gemm, provenance: Provenance, slower: tuple[Config, ...]) -> None:
        super().__init__(problem, provenance, lambda config: False)
        self._slower = slower

    def screen(self, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
        yield from map(self._now, super().screen(candidates, more))

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        return tuple(map(self._now, super().finals(finalists, turns)))

    def _now(self, one: Measurement) -> Measurement:
        factor = 1.5 if one.config in self._slower else 1.0
        return replace(one, samples_us=tuple(us * factor for us in one.samples_us))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two studies; each test changes a copy of it."""
    path = tmp_path_factory.mktemp("tuned") / "s.db"
    with Store.open(f"sqlite:///{path}") as store:
        for problem in (PROBLEM, OTHER):
            tune(store, Device(TODAY), problem, BUDGET)
    return path


@pytest.fixture
def store(tuned: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(tuned, tmp_path)
    with Store.open(f"sqlite:///{tmp_path}/s.db") as store:
        yield store


def again(store: Store, device: Device, seconds: float | None = None) -> list[Retuned]:
    stale = [each for each in compare(store, device, store.bests(DEVICE), None) if each.changes]
    return list(retune(store, device, stale, BUDGET, Guidance(), seconds))


def promise(problem: Gemm) -> tuple[LearnedModel, FirstChoice]:
    """The shipped model, and what it answers for a problem."""
    model = model_for(DEVICE).model
    assert model is not None
    found = first_choice(model, problem, profile_named(DEVICE))
    assert found is not None
    return model, found


def test_a_new_driver_makes_bests_stale_until_they_are_measured_again(store: Store) -> None:
    changes = [each.changes for each in compare(store, Device(NEWER), store.bests(DEVICE), None)]
    assert changes == [("driver 580.1 is now 590.1",)] * 2
    done = again(store, Device(NEWER))
    assert [(each.moved, each.stands) for each in done] == [(False, True)] * 2
    assert again(store, Device(NEWER)) == []


def test_a_winner_that_the_new_program_slows_down_moves_with_the_gain_of_today(store: Store) -> None:
    old = store.best(PROBLEM, DEVICE)
    assert old is not None
    done = {each.stale.best.problem: each for each in again(store, Device(NEWER, slower=(old.config,)))}
    moved = done[PROBLEM]
    assert moved.best is not None
    assert moved.moved
    assert moved.stands
    served = store.best(PROBLEM, DEVICE)
    assert served is not None
    assert served.config == moved.best.config != old.config
    assert moved.old_now is not None
    assert moved.old_now.median_us == pytest.approx(1.5 * time_of(old.config), rel=0.01)
    assert moved.gain == pytest.approx(1.5 * time_of(old.config) / time_of(moved.best.config), rel=0.01)


def test_another_library_makes_bests_stale_and_a_problem_that_the_device_does_not_know_is_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(device: Device, problem: Problem) -> Program:
        if problem == OTHER:
            raise ProcessError("unknown here")
        return replace(TODAY, cublaslt="").program

    monkeypatch.setattr(Device, "program", program)
    (stale,) = compare(store, Device(TODAY), store.bests(DEVICE), None)
    assert (stale.best.problem, stale.changes) == (PROBLEM, ("cuBLASLt 130100 is now missing",))


def test_a_best_that_a_newer_rule_forbids_is_stale_and_measured_again(store: Store) -> None:
    illegal = FAMILY.config({"tile_n": 256, "tile_m": 256, "stages": 12})
    study = store.begin_study(study_key(), fresh=True)
    kept = store.record(study.id, measured(illegal, 1.0, stage="final"), TODAY)
    best = Best(PROBLEM, DEVICE, "cuda", kept, None, None, None, 1, {})
    (stale,) = compare(store, Device(TODAY), [best], None)
    (change,) = stale.changes
    assert change.startswith("its config breaks registers.held")
    before = store.counts()["measurement"]
    (done,) = retune(store, Device(TODAY), [stale], BUDGET, Guidance())
    assert done.best is not None
    assert done.best.config != illegal
    assert store.counts()["measurement"] > before


@pytest.mark.parametrize(("config", "changes"), [
    (FAMILY.config({}), ("NVRTC 12.9 is now 13.5",)), (family_named("cublaslt").config({}), ()),
])  # fmt: skip
def test_another_compiler_changes_our_kernels_alone(store: Store, config: Config, changes: tuple[str, ...]) -> None:
    study = store.begin_study(study_key(), fresh=True)
    kept = store.record(study.id, measured(config, 1.0, stage="final"), replace(TODAY, nvrtc="12.9"))
    best = Best(PROBLEM, DEVICE, "cuda", kept, None, None, None, 1, {})
    assert [each.changes for each in compare(store, Device(TODAY), [best], None)] == [changes]


def test_a_longer_rotation_makes_bests_stale_where_memory_decides(store: Store) -> None:
    rotated = replace(TODAY, rotation_bytes=4 << 30)
    found = {each.best.problem: each for each in compare(store, Device(rotated), store.bests(DEVICE), None)}
    said = "operands rotated through three times L2, now through 4,294,967,296 bytes"
    # Arithmetic takes at least half of the other's time.
    assert {problem: each.changes for problem, each in found.items()} == {PROBLEM: (said,), OTHER: ()}
    old = found[PROBLEM].best
    (done,) = again(store, Device(rotated, slower=(old.config,)))
    assert done.best is not None
    assert (done.stands, done.moved, done.best.winner.provenance) == (True, True, rotated)
    assert again(store, Device(rotated)) == []


@pytest.mark.parametrize(("served", "changes"), [(True, ("our kernels have changed since they lost",)), (False, ())])
def test_where_the_library_won_new_kernels_are_tried_again(
    store: Store, served: bool, changes: tuple[str, ...]
) -> None:
    library, problem = family_named("cublaslt").config({"rank": 0}), Gemm.parse("256x512x256")
    won = measured(library, 20.0, problem, "final")
    kept = store.record(store.begin_study(study_key(problem)).id, won, replace(TODAY, kernel_source_digest="e" * 64))
    assert store.set_bests([Best(problem, DEVICE, "cuda", kept, None, None, None, 1, {})]) == []
    best = store.best(problem, DEVICE)
    assert best is not None
    # The algorithm is as it was, and so is the answer.
    assert answered(best).source == "measured"
    (stale,) = compare(store, Device(TODAY), [replace(best, served=served)], None)
    assert stale.changes == changes
    if served:
        (done,) = again(store, Device(TODAY))
        assert (done.stale.best, done.stands) == (best, True)
        assert again(store, Device(TODAY)) == []


def test_an_old_winner_that_is_not_worth_trying_by_now_is_measured_all_the_same(store: Store) -> None:
    worth, space = set(candidates_for(PROBLEM, Device(TODAY))), enumerate_space(FAMILY, PROBLEM, pruned=False)
    old = next(config for row in range(len(space)) if (config := FAMILY.config_at(space.columns, row)) not in worth)
    study = store.begin_study(study_key(), fresh=True)
    kept = store.record(study.id, measured(old, 1.0, stage="final"), TODAY)
    store.set_bests([Best(PROBLEM, DEVICE, "cuda", kept, None, None, None, 1, {})])
    again(store, Device(NEWER))
    taken = store.every(DEVICE, PROBLEM)
    assert {one.measurement.config for one in taken if one.provenance == NEWER} > {old}


def test_what_no_program_changed_is_measured_again_all_the_same(store: Store) -> None:
    stale = list(compare(store, Device(TODAY), store.bests(DEVICE), None))
    before = [each.winner.id for each in store.bests(DEVICE)]
    promised = [replace(each, changes=("a promise",)) for each in stale]
    done = list(retune(store, Device(TODAY), promised, BUDGET, Guidance()))
    assert [each.best is not None and each.best.winner.id not in before for each in done] == [True, True]


def test_what_the_model_expects_is_compared_under_the_policy_of_the_best(store: Store) -> None:
    problem = Gemm.parse("4096x4096x4096")
    model, chosen = promise(problem)
    expected_us = chosen.under(Policy.SUSTAINED)[0]
    assert expected_us > 1.05 * chosen.time_us
    for factor, promised in ((1.0, False), (1.05, True)):
        study = store.begin_study(study_key(problem), fresh=True)
        config = FAMILY.config({"tile_n": 64})
        taken = measured(config, factor * expected_us, problem, "final", policy=Policy.SUSTAINED)
        best = Best(problem, DEVICE, "cuda", store.record(study.id, taken, TODAY), None, None, None, 1, {})
        (stale,) = compare(store, Device(TODAY), [best], model)
        assert bool(stale.changes) == promised, stale.changes


def test_what_a_replay_tried_no_gpu_has_tried(store: Store) -> None:
    problem = Gemm.parse("4096x4096x4096")
    model, chosen = promise(problem)
    tried = measured(chosen.config, 1_000.0, problem)
    ours = store.begin_study(study_key(problem), fresh=True)
    slow = measured(FAMILY.config({"tile_n": 64}), 1_000.0, problem, "final", policy=Policy.SUSTAINED)
    best = Best(problem, DEVICE, "cuda", store.record(ours.id, slow, TODAY), None, None, None, 1, {})
    replay = store.begin_study(replace(study_key(problem), device_kind="recorded"), fresh=True)
    for study, promised in ((replay, True), (ours, False)):
        store.record(study.id, tried, TODAY)
        (stale,) = compare(store, Device(TODAY), [best], model)
        assert bool(stale.changes) == promised, stale.changes


def test_a_replay_beside_what_a_gpu_measured_says_why_it_is_not_served(store: Store) -> None:
    (gpu,) = [best for best in store.bests(DEVICE) if best.problem == PROBLEM]
    replayed = store.begin_study(replace(study_key(), device_kind="recorded"), fresh=True)
    kept = store.record(replayed.id, gpu.winner.measurement, TODAY)
    old = replace(gpu, winner=kept, device_kind="recorded")
    device = Device(NEWER)
    device.facts = replace(device.facts, kind="recorded")
    (done,) = retune(store, device, [Stale(old, ("driver",))], BUDGET, Guidance())
    assert (done.best is not None, done.stands) == (True, False)
    assert done.why == "the store serves what a GPU measured, not a replay"


def test_the_budget_of_time_ends_it_and_a_failure_is_told(store: Store) -> None:
    assert again(store, Device(NEWER), seconds=0) == []
    failed = again(store, Device(NEWER, broken=True))
    assert [(each.best, each.why) for each in failed] == [(None, "the GPU fell off the bus")] * 2
    assert len(again(store, Device(NEWER))) == 2


class _EarlyRound(FakeRound):
    """Measures its finalists under `chain_pdl`, too, unless it is told not to."""

    def __init__(self, problem: Gemm, provenance: Provenance, early: bool) -> None:
        super().__init__(problem, provenance, lambda config: False)
        self._early = early

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        plain = super().finals(finalists, turns)
        return (*plain, *(replace(one, policy=Policy.CHAIN_PDL) for one in plain)) if self._early else plain


class _Early(Device):
    early = True

    def begin(self, problem: Gemm) -> Round:
        return _EarlyRound(problem, self._provenance, self.early)


@pytest.mark.parametrize("early", [True, False])
def test_a_stale_best_under_another_policy_is_found_beside_a_fresh_one(store: Store, early: bool) -> None:
    problem, old = Gemm.parse("256x512x256"), replace(TODAY, nvrtc="12.9")
    library, ours = family_named("cublaslt").config({"rank": 0}), FAMILY.config({"tile_n": 64})
    taken = [measured(library, 20.0, problem, "final"),
             measured(ours, 50.0, problem, "final", policy=Policy.CHAIN_PDL)]  # fmt: skip
    kept = store.record_many(store.begin_study(study_key(problem)).id, taken, old)
    assert store.set_bests([Best(problem, DEVICE, "cuda", one, None, None, None, 1, {}) for one in kept]) == []
    device = _Early(TODAY)
    device.early = early
    found = list(compare(store, device, store.bests_by_policy(DEVICE), None))
    assert len(found) == 3
    # NVRTC compiles none of the library's kernels: nothing that the served one depends on has changed.
    (stale,) = [each for each in found if each.changes]
    assert (stale.best.config, stale.best.policy, stale.best.served) == (ours, Policy.CHAIN_PDL, False)
    assert stale.changes == ("NVRTC 12.9 is now 13.5",)
    (done,) = retune(store, device, [stale], BUDGET, Guidance())
    if early:
        assert done.best is not None
        assert (done.stands, done.best.policy, done.moved) == (True, Policy.CHAIN_PDL, True)
    else:
        assert (done.best, done.stands) == (None, False)
        assert done.why == "nothing was measured under chain_pdl: that best stays stale"
    # Today's program has run: it would measure the same again.
    assert not any(each.changes for each in compare(store, device, store.bests_by_policy(DEVICE), None))
