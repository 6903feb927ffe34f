"""Configs that were found wrong on a problem are not answered there, however fast they are expected to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from space.config import Config
from space.devices import profile_named
from space.enumerate import enumerate_space
from space.family import config_named
from space.kinds.gemm import Gemm
from space.rank import rank
from tests.fleet import Fleet
from tests.support import DEVICE, FAMILY, PROVENANCE, keep_best, measured, study_key
from tuner.answering.answers import Answer, answer
from tuner.errors import StoreError
from tuner.evidence import revocations
from tuner.evidence.quick_bests import QuickBests
from tuner.evidence.records import Outcome
from tuner.evidence.store import Store
from tuner.prediction.files import model_for
from workers.measurement import Policy

PROBLEM, NEAR = Gemm.parse("512x4096x4096"), Gemm.parse("512x4096x5120")
ASKED: dict[str, int | str] = {"m": 512, "n": 4096, "k": 4096, "device": DEVICE}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


def tell(store: Store, *configs: Config, problem: Gemm = PROBLEM, outcome: Outcome = Outcome.WRONG_RESULT) -> None:
    study = store.begin_study(study_key(problem), fresh=True)
    store.record_many(study.id, [measured(each, problem=problem, outcome=outcome) for each in configs], PROVENANCE)


def asked(store: Store, learned: bool = True, policy: Policy | None = None) -> Answer:
    return answer(store, PROBLEM, DEVICE, policy, model_for(DEVICE, None).model if learned else None)


@pytest.mark.parametrize("learned", [True, False])
def test_the_next_one_is_predicted_in_place_of_what_was_wrong(store: Store, learned: bool) -> None:
    seen = list[Config]()
    for _ in range(3):
        found = asked(store, learned)
        assert found.source == "predicted"
        assert found.config is not None
        assert found.config not in seen
        assert ("of those that were not wrong here" in found.why) is bool(seen)
        seen.append(found.config)
        tell(store, found.config)


@pytest.mark.parametrize("outcome", [Outcome.CORRECT, Outcome.TIMEOUT])
def test_nothing_else_keeps_a_config_from_being_predicted(store: Store, outcome: Outcome) -> None:
    first = asked(store)
    assert first.config is not None
    tell(store, first.config, outcome=outcome)
    tell(store, first.config, problem=NEAR)
    assert asked(store) == first


def test_a_neighbours_config_is_not_taken_to_where_it_was_wrong(store: Store) -> None:
    keep_best(store, NEAR)
    near = asked(store, learned=False)
    assert near.source == "nearest"
    assert near.config is not None
    tell(store, near.config)
    assert asked(store, learned=False).config not in (None, near.config)


def test_an_early_launch_that_was_wrong_is_not_put_on(store: Store) -> None:
    early = answer(store, PROBLEM, DEVICE, Policy.CHAIN_PDL).config
    assert early is not None
    assert early["pdl"] == 1
    tell(store, early)
    assert answer(store, PROBLEM, DEVICE, Policy.CHAIN_PDL).config == early.changed({"pdl": 0})


class AllWrong(frozenset[str]):
    def __contains__(self, config: object) -> bool:
        return True


@pytest.mark.parametrize("learned", [True, False])
def test_where_every_config_was_wrong_there_is_none(
    store: Store, learned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_best(store, NEAR)
    monkeypatch.setattr(store, "wrong", lambda problem, device: AllWrong(["sm90_wgmma:"]))
    few = rank(enumerate_space(FAMILY, PROBLEM, profile_named(DEVICE)), profile_named(DEVICE), within=1.0)
    monkeypatch.setattr("tuner.answering.answers.rank", lambda space, profile: few)
    found = asked(store, learned)
    assert (found.source, found.config) == ("none", None)
    assert found.why == f"every sm90_wgmma config that is legal for {PROBLEM.title} was found wrong"


def test_what_is_revoked_is_predicted_again(store: Store) -> None:
    hand, first = Fleet(store).hand(), asked(store).config
    assert first is not None
    hand._fleet.campaign([PROBLEM])
    task = hand.claimed()
    hand.begin(task)
    hand.report(task, [measured(first, problem=PROBLEM, outcome=Outcome.WRONG_RESULT)])
    assert asked(store).config != first
    revocations.revoke(store, worker="worker-0")
    assert asked(store).config == first


def test_a_service_takes_back_what_it_predicted_and_answers_without_its_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(store)
    with TestClient(app) as http:

        def key() -> str:
            said = http.get("/v1/best", params=ASKED).json()
            assert said["source"] == "predicted"
            return str(said["config"]["key"])

        def rungs() -> list[str]:
            said = http.get("/v1/ladder", params={"n": 4096, "k": 4096, "ms": "256,512", "device": DEVICE}).json()
            return [rung["config"]["key"] for rung in said["rungs"]]

        first, (below, at) = key(), rungs()
        assert at == first
        tell(store, config_named(first))
        app.state.follower.poll()
        second = key()
        assert second != first
        assert rungs() == [below, second]
        batch = {"problems": [{"m": 512, "n": 4096, "k": 4096}], "device": DEVICE}
        assert http.post("/v1/best:batch", json=batch).json()["items"][0]["config"]["key"] == second
        assert http.get("/v1/best", params=ASKED | {"policy": "burst"}).json()["config"]["key"] == second
        tell(store, config_named(second), problem=NEAR)
        app.state.follower.poll()
        monkeypatch.setattr(Store, "wrong", Mock(side_effect=StoreError("gone")))
        assert key() == second
        assert http.get("/v1/best", params=ASKED | {"k": 4160}).json()["source"] == "predicted"


def test_the_quick_reader_reads_the_same(store: Store, url: str) -> None:
    tell(store, FAMILY.config({}), FAMILY.config({"stages": 2}))
    tell(store, FAMILY.config({"stages": 3}), problem=NEAR)
    with QuickBests.open(url) or pytest.fail("not opened") as quick:
        for problem in (PROBLEM, NEAR, Gemm.parse("1x1x1")):
            assert quick.wrong(problem, DEVICE) == store.wrong(problem, DEVICE)
        assert len(quick.wrong(PROBLEM, DEVICE)) == 2
        assert not quick.wrong(PROBLEM, "NVIDIA L40S")
