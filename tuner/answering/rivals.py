"""Rivals: the finals that a best won."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from space.config import Config
from space.devices import profile_named
from space.problem import Problem
from tuner.errors import NothingCorrect, NothingMeasured
from tuner.evidence.legality import forbidden
from tuner.evidence.picks import ahead, bests_of
from tuner.evidence.records import Best, StoredMeasurement
from tuner.hints import tune_command
from workers.measurement import NO_ENERGY, Policy

# Imports SQLAlchemy, which an answer without a store does not need.
if TYPE_CHECKING:
    from tuner.evidence.store import Store


@dataclass(frozen=True, slots=True)
class Finals:
    """The finals that a best won.

    Attributes:
        rivals: the correct ones under its policy, fastest first.
        joules: energy of a product, by config. It was counted while each ran alone, so it is the same for all policies.
        uncounted: whether energy was to be counted and could not be.
        today: what today's rules pick from these finals; None where that is the best, or nothing.
        out: why the best is out of the running by now, as a clause; empty while it is in.
    """

    best: Best
    rivals: Sequence[StoredMeasurement]
    joules: Mapping[Config, float]
    uncounted: bool
    today: StoredMeasurement | None
    out: str


def finals_of(store: Store, problem: Problem, device: str, policy: Policy | None = None) -> Finals:
    """The finals that a best won.

    Args:
        policy: whose best; by default the served one.

    Raises:
        NothingMeasured: there is no such best, or finals were impossible; it names the policies that have some.
        ProfileError: there is none, and no known card has the device's name.
    """
    best = store.best(problem, device, policy)
    # Later finals of its study may have been slower, and then it still stands.
    finals = store.finals_beside(best.winner.id) if best else []
    under = [one for one in finals if best and one.measurement.policy is best.policy]
    if best is None or not under:
        profile_named(device)
        said = f"no finals of {problem.title} on {device}{f' under {policy.value}' if policy else ''} are stored"
        if policy and (others := _policies_of(store, problem, device)):
            # A tune that has run would time no other policies if it ran again.
            raise NothingMeasured(f"{said}, but under {others}: ask for one of these, or for none")
        raise NothingMeasured(f"{said}:", tune_command(problem))
    by_time = ahead([one.measurement for one in under])
    rivals = sorted(under, key=lambda one: by_time.index(one.measurement))
    measurements = [one.measurement for one in finals]
    joules = {one.config: one.product_joules for one in measurements if one.product_joules is not None}
    uncounted = any(NO_ENERGY in one.note for one in measurements)
    return Finals(best, rivals, joules, uncounted, picked_today(best, finals), out_since(best, finals))


def _policies_of(store: Store, problem: Problem, device: str) -> str:
    """The policies under which a problem has a best that won finals, in words."""
    bests = (store.best(problem, device, policy) for policy in Policy)
    return ", ".join(best.policy.value for best in bests if best and store.finals_beside(best.winner.id))


def picked_today(best: Best, finals: Sequence[StoredMeasurement]) -> StoredMeasurement | None:
    """What today's rules pick from the finals that a best won; None where that is the best, or nothing."""
    try:
        found = bests_of(best.problem, finals, best.tried, best.failed)
    except NothingCorrect:
        return None
    now = next((each.winner for each in found if each.policy is best.policy), best.winner)
    return None if now.id == best.winner.id else now


def out_since(best: Best, finals: Sequence[StoredMeasurement]) -> str:
    """Why a best is out of the running by now, as a clause; empty while it is in.

    Args:
        finals: those that it won, without what was revoked or found wrong.
    """
    if broken := forbidden(best.problem, best.config, best.device):
        return f"breaks {broken} by now, and is not served"
    if not finals or best.winner.id in {each.id for each in finals}:
        return ""
    said = "was revoked" if best.winner.revoked else "has a build that was found wrong since"
    return f"{said}: the next tune replaces it"
