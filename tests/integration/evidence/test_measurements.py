"""Measurements in a session: what a study has already, and what is read of its finals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from benchmarks.postgres import Postgres
from tests.support import FAMILY, PROVENANCE, measured, study_key
from tuner.errors import AlreadyMeasured, StoreError
from tuner.evidence.models import ConfigRow, MeasurementRow
from tuner.evidence.store import Store


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def say(store: Store, words: str) -> None:
    """Makes the store's driver say other words when it refuses."""

    def refuse(context: sa.engine.ExceptionContext) -> None:
        context.original_exception.args = (words,)

    sa.event.listen(store._engine, "handle_error", refuse)


def test_a_server_of_another_language_says_that_it_was_measured(postgres: Postgres) -> None:
    with Store.open(postgres.database()) as store:
        say(store, "FEHLER: doppelter Schlüsselwert verletzt einen Constraint")
        study = store.begin_study(study_key())
        store.record(study.id, measured(FAMILY.config({})), PROVENANCE)
        with pytest.raises(AlreadyMeasured, match="was already measured in study"):
            store.record(study.id, measured(FAMILY.config({})), PROVENANCE)


def test_another_refusal_that_quotes_the_word_is_no_repetition(store: Store) -> None:
    say(store, "null value in a column. DETAIL: Failing row contains (unique)")
    study = store.begin_study(study_key())
    broken = measured(FAMILY.config({}))
    object.__setattr__(broken, "stage", None)
    with pytest.raises(StoreError, match="the store refused it") as refused:
        store.record(study.id, broken, PROVENANCE)
    assert not isinstance(refused.value, AlreadyMeasured)


def test_what_only_a_newer_version_reads_is_left_out_of_pages(store: Store) -> None:
    study = store.begin_study(study_key())
    first, second, third = (store.record(study.id, measured(FAMILY.config({"stages": stages})), PROVENANCE).id
                            for stages in (2, 3, 4))  # fmt: skip
    with store.transaction(writes=True) as session:
        newer = ConfigRow(key=f"{FAMILY.name}:later=1", family=FAMILY.name, knobs={})
        session.add(newer)
        session.flush()
        row = session.get_one(MeasurementRow, second)
        names = {*sa.inspect(MeasurementRow).columns.keys()} - {"id", "config_id"}
        session.add(MeasurementRow(**{name: getattr(row, name) for name in names}, config_id=newer.id))
    last = store.record(study.id, measured(FAMILY.config({"stages": 5})), PROVENANCE).id
    assert [each.id for each in store.page()] == [first, second, third, last]
    # Another takes the place of what was left out.
    assert [each.id for each in store.page(after=second, limit=2)] == [third, last]
