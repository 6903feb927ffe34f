"""The funnel: its steps are true where nothing is served, too."""

from __future__ import annotations

from dataclasses import replace

from space.devices import profile_named
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.evidence.store import Store
from tuner.views.funnel import funnel
from workers.measurement import Outcome


def test_candidates_that_all_failed_were_measured(database_url: str) -> None:
    with Store.open(database_url, create=True) as store:
        device = profile_named(DEVICE)
        assert {step.count for step in funnel(store, PROBLEM, device, ()).steps} == {0}
        study = store.begin_study(study_key())
        for stages in (2, 3):
            one = measured(FAMILY.config({"stages": stages}), outcome=Outcome.LAUNCH)
            store.record(study.id, replace(one, samples_us=(), detail="launch failed"), PROVENANCE)
        found = funnel(store, PROBLEM, device, ())
        counts = {step.name: step.count for step in found.steps}
        assert counts == {"measured": 2, "correct": 0, "finals": 0, "served": 0}
        assert found.study_id is None
