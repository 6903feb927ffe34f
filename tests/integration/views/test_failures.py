"""The view of failures: what it counts is true even where it does not list everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fleet import PROBLEMS, Fleet
from tests.support import FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.evidence.campaign_models import CampaignProblemRow
from tuner.evidence.store import Store
from tuner.views import failures
from tuner.views.failures import FailureFilter
from workers.measurement import Outcome


def test_wrong_results_are_counted_whatever_is_listed(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(database_url, create=True) as store:
        study = store.begin_study(study_key())
        for stages, outcome in ((2, Outcome.WRONG_RESULT), (3, Outcome.LAUNCH), (4, Outcome.LAUNCH)):
            one = measured(FAMILY.config({"stages": stages}), outcome=outcome)
            store.record(study.id, replace(one, samples_us=(), detail=f"{outcome.value} failed"), PROVENANCE)
        monkeypatch.setattr(failures, "MOST_GROUPS", 1)
        found = failures.failures(store, FailureFilter())
        assert [group.outcome for group in found.groups] == ["launch"]
        assert found.wrong_results == 1
        assert failures.failures(store, FailureFilter(outcome="launch")).wrong_results == 1
        assert failures.failures(store, FailureFilter(family="cublaslt")).wrong_results == 0
        monkeypatch.setattr(failures, "MOST_READ", 1)
        found = failures.failures(store, FailureFilter())
        assert (found.read, found.total, found.wrong_results) == (1, 3, 1)


def test_the_command_that_explains_a_failure_names_its_card() -> None:
    config = FAMILY.config({"stages": 2})
    with Store.open("sqlite://", create=True) as store:
        for device, named in (("NVIDIA H100 80GB HBM3", " --device 'NVIDIA H100 80GB HBM3'"), ("An unknown card", "")):
            study = store.begin_study(replace(study_key(), device=device))
            store.record(study.id, replace(measured(config, outcome=Outcome.LAUNCH), detail=device), PROVENANCE)
            (group,) = failures.failures(store, FailureFilter(device=device)).groups
            assert group.example is not None
            assert group.example.explain == (
                f"gemmtune explain {PROBLEM.shape}{named} --family {config.family} --config {config.knobs_text}"
            )


def test_of_each_detail_no_more_is_read_than_its_message(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    details = {f"\n \t\r\n  error {place} of a kernel: {'x' * 300}\n{'y' * 3_000}" for place in range(3)}
    message_of, read = failures.message_of, list[str]()
    monkeypatch.setattr(failures, "message_of", lambda detail: read.append(detail) or message_of(detail))
    with Store.open(database_url, create=True) as store:
        study = store.begin_study(study_key())
        for stages, detail in enumerate(sorted(details), start=2):
            one = measured(FAMILY.config({"stages": stages}), outcome=Outcome.COMPILE)
            store.record(study.id, replace(one, detail=detail), PROVENANCE)
        (group,) = failures.failures(store, FailureFilter()).groups
    assert {message_of(detail) for detail in details} == {group.message}
    assert group.count == 3
    assert max(map(len, read)) <= 200


def test_suspects_are_of_the_family_that_is_asked(database_url: str) -> None:
    with Store.open(database_url, create=True) as store:
        Fleet(store).campaign(PROBLEMS[:2])
        keys = ["gemv:rows=1", FAMILY.config({"stages": 2}).key]
        with store.transaction(writes=True) as session:
            for item, key in zip(session.query(CampaignProblemRow), keys, strict=True):
                item.failing_config = key
        found = {family: failures.failures(store, FailureFilter(family=family)).suspects
                 for family in (None, "gemv", FAMILY.name, "mma_sync")}  # fmt: skip
    assert {family: {suspect.config for suspect in suspects} for family, suspects in found.items()} == {
        None: {*keys}, "gemv": {keys[0]}, FAMILY.name: {keys[1]}, "mma_sync": set(),
    }  # fmt: skip
