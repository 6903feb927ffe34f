"""A round's search: its proposals, its learning and its end."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from space.config import Config
from space.devices import profile_named
from space.errors import ProblemError
from space.family import family_named
from space.kinds.gemm import Gemm
from space.rank import roofline_us
from tests.support import DEVICE, FAMILY, PROBLEM, measured
from tuner.studying.records import JUDGED_AFTER, Budget, Trial
from tuner.studying.screening import TWINS, Search, screen
from workers.measurement import Measurement, Outcome

H200 = profile_named("NVIDIA H200")

CONFIGS = [
    FAMILY.config({"tile_n": n, "raster": raster}) for n in range(8, 257, 8) for raster in ("along_m", "along_n")
]


class FakeRound:
    """Measures at once: the place in the list is the time; or it is shuffled by a stride, and times differ less."""

    stride = 1

    def screen(self, candidates, more=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        for config in candidates:
            place = CONFIGS.index(config)
            shuffled = (place + 1) * self.stride % len(CONFIGS)
            yield measured(config, 100.0 + (place if self.stride == 1 else shuffled / 8))


def search(budget: Budget, tried: list[Trial] | None = None) -> Search:
    return Search(PROBLEM, DEVICE, CONFIGS, budget, tried or [])


def run(found: Search, most: int = 10_000, stride: int = 1) -> list[Measurement]:
    taken: list[Measurement] = []
    device = FakeRound()
    device.stride = stride
    for measurement in screen(device, found, go_on=lambda: len(taken) < most):  # type: ignore[arg-type]
        taken.append(measurement)
    return taken


def test_everything_is_tried_once_and_then_it_ends() -> None:
    found = search(Budget(candidates=1_000))
    taken = run(found)
    assert sorted(m.config.key for m in taken) == sorted(config.key for config in CONFIGS)
    assert found.ended == "every measurable candidate was tried"
    assert found.finalists(2) == CONFIGS[:2]


def test_what_rules_forbid_by_now_is_no_finalist() -> None:
    legal, illegal = ({"tile_n": 256, "stages": stages} for stages in (3, 12))
    tried = [Trial.of(measured(FAMILY.config(knobs), time)) for knobs, time in ((legal, 101.0), (illegal, 100.0))]
    assert {config.number("stages") for config in search(Budget(), tried).finalists()} == {3}


@pytest.mark.parametrize(("device", "launches"), [("NVIDIA L40S", [0]), (DEVICE, [0, 1])])
def test_the_fastest_start_early_only_on_cards_that_can(device: str, launches: list[int]) -> None:
    problem, plain = Gemm.parse("1x4096x4096"), family_named("gemv").config({})
    found = Search(problem, device, [plain], Budget(), [Trial.of(measured(plain, 10.0, problem))])
    assert [config["pdl"] for config in found.finalists()] == launches


def test_every_candidate_is_tried_before_that_is_said() -> None:
    foreign = [Trial.of(measured(FAMILY.config({"tile_n": 64, "raster_group": group}), 100.0)) for group in (1, 2, 4)]
    found = Search(PROBLEM, DEVICE, CONFIGS[:2], Budget(candidates=200), foreign)
    assert found.propose()
    assert not found.ended


def test_trials_of_configs_that_are_no_candidates_shrink_no_batch() -> None:
    foreign = [Trial.of(measured(FAMILY.config({"tile_n": 64, "raster_group": group, "stages": stages}), 100.0))
               for group in (1, 2, 4, 8) for stages in (2, 3, 4)]  # fmt: skip
    found = Search(PROBLEM, DEVICE, CONFIGS[:6], Budget(candidates=200), foreign)
    assert found.total == len(foreign) + 6
    assert [len(found.propose()), len(found.propose()), len(found.propose())] == [4, 2, 0]


def test_what_rules_forbid_by_now_reaches_no_target() -> None:
    tried = [Trial.of(measured(FAMILY.config({"tile_n": 256, "stages": 12}), 100.0))]
    found = search(Budget(target=roofline_us(PROBLEM, H200) / 110.0), tried)
    assert found.propose()
    assert not found.ended


def test_the_best_of_every_near_structure_reaches_the_finals() -> None:
    times = [(128, 1, 100.0), (128, 2, 100.1), (128, 4, 100.2), (128, 8, 100.3), (128, 16, 100.4), (64, 1, 103.0),
             (64, 2, 103.1), (256, 1, 104.0), (32, 1, 120.0)]  # fmt: skip
    knobs = [({"tile_n": n, "raster_group": group, "stages": 3}, time) for n, group, time in times]
    tried = [Trial.of(measured(FAMILY.config(each), time)) for each, time in knobs]
    found = search(Budget(), tried)
    assert [config.number("tile_n") for config in found.finalists()] == [128] * 5 + [64, 256] + [128] * TWINS
    assert [config["pdl"] for config in found.finalists()] == [0] * 7 + [1] * TWINS
    assert [config.number("raster_group") for config in found.finalists(2)] == [1, 2], "after a bad end: the fastest"


class EagerRound(FakeRound):
    """Asks for more while two candidates are still to be measured, as a device does that would have to wait."""

    def __init__(self) -> None:
        self.open_when_asked: list[int] = []

    def screen(self, candidates, more=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        left = list(candidates)
        while left:
            if len(left) <= 2:
                self.open_when_asked.append(len(left))
                left += more()
            yield from super().screen([left.pop(0)])


def test_what_is_under_way_counts_when_more_is_proposed() -> None:
    device, found, announced = EagerRound(), search(Budget(candidates=21)), list[list[Config]]()
    taken = list(screen(device, found, lambda stage, batch: announced.append(list(batch))))  # type: ignore[arg-type]
    assert len({m.config for m in taken}) == len(taken) == 21
    assert found.ended == "the budget of 21 candidates is spent"
    assert max(device.open_when_asked) == 2
    # The two that were open at the time stand before the new ones: either of them may end the worker.
    assert [len(batch) for batch in announced[:3]] == [4, 6, 6]
    assert announced[1][:2] == announced[0][2:]


def test_a_search_goes_on_where_another_one_stopped() -> None:
    first = search(Budget(candidates=40))
    before = run(first, most=1)
    # Of the batch that was open the rest is left.
    assert (len(before), first.ended) == (1, "")
    second = search(Budget(candidates=40), [Trial.of(m) for m in before])
    after = run(second)
    assert len(before) + len(after) == 40
    assert not {m.config for m in before} & {m.config for m in after}
    assert second.ended == "the budget of 40 candidates is spent"


def test_a_search_that_has_tried_everything_says_so_when_it_goes_on() -> None:
    whole = search(Budget(candidates=1_000), [Trial.of(measured(config, 100.0)) for config in CONFIGS])
    assert (whole.total, whole.propose()) == (len(CONFIGS), [])
    assert whole.ended == "every measurable candidate was tried"


def test_a_target_ends_it_as_soon_as_it_is_reached() -> None:
    share = roofline_us(PROBLEM, H200) / 110.0
    found = search(Budget(candidates=1_000, target=share))
    taken = run(found)
    assert len(taken) < len(CONFIGS)
    assert min(m.median_us for m in taken) <= 110.0
    assert "target" in found.ended


def test_it_ends_when_too_little_is_left_to_gain_and_says_what_is_left() -> None:
    # Times that no estimate predicts leave an expected gain.
    found = search(Budget(candidates=1_000, gain=0.02))
    taken = run(found, stride=47)
    assert JUDGED_AFTER <= len(taken) < len(CONFIGS)
    assert "less than the 2.00% asked for" in found.ended
    outlook = found.outlook()
    assert outlook is not None
    assert outlook.gain < 0.02
    patient = search(Budget(candidates=1_000, gain=0.00001))
    assert len(run(patient, stride=47)) > len(taken)


def test_times_of_what_was_wrong_count_nowhere() -> None:
    # As a worker may report them, though ours leave them out.
    wrong = replace(measured(CONFIGS[0], 0.001), outcome=Outcome.WRONG_RESULT)
    found = search(Budget(candidates=40, target=0.9), [Trial.of(wrong)])
    found.tell(replace(wrong, config=CONFIGS[1]))
    assert len(found.propose()) > 0
    assert found.outlook() is None
    assert {(entry.median_us, entry.noise) for entry in found.tried} == {(math.inf, 0.0)}


def test_nothing_is_known_of_what_is_left_before_the_first_correct_result() -> None:
    found = search(Budget())
    assert found.outlook() is None
    found.tell(measured(CONFIGS[0], outcome=Outcome.TIMEOUT))
    assert found.outlook() is None


def test_the_gain_is_over_the_best_of_all_trials() -> None:
    known = [Trial.of(measured(config, 100.0)) for config in CONFIGS[:8]]
    found = search(Budget(), known).outlook()
    assert found is not None
    assert found.gain > 0
    other = Trial.of(measured(FAMILY.config({"tile_n": 64, "raster_group": 4, "stages": 3}), 20.0))
    found = search(Budget(), [*known, other]).outlook()
    assert found is not None
    assert (found.chance, found.gain) == (0.0, 0.0)


def test_a_gain_that_no_candidate_is_left_to_judge_is_refused() -> None:
    with pytest.raises(ProblemError, match="contradict each other"):
        Budget(gain=0.01, candidates=8)


def test_what_was_measured_for_another_reason_is_learned_too() -> None:
    found = search(Budget(candidates=1_000))
    found.tell(measured(CONFIGS[0], outcome=Outcome.TIMEOUT))
    assert CONFIGS[0] not in {m.config for m in run(found)}
    assert found.failed == {"timeout": 1}


@pytest.mark.parametrize(
    "wrong", [{"candidates": 0}, {"candidates": 10**9}, {"turns": 4}, {"seconds": 0.0}, {"seconds": float("nan")},
              {"gain": 0.0}, {"gain": 1.0}, {"gain": float("nan")},
              {"target": 0.0}, {"target": 1.5}, {"target": float("nan")}],
)  # fmt: skip
def test_a_budget_outside_its_bounds_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ProblemError, match=next(iter(wrong))):
        Budget(**wrong)  # type: ignore[arg-type]
