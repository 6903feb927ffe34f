"""What kept screenings say of predictions, where the answer is known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import predicted
from benchmarks.predicted import Tune, table, tunes_in
from space.kinds.gemm import Gemm
from tests.support import FAMILY, PROVENANCE, measured, study_key
from tuner.evidence.picks import bests_of
from tuner.evidence.store import Store
from workers.measurement import Outcome, Policy

PROBLEM = Gemm.parse("16x4096x4096")
#: In the order in which they were screened; the fifth is the fastest.
WIDTHS = (64, 72, 80, 88, 96)
TIMES = (16.0, 12.0, 40.0, 20.0, 10.0)


@pytest.mark.parametrize(("chosen", "outcome", "share"), [
    (96, Outcome.CORRECT, 1.0), (88, Outcome.CORRECT, 0.5), (88, Outcome.WRONG_RESULT, 0.0),
    (128, Outcome.CORRECT, None),
])  # fmt: skip
def test_a_prediction_is_compared_with_the_fastest_of_its_tune(
    chosen: int, outcome: Outcome, share: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = {width: FAMILY.config({"tile_n": width}) for width in (*WIDTHS, 128)}
    monkeypatch.setattr(predicted, "first_choice", lambda *_: SimpleNamespace(config=configs[chosen]))
    with Store.open(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        study = store.begin_study(study_key(PROBLEM))
        for width, us in zip(WIDTHS, TIMES, strict=True):
            found = outcome if width == chosen else Outcome.CORRECT
            store.record(study.id, measured(configs[width], us, PROBLEM, outcome=found), PROVENANCE)
        final = measured(configs[96], 10.0, PROBLEM, "final", policy=Policy.CHAIN)
        store.set_bests(bests_of(PROBLEM, store.record_many(study.id, [final], PROVENANCE), 5, {}))
        (tune,) = tunes_in(store)
    assert tune.shares == (share, pytest.approx(10 / 12), 1.0, 1.0)


def test_the_table_names_the_worst_and_counts_the_predictions_that_were_not_tried() -> None:
    tunes = [Tune("a", (0.5, 1.0, 1.0, 1.0)), Tune("b", (1.0, 0.8, 1.0, 1.0)), Tune("c", (None, 1.0, 1.0, 1.0))]
    lines = [*table(tunes)]
    assert lines[2] == "| the prediction | 2 | 0.707 | 0.500 | 0.500 | a |"
    assert lines[3] == "| 4 measurements | 3 | 0.928 | 0.800 | 0.800 | b |"
    assert lines[-1] == "1 of 3 tunes did not try today's prediction and are not in its line."
