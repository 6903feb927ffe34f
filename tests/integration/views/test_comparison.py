"""Two measurements compared: by turns within one finals, by medians otherwise, and not where times differ in kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from space.config import Config
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.errors import NotComparable, UnknownMeasurement
from tuner.evidence.picks import versus
from tuner.evidence.records import StoredMeasurement
from tuner.evidence.store import Store
from tuner.views.comparison import compared
from workers.measurement import Measurement, Outcome, Policy

ONE, OTHER = (FAMILY.config({"tile_n": width}) for width in (64, 128))


def chained(config: Config, times_us: Sequence[float]) -> Measurement:
    return replace(measured(config, stage="final", policy=Policy.CHAIN), samples_us=tuple(times_us))


@pytest.fixture
def finals(database_url: str) -> list[StoredMeasurement]:
    """One finals of two configs, and a second one of the first config."""
    with Store.open(database_url, create=True) as store:
        study = store.begin_study(study_key())
        first = [chained(ONE, [8.0, 8.8, 8.4]), chained(OTHER, [10.0, 11.0, 10.5])]
        again = [chained(ONE, [8.0, 8.0, 8.0])]
        return [one for taken in (first, again) for one in store.record_many(study.id, taken, PROVENANCE)]


def test_finals_compare_by_turn_as_picks_do_and_other_runs_by_median(
    database_url: str, finals: list[StoredMeasurement]
) -> None:
    one, other, later = finals
    with Store.open(database_url) as store:
        found = compared(store, one.id, other.id)
        assert found == versus(other.measurement, one.measurement, DEVICE)
        assert (found.paired, found.value) == (True, pytest.approx(1.25))
        assert found.low == found.high == pytest.approx(1.25)
        # The clock of another run is another.
        apart = compared(store, later.id, other.id)
        assert (apart.paired, apart.value) == (False, pytest.approx(10.5 / 8.0))
        assert apart.low < apart.value < apart.high


def test_screenings_share_no_turns(database_url: str) -> None:
    with Store.open(database_url, create=True) as store:
        study = store.begin_study(study_key())
        one, other = store.record_many(study.id, [measured(ONE, 8.0), measured(OTHER, 10.0)], PROVENANCE)
        assert not compared(store, one.id, other.id).paired


def test_what_does_not_compare_is_refused(database_url: str, finals: list[StoredMeasurement]) -> None:
    with Store.open(database_url) as store:
        study = store.begin_study(study_key(Gemm(16, 512, 512)))
        elsewhere, wrong = store.record_many(study.id, [
            measured(ONE, problem=Gemm(16, 512, 512), stage="final", policy=Policy.CHAIN),
            measured(OTHER, problem=Gemm(16, 512, 512), stage="final", policy=Policy.CHAIN, outcome=Outcome.TIMEOUT),
        ], PROVENANCE)  # fmt: skip
        burst = store.record_many(
            store.begin_study(study_key()).id, [measured(ONE, stage="final", policy=Policy.BURST)], PROVENANCE
        )[0]
        card = store.begin_study(study_key(device="NVIDIA L40S"))
        (foreign,) = store.record_many(card.id, [measured(ONE, stage="final", policy=Policy.CHAIN)], PROVENANCE)
        for one, other, said in (
            (finals[0], elsewhere, PROBLEM.key), (finals[0], burst, "of policy chain"),
            (elsewhere, wrong, "is timeout"), (finals[0], foreign, f"of device {DEVICE}, "),
        ):  # fmt: skip
            with pytest.raises(NotComparable, match=said):
                compared(store, one.id, other.id)
        with pytest.raises(UnknownMeasurement):
            compared(store, finals[0].id, 9_999)


def test_times_that_cant_be_true_do_not_compare(database_url: str) -> None:
    with Store.open(database_url, create=True) as store:
        study = store.begin_study(study_key())
        one, other = store.record_many(study.id, [chained(ONE, [1.0] * 3), chained(OTHER, [1e10] * 3)], PROVENANCE)
        with pytest.raises(NotComparable, match="can't be true"):
            compared(store, one.id, other.id)
