"""A best never gets worse silently: what may replace it, what the history says, and the way back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import httpx2
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.access import AccessPolicy
from api.app import create_app
from gemmtune.command import app as command
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured, study_key
from tuner.errors import NothingMeasured, StoreError
from tuner.evidence import best_changes, tokens
from tuner.evidence.models import ProvenanceRow
from tuner.evidence.records import Best, Policy, Provenance
from tuner.evidence.store import Store

OTHER_KERNELS = replace(PROVENANCE, kernel_source_digest="e" * 64)
OTHER_DRIVER = replace(PROVENANCE, driver="590.1")


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def taken(store: Store, us: float, by: Provenance = PROVENANCE, policy: Policy = Policy.BURST) -> Best:
    """The outcome of a study whose winner takes `us`."""
    study = store.begin_study(study_key(), fresh=True)
    stored = store.record(study.id, measured(FAMILY.config({}), us, stage="final", policy=policy), by)
    return Best(PROBLEM, DEVICE, "cuda", stored, None, None, None, round(us), {})


def offer(store: Store, us: float, by: Provenance = PROVENANCE, policy: Policy = Policy.BURST) -> list[str]:
    return store.set_bests([taken(store, us, by, policy)])


def served_us(store: Store) -> float:
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    return best.median_us


def test_a_slower_one_of_the_same_program_does_not_replace_a_faster_one(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    assert offer(store, 10.0) == []
    (remark,) = offer(store, 12.0)
    assert f"{remark} (measured by this process)" in caplog.messages
    assert "is not best under burst: slower: 12 µs instead of 10 µs, by the same program" in remark
    assert served_us(store) == 10.0
    assert offer(store, 9.0) == []
    assert served_us(store) == 9.0
    changes = store.best_changes(PROBLEM, DEVICE)
    assert [(change.median_us, change.previous_median_us) for change in changes] == [(10.0, None), (9.0, 10.0)]
    assert changes[-1].reason == "faster: 9 µs instead of 10 µs"


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (OTHER_KERNELS, f"kernel source {PROVENANCE.kernel_source_digest[:12]} is now eeeeeeeeeeee"),
        (OTHER_DRIVER, "driver 580.1 is now 590.1"),
        (replace(PROVENANCE, cublaslt="130200"), "cuBLASLt 130100 is now 130200"),
    ],
)
def test_a_slower_one_replaces_a_program_that_is_gone_and_says_why(store: Store, by: Provenance, said: str) -> None:
    offer(store, 10.0)
    assert offer(store, 12.0, by) == []
    assert served_us(store) == 12.0
    reason = store.best_changes(PROBLEM, DEVICE)[-1].reason
    assert reason.startswith("slower: 12 µs instead of 10 µs, but the old program is gone")
    assert said in reason


def test_workers_of_two_versions_do_not_overwrite_each_other(store: Store) -> None:
    offer(store, 10.0)
    offer(store, 12.0, OTHER_KERNELS)
    for us in (11.0, 13.0):
        (remark,) = offer(store, us)
        assert "replaced by" in remark
    assert served_us(store) == 12.0


def test_a_driver_that_was_seen_before_only_returns_with_a_faster_one(store: Store) -> None:
    offer(store, 10.0)
    offer(store, 12.0, OTHER_DRIVER)
    assert offer(store, 13.0) != []
    assert offer(store, 11.0) == []
    assert served_us(store) == 11.0


def test_policies_are_never_compared(store: Store) -> None:
    offer(store, 10.0, policy=Policy.BURST)
    assert offer(store, 20.0, policy=Policy.CHAIN) == []
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    # The verdict on a short product.
    assert (best.policy, best.median_us) == (Policy.CHAIN, 20.0)
    assert offer(store, 30.0, policy=Policy.BURST) != []
    assert served_us(store) == 20.0


def test_what_is_served_is_of_the_newest_program(store: Store) -> None:
    offer(store, 20.0, policy=Policy.CHAIN)
    other = store.begin_study(study_key(Gemm.of(8, 64, 64)))
    elsewhere = store.record(other.id, measured(FAMILY.config({}), 1.0, stage="final"), PROVENANCE)
    store.set_bests([Best(Gemm.of(8, 64, 64), DEVICE, "cuda", elsewhere, None, None, None, 1, {})])
    # A chain's verdict comes first, but of kernels that are no more.
    offer(store, 10.0, OTHER_KERNELS, Policy.BURST)
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    assert (best.policy, best.median_us) == (Policy.BURST, 10.0)
    offer(store, 30.0, OTHER_KERNELS, Policy.CHAIN)
    assert served_us(store) == 30.0
    assert sorted(each.problem.m for each in store.bests(DEVICE) if each.served) == [8, PROBLEM.m]


def test_the_policy_that_decides_stays_served_where_an_older_program_only_wins_under_others(store: Store) -> None:
    def tuned(chain_us: float, early_us: float, by: Provenance) -> list[str]:
        study = store.begin_study(study_key(), fresh=True)
        finals = [
            measured(FAMILY.config({"pdl": int(policy is Policy.CHAIN_PDL)}), us, stage="final", policy=policy)
            for policy, us in ((Policy.CHAIN, chain_us), (Policy.CHAIN_PDL, early_us))
        ]
        kept = store.record_many(study.id, finals, by)
        return store.set_bests([Best(PROBLEM, DEVICE, "cuda", one, None, None, None, 1, {}) for one in kept])

    # Two nodes whose drivers differ: the first one's noise is worse under chain, and better among early neighbours.
    assert tuned(10.0, 9.0, PROVENANCE) == tuned(11.0, 10.0, OTHER_DRIVER) == []
    (remark,) = tuned(11.5, 9.5, PROVENANCE)
    assert "is not best under chain: slower" in remark
    best, early = store.best(PROBLEM, DEVICE), store.best(PROBLEM, DEVICE, Policy.CHAIN_PDL)
    assert best is not None
    assert early is not None
    assert (best.policy, best.median_us, best.config["pdl"]) == (Policy.CHAIN, 11.0, 0)
    assert (early.median_us, early.served) == (9.5, False)


@pytest.mark.parametrize("by", [PROVENANCE, OTHER_KERNELS])
def test_times_that_no_program_sees_take_no_place_of_those_that_decide(store: Store, by: Provenance) -> None:
    offer(store, 20.0, policy=Policy.ROUNDS)
    assert served_us(store) == 20.0
    offer(store, 22.0, policy=Policy.CHAIN)
    (remark,) = offer(store, 10.0, by, Policy.ROUNDS)
    assert remark.endswith("is best under rounds, and not served: chain decides, under which another one stands")
    assert served_us(store) == 22.0
    assert [each.median_us for each in store.bests_by_policy(DEVICE)] == [22.0, 10.0]


@pytest.mark.parametrize("newer", [True, False])
def test_a_provenance_of_another_version_stops_no_later_best(store: Store, newer: bool) -> None:
    with store.transaction(writes=True) as session:
        content = asdict(PROVENANCE) | {"vbios": "96"} if newer else {}
        session.add(ProvenanceRow(digest=PROVENANCE.digest, content=content))
    offer(store, 20.0, policy=Policy.CHAIN)
    offer(store, 10.0)
    # Judging reads the past of its policy, and serving every policy.
    assert offer(store, 12.0, OTHER_KERNELS) == []
    assert served_us(store) == 12.0
    # What was replaced is recognised where its program can be read.
    remarks = offer(store, 11.0)
    assert ("replaced by" in "".join(remarks)) == newer


def test_a_change_is_rolled_back_and_what_it_set_does_not_come_back(store: Store) -> None:
    offer(store, 10.0)
    forged = taken(store, 5.0)
    store.set_bests([forged])
    change = store.best_changes(PROBLEM, DEVICE)[-1]
    version = store.changed()["best"]
    store.roll_back(PROBLEM, DEVICE, change.id)
    best = store.best(PROBLEM, DEVICE)
    assert best is not None
    assert (best.median_us, best.tried, best.served) == (10.0, 10, True)
    assert [found.median_us for _, found in store.bests_after(version, 10) if isinstance(found, Best)] == [10.0]
    assert "was best before and was replaced" in store.set_bests([forged])[0]
    last = store.best_changes(PROBLEM, DEVICE)[-1]
    assert (last.reason, last.previous_median_us) == (f"change {change.id} was rolled back", 5.0)
    assert offer(store, 9.5) == []


def test_there_is_no_way_back_from_the_first_and_to_what_never_was(store: Store) -> None:
    offer(store, 10.0)
    (first,) = store.best_changes(PROBLEM, DEVICE)
    with pytest.raises(NothingMeasured, match="nothing was best before it"):
        store.roll_back(PROBLEM, DEVICE, first.id)
    listing = f"gemmtune best {PROBLEM.shape} --device 'NVIDIA H200' --history"
    with pytest.raises(NothingMeasured, match=f"has no change 99: `{listing}`"):
        store.roll_back(PROBLEM, DEVICE, 99)


def test_what_rules_forbid_by_now_does_not_come_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for us in (10.0, 9.0):
        offer(store, us)
    change = store.best_changes(PROBLEM, DEVICE)[-1].id
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(best_changes, "forbidden", lambda *of: asked.append(of) or "smem.capacity (245,760 B > …)")
    with pytest.raises(NothingMeasured, match=r"can't be served: a rule forbids its config by now, smem\.capacity"):
        store.roll_back(PROBLEM, DEVICE, change)
    assert (asked, served_us(store)) == ([(PROBLEM, FAMILY.config({}), DEVICE)], 9.0)


def test_what_was_rolled_back_is_not_rolled_back_again(store: Store) -> None:
    for us in (10.0, 9.0):
        offer(store, us)
    change = store.best_changes(PROBLEM, DEVICE)[-1].id
    store.roll_back(PROBLEM, DEVICE, change)
    history = store.best_changes(PROBLEM, DEVICE)
    with pytest.raises(NothingMeasured, match="is best already"):
        store.roll_back(PROBLEM, DEVICE, change)
    assert store.best_changes(PROBLEM, DEVICE) == history


def test_the_history_is_asked_over_http_page_by_page(store: Store) -> None:
    for us in (10.0, 9.0, 8.0):
        offer(store, us)
    app = create_app(store)
    app.state.follower.poll()
    http = TestClient(app)
    asked: dict[str, str] = {"m": "256", "n": "256", "k": "256", "limit": "2"}
    first = http.get("/v1/best/history", params=asked).json()
    rest = http.get("/v1/best/history", params=asked | {"cursor": first["next"]}).json()
    assert [each["median_us"] for each in (*first["items"], *rest["items"])] == [10.0, 9.0, 8.0]
    assert rest["items"][0]["previous_id"] == first["items"][1]["measurement_id"]
    assert rest["next"] is None


def test_the_history_of_an_unknown_device_is_an_error_that_names_the_nearest(store: Store) -> None:
    http = TestClient(create_app(store))
    asked = {"m": "256", "n": "256", "k": "256"}
    found = http.get("/v1/best/history", params=asked | {"device": "h1000"})
    assert (found.status_code, "the nearest known ones are NVIDIA H200" in found.json()["detail"]) == (422, True)
    assert http.get("/v1/best/history", params=asked | {"device": "H100 PCIe"}).json()["items"] == []


def test_an_administrator_rolls_back_over_http_and_no_other_scope_may(store: Store) -> None:
    for us in (10.0, 9.0):
        offer(store, us)
    change = store.best_changes(PROBLEM, DEVICE)[-1].id
    secrets = {scope: tokens.make(store, scope, [scope])[1] for scope in ("read", "submit", "work", "admin")}
    app = create_app(store, AccessPolicy(tokens=True))
    http = TestClient(app)

    def undo(scope: str, number: int = change) -> httpx2.Response:
        body = {"problem": {"m": 256, "n": 256, "k": 256}, "device": DEVICE, "change": number}
        return http.post("/v1/best:rollback", json=body, headers={"Authorization": f"Bearer {secrets[scope]}"})

    assert [undo(scope).status_code for scope in ("read", "submit", "work")] == [403] * 3
    assert served_us(store) == 9.0
    assert undo("admin", 99).status_code == 404
    made = undo("admin").json()
    assert (made["median_us"], made["reason"]) == (10.0, f"change {change} was rolled back")
    assert made["id"] == store.best_changes(PROBLEM, DEVICE)[-1].id
    app.state.follower.poll()
    asked = http.get("/v1/best", params={"m": 256, "n": 256, "k": 256},
                     headers={"Authorization": f"Bearer {secrets['read']}"})  # fmt: skip
    assert asked.json()["time_us"] == 10.0


def test_the_command_lists_the_history_and_undoes_a_change(store: Store, database_url: str) -> None:
    for us in (10.0, 9.0):
        offer(store, us)
    change = store.best_changes(PROBLEM, DEVICE)[-1].id

    def run(*words: str) -> list[dict[str, object]]:
        said = CliRunner().invoke(command, ["best", "256x256x256", *words, "--db", database_url, "--json"])
        assert said.exit_code == 0, said.output
        found: list[dict[str, object]] = json.loads(said.stdout)["changes"]
        return found

    assert [each["median_us"] for each in run("--history")] == [10.0, 9.0]
    assert [each["median_us"] for each in run("--rollback", str(change))] == [10.0, 9.0, 10.0]
    assert served_us(store) == 10.0


def test_the_database_keeps_the_history(store: Store) -> None:
    offer(store, 10.0)
    for change in ("UPDATE best_change SET reason = ''", "DELETE FROM best_change"):
        with pytest.raises(StoreError), store.transaction(writes=True) as session:
            session.execute(sa.text(change))
