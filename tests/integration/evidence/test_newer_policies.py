"""Bests under a policy that a newer version measures: left out here, in nobody's way, and kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import inspect, text

from tests.fleet import PROBLEMS, Fleet
from tests.integration.attacks.test_revocation import served_us, tell
from tests.support import DEVICE
from tuner.errors import NothingMeasured
from tuner.evidence import revocations
from tuner.evidence.store import Store

PROBLEM = PROBLEMS[0]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """Holds a best of 10 µs by `worker-0`."""
    with Store.open(database_url) as opened:
        tell(Fleet(opened).hand(0), 10.0)
        yield opened


def add_newer(store: Store, served: bool) -> int:
    """Copies the best under a policy `warm`, past all of our code; returns the number of its change."""
    with store.transaction(writes=True) as session:
        kept = [column["name"] for column in inspect(session.connection()).get_columns("measurement")
                if column["name"] not in ("id", "policy", "worker_id")]  # fmt: skip
        names = ", ".join(kept)
        measurement = session.scalar(text(
            f"INSERT INTO measurement (policy, {names}) SELECT 'warm', {names} FROM measurement "
            "WHERE id = (SELECT measurement_id FROM best) RETURNING id"
        ))  # fmt: skip
        version = session.scalar(text("UPDATE counter SET value = value + 1 WHERE name = 'best' RETURNING value"))
        given = {"measurement": measurement, "version": version, "served": served, "other": not served}
        session.execute(text("UPDATE best SET served = :other"), given)
        session.execute(text(
            "INSERT INTO best (problem_id, device_id, policy, measurement_id, outcome, runner_up, tried, failed, "
            "version, served) SELECT problem_id, device_id, 'warm', :measurement, outcome, '', 1, failed, :version, "
            ":served FROM best"
        ), given)  # fmt: skip
        return session.scalar(text(
            "INSERT INTO best_change (problem_id, device_id, policy, measurement_id, previous_id, reason, at, version) "
            "SELECT problem_id, device_id, 'warm', :measurement, measurement_id, '', at, :version FROM best_change "
            "RETURNING id"
        ), given) or 0  # fmt: skip


def policies(store: Store) -> dict[str, bool]:
    """Whether each best is served."""
    with store.transaction() as session:
        return {policy: bool(served) for policy, served in session.execute(text("SELECT policy, served FROM best"))}


@pytest.mark.parametrize("served", [True, False])
def test_a_best_under_a_newer_policy_stops_no_new_one(store: Store, served: bool) -> None:
    add_newer(store, served)
    assert served_us(store) == (None if served else 10.0)
    tell(Fleet(store).hand(1), 9.0)
    assert served_us(store) == 9.0
    assert policies(store) == {"burst": True, "warm": False}


def test_the_history_leaves_out_changes_under_a_newer_policy(store: Store) -> None:
    number = add_newer(store, served=False)
    tell(Fleet(store).hand(1), 9.0)
    # A page is as long as was asked for, although one between them is left out.
    assert [change.median_us for change in store.best_changes(PROBLEM, DEVICE, limit=2)] == [10.0, 9.0]
    with pytest.raises(NothingMeasured, match=f"has no change {number}"):
        store.roll_back(PROBLEM, DEVICE, number)


def test_a_best_under_a_newer_policy_is_served_to_its_version_where_no_other_is_left(store: Store) -> None:
    add_newer(store, served=False)
    assert revocations.revoke(store, worker="worker-0").bests == 1
    assert policies(store) == {"warm": True}
    assert served_us(store) is None
