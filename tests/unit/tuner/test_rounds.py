"""The search of a round: what it proposes, what it learns, when it ends."""

from __future__ import annotations

import pytest

from space.arch import H200
from space.errors import ProblemError
from space.rank import roofline_us
from tests.support import DEVICE, FAMILY, PROBLEM, measured
from tuner.rounds import BATCH, Budget, Search, Tried, screen
from workers.measurement import Measurement, Outcome

CONFIGS = [
    FAMILY.config({"tile_n": n, "raster": raster}) for n in range(8, 257, 8) for raster in ("along_m", "along_n")
]


class FakeRound:
    """Measures at once: the place in the list is the time."""

    def screen(self, candidates):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        for config in candidates:
            yield measured(config, 100.0 + CONFIGS.index(config))


def search(budget: Budget, tried: list[Tried] | None = None) -> Search:
    return Search(FAMILY, PROBLEM, DEVICE, CONFIGS, budget, tried or [])


def run(found: Search, most: int = 10_000) -> list[Measurement]:
    taken: list[Measurement] = []
    for measurement in screen(FakeRound(), found, go_on=lambda: len(taken) < most):  # type: ignore[arg-type]
        taken.append(measurement)
    return taken


def test_everything_is_tried_once_and_then_it_ends() -> None:
    found = search(Budget(candidates=1_000))
    taken = run(found)
    assert sorted(m.config.key for m in taken) == sorted(config.key for config in CONFIGS)
    assert found.ended == "every candidate worth trying was tried"
    assert found.finalists(2) == CONFIGS[:2]


def test_a_search_goes_on_where_another_one_stopped() -> None:
    first = search(Budget(candidates=40))
    before = run(first, most=1)
    assert (len(before), first.ended) == (BATCH, "")
    second = search(Budget(candidates=40), [Tried.of(m) for m in before])
    after = run(second)
    assert len(before) + len(after) == 40
    assert not {m.config for m in before} & {m.config for m in after}
    assert second.ended == "the budget of 40 candidates is spent"


def test_a_target_ends_it_as_soon_as_it_is_reached() -> None:
    share = roofline_us(PROBLEM, H200) / 110.0
    found = search(Budget(candidates=1_000, target=share))
    taken = run(found)
    assert len(taken) < len(CONFIGS)
    assert min(m.median_us for m in taken) <= 110.0
    assert "target" in found.ended


def test_what_was_measured_for_another_reason_is_learned_too() -> None:
    found = search(Budget(candidates=1_000))
    found.tell(measured(CONFIGS[0], outcome=Outcome.TIMEOUT))
    assert CONFIGS[0] not in {m.config for m in run(found)}
    assert found.failed == {"timeout": 1}


@pytest.mark.parametrize(
    "wrong", [{"candidates": 0}, {"candidates": 10**9}, {"rounds": 4}, {"seconds": 0.0}, {"seconds": float("nan")},
              {"target": 0.0}, {"target": 1.5}, {"target": float("nan")}],
)  # fmt: skip
def test_a_budget_outside_its_bounds_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ProblemError, match=next(iter(wrong))):
        Budget(**wrong)  # type: ignore[arg-type]
