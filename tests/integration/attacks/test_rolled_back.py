"""What a revocation leaves: what was undone stays out unless that was taken back, and the served best stays served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.fleet import PROBLEMS, Fleet
from tests.integration.attacks.test_revocation import served_us, taken, tell
from tests.support import DEVICE, FAMILY, PROVENANCE, measured, study_key
from tuner.evidence import measurements, revocations, tokens
from tuner.evidence.records import Author, Best
from tuner.evidence.store import Store
from workers.measurement import Policy, Provenance

PROBLEM = PROBLEMS[0]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def test_a_best_that_was_rolled_back_does_not_return_when_the_next_is_revoked(store: Store) -> None:
    fleet = Fleet(store)
    for number, us in enumerate((10.0, 5.0)):
        tell(fleet.hand(number), us, forged=number == 1)
    store.roll_back(PROBLEM, DEVICE, store.best_changes(PROBLEM, DEVICE)[-1].id)
    study = store.begin_study(study_key(PROBLEM))
    number = tokens.make(store, "node", ["work"])[0].id
    with store.transaction(writes=True) as session:
        place = replace(measurements.Place.of(session, study.id), author=Author(token_id=number))
        prepared = measurements.prepare(session, place, taken(7.0, forged=False), PROVENANCE)
        last = measurements.insert_prepared(session, prepared)[-1]
    store.set_bests([Best(PROBLEM, DEVICE, "cuda", last, None, None, None, 1, {})])
    assert served_us(store) == 7.0
    revocations.revoke(store, token="node")
    assert served_us(store) == 10.0


@pytest.mark.parametrize(("undone", "left_us"), [(1, None), (2, 10.0), (3, None)])
def test_a_best_that_was_brought_back_is_rolled_back_no_more(
    store: Store, undone: int, left_us: float | None
) -> None:
    fleet = Fleet(store)
    for number, us in enumerate((10.0, 5.0)):
        tell(fleet.hand(number), us, forged=number == 1)
    for _ in range(undone):
        store.roll_back(PROBLEM, DEVICE, store.best_changes(PROBLEM, DEVICE)[-1].id)
    serves = {10.0: "worker-0", 5.0: "worker-1"}
    revocations.revoke(store, worker=serves[served_us(store) or 0.0])
    assert served_us(store) == left_us


def _undo_then_hide(store: Store, undone: int) -> None:
    """Undoes the second of three changes, takes that back, and so on; then worker-3 is faster than all."""
    fleet = Fleet(store)
    for number, us in enumerate((10.0, 8.0, 7.0)):
        tell(fleet.hand(number), us, forged=number == 1)
    change = store.best_changes(PROBLEM, DEVICE)[1].id
    for _ in range(undone):
        change = store.roll_back(PROBLEM, DEVICE, change).id
    tell(fleet.hand(3), 5.0)


@pytest.mark.parametrize(("undone", "left_us"), [(0, 7.0), (1, 10.0), (2, 7.0), (3, 10.0)])
def test_what_an_older_change_set_does_not_return_once_that_was_undone(
    store: Store, undone: int, left_us: float
) -> None:
    _undo_then_hide(store, undone)
    assert served_us(store) == 5.0
    revocations.revoke(store, worker="worker-3")
    assert served_us(store) == left_us


@pytest.mark.parametrize(("undone", "left_us"), [(1, 10.0), (2, 8.0), (3, 10.0)])
def test_what_an_undoing_held_back_returns_when_that_is_taken_back(
    store: Store, undone: int, left_us: float
) -> None:
    _undo_then_hide(store, undone)
    revocations.revoke(store, worker="worker-2")
    revocations.revoke(store, worker="worker-3")
    assert served_us(store) == left_us


def test_a_revoked_best_under_another_policy_leaves_the_served_one_served(store: Store) -> None:
    chain, early, newer = Policy.CHAIN, Policy.CHAIN_PDL, replace(PROVENANCE, driver="590.1")
    # The node's chain is slower than what stands; its time among early neighbours is the best, and forged.
    runs: list[tuple[Provenance, dict[Policy, float], int | None]] = [
        (PROVENANCE, {chain: 10.0, early: 9.0}, None), (newer, {chain: 11.0}, None),
        (PROVENANCE, {chain: 11.5, early: 5.0}, tokens.make(store, "node", ["work"])[0].id),
    ]  # fmt: skip
    for by, times, token in runs:
        study = store.begin_study(study_key(PROBLEM), fresh=True)
        finals = [measured(FAMILY.config({}), us, PROBLEM, "final", policy=policy) for policy, us in times.items()]
        with store.transaction(writes=True) as session:
            place = replace(measurements.Place.of(session, study.id), author=Author(token_id=token))
            kept = measurements.insert_prepared(session, measurements.prepare(session, place, finals, by))
        store.set_bests([Best(PROBLEM, DEVICE, "cuda", one, None, None, None, 1, {}) for one in kept])
    assert served_us(store) == 11.0
    revocations.revoke(store, token="node")
    found = [best for asked in (None, chain, early) if (best := store.best(PROBLEM, DEVICE, asked))]
    assert [(best.policy, best.median_us) for best in found] == [(chain, 11.0), (chain, 11.0), (early, 9.0)]


def test_a_best_that_another_undoing_restored_is_rolled_back_no_more(store: Store) -> None:
    fleet = Fleet(store)
    for number, us in enumerate((10.0, 8.0, 7.0)):
        tell(fleet.hand(number), us, forged=number == 1)
    _, second, third = store.best_changes(PROBLEM, DEVICE)
    store.roll_back(PROBLEM, DEVICE, second.id)
    store.roll_back(PROBLEM, DEVICE, third.id)
    assert served_us(store) == 8.0
    tell(fleet.hand(3), 5.0)
    revocations.revoke(store, worker="worker-3")
    assert served_us(store) == 8.0
