"""The funnel: the steps from all configs of a problem to the served one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from space.devices import DeviceProfile
from space.plug import Family
from space.problem import Problem
from tuner.evidence.store import Store
from tuner.views import studies
from tuner.views.spaces import space_of

StepName = Literal["product", "legal", "worth", "pool", "measured", "correct", "finals", "served"]


@dataclass(frozen=True, slots=True)
class Step:
    """Configs that are left; None if they were not counted."""

    name: StepName
    count: int | None


@dataclass(frozen=True, slots=True)
class Funnel:
    """Steps from all configs to one; `study_id` is that of the served best, None without one."""

    problem: Problem
    device: str
    study_id: int | None
    steps: tuple[Step, ...]


def counts_of(
    problem: Problem, device: DeviceProfile, families: Sequence[Family], legal: Mapping[str, Any] | None
) -> tuple[Step, ...]:
    """The steps that depend on the problem and the device alone: all configs, legal ones, worth trying, the pool."""
    found = space_of(problem, device, families, None, None, legal).families
    return (
        Step("product", sum(each.product for each in found)),
        Step("legal", sum(each.legal or 0 for each in found) if legal is not None else None),
        Step("worth", sum(each.worth for each in found)), Step("pool", sum(each.pool for each in found)),
    )  # fmt: skip


def funnel(store: Store, problem: Problem, device: DeviceProfile, counts: Sequence[Step]) -> Funnel:
    """The funnel of a problem on a device, from what `counts_of` found."""
    best = store.best(problem, device.name)
    # Where all candidates failed, nothing is served, but the newest study says what was measured.
    newest = studies.page(store, problem, device.name, 0, 1) if best is None else []
    study = studies.in_short(store, best.winner.study_id) if best else next(iter(newest), None)
    steps = (
        *counts,
        Step("measured", study.measured if study else 0), Step("correct", study.correct if study else 0),
        Step("finals", study.finalists if study else 0), Step("served", 1 if best else 0),
    )  # fmt: skip
    return Funnel(problem, device.name, best.winner.study_id if best else None, steps)
