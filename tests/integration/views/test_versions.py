"""Versions change with whatever a view shows, on both kinds of database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import delete, func, select

from tests.support import DEVICE, FAMILY, PROBLEM, keep_best, measured, study_key, today
from tuner.evidence import changes
from tuner.evidence.models import BestRow
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.views import versions
from workers.measurement import Policy


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def test_a_study_that_ends_again_for_another_reason_has_another_version(store: Store) -> None:
    study = store.begin_study(study_key(PROBLEM), fresh=True).id
    store.finish_study(study, "time")
    before = versions.of_study(store, study)
    assert versions.of_study(store, study) == before
    store.reopen_study(study)
    store.finish_study(study, "interrupted")
    assert versions.of_study(store, study) != before


def test_a_best_that_is_removed_behind_a_later_one_makes_another_version(store: Store) -> None:
    """A revocation is noted first, and bests are removed one by one afterwards."""
    study = store.begin_study(study_key(), fresh=True).id
    stored = [store.record(study, measured(FAMILY.config({}), stage="final", policy=policy), today())
              for policy in (Policy.BURST, Policy.CHAIN)]  # fmt: skip
    bests = [Best(PROBLEM, DEVICE, "cuda", each, None, None, None, 2, {}) for each in stored]
    store.set_bests([bests[0], replace(bests[1], served=False)])
    before = versions.of_problem(store, PROBLEM.key, DEVICE), versions.of_study(store, study)
    with store.transaction(writes=True) as session:
        session.execute(delete(BestRow).where(BestRow.version == select(func.min(BestRow.version)).scalar_subquery()))
    after = versions.of_problem(store, PROBLEM.key, DEVICE), versions.of_study(store, study)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_restored_store_has_other_versions(store: Store) -> None:
    study = keep_best(store).winner.study_id
    before = versions.of_problem(store, PROBLEM.key, DEVICE), versions.of_study(store, study)
    with store.transaction(writes=True) as session:
        changes.mark_restored(session.connection())
    after = versions.of_problem(store, PROBLEM.key, DEVICE), versions.of_study(store, study)
    assert before[0] != after[0]
    assert before[1] != after[1]
