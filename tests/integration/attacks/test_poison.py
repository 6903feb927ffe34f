"""Hostile text in every call of the store and of campaigns: SQLite and PostgreSQL store it or refuse it alike, and
nothing that can't be stored is sent again."""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import count
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from api.app import create_app
from benchmarks.postgres import Postgres
from space.errors import SpaceError
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from tests.fleet import BY_HAND, Fleet, Hand, facts, provenance
from tests.support import CLOCKS, DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.errors import ResultRefused, StoreError, TunerError, UnstorableValue
from tuner.evidence import revocations, tokens
from tuner.evidence.campaign_models import RoundRow
from tuner.evidence.store import Store
from tuner.fleet import builds
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.agent.round_runner import RetryWhileHeld
from tuner.fleet.builds import Offer
from tuner.fleet.campaigns import estimate, results
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignRequest, RoundReport, RoundTask
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers
from workers.build import Build
from workers.measurement import DeviceFacts, Measurement, Outcome, Provenance, Verification

LONG = "NVIDIA H100 80GB HBM3 MIG 1g.10gb of a partition with a long name"
#: Text that one of the databases, the wire or a log can't take; and text that all can.
POISON = {"NUL": "a\0b", "half a pair": "a\ud800b", "100 kB": "x" * 100_000}
FINE = {
    "four bytes": "𝔾𝔼𝕄𝕄 🚀", "quotes": "'; DROP TABLE best; --", "lines": "a\nb\tc", "bidi": "\u202eabc", "empty": "",
}  # fmt: skip


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


@pytest.fixture
def fleet(store: Store) -> Fleet:
    return Fleet(store, BY_HAND)


#: Every public call of these takes hostile text below, or is named in `WITHOUT_TEXT`.
OWNERS = {
    "store": Store, "campaigns": Campaigns, "workers": Workers, "rounds": Rounds, "tokens": tokens,
    "revocations": revocations, "builds": builds, "results": results, "estimate": estimate,
}  # fmt: skip
WITHOUT_TEXT = {
    "store.open", "store.close", "store.embedded", "store.reopen_study", "store.measurements_of", "store.final_series",
    "store.finals_beside", "store.refuted_in",
    "store.bests_after", "store.best_index", "store.devices", "store.counts", "store.revision", "store.changed",
    "store.check_writable", "store.backup", "store.unnamed", "store.note", "store.transaction", "campaigns.get",
    "campaigns.page", "campaigns.pause", "campaigns.resume", "campaigns.cancel", "workers.beat", "workers.beat_all",
    "workers.drain", "workers.leave", "workers.page", "workers.seen_since", "workers.check_facts", "rounds.claim",
    "tokens.tokens",
    "tokens.digest_of", "revocations.newest", "revocations.settle", "revocations.release", "builds.check",
    "builds.check_cubin", "builds.verify", "results.progress", "results.newest", "results.summary", "results.problems",
}  # fmt: skip


class Asked:
    """One store, and what its calls need: a round that has begun, numbers that nobody has used."""

    def __init__(self, store: Store) -> None:
        self.store, self.fleet = store, Fleet(store, BY_HAND)
        self._numbers = count(1)
        self.study = store.begin_study(study_key()).id
        self.fleet.campaign([Gemm.parse(f"{64 * extent}x256x256") for extent in range(1, 400)])

    def kept(self) -> tuple[object, ...]:
        """How many rows there are of what only an accepted call adds."""
        tables = ("measurement", "best", "campaign", "token", "build", "revocation")
        counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in tables)
        with self.store.transaction() as session:
            return tuple(session.execute(text(f"SELECT {counts}")).one())

    def facts(self, **change: str) -> DeviceFacts:
        return replace(facts(next(self._numbers)), **change)  # type: ignore[arg-type]

    def failed(self, **change: Any) -> Measurement:  # noqa: ANN401
        # One of a study that nobody else continues.
        self.study = self.store.begin_study(study_key(), fresh=True).id
        return replace(measured(FAMILY.config({}), outcome=Outcome.TIMEOUT), **change)

    def record(self, by: Provenance = PROVENANCE, **change: Any) -> Any:  # noqa: ANN401
        failed = self.failed(**change)
        self.store.record(self.study, failed, by)
        return self.store.measurements_of(self.study)[-1]

    def round(self) -> tuple[Hand, RoundTask]:
        hand = self.fleet.hand(10_000 + next(self._numbers))
        return hand, hand.claimed()

    def begun(self) -> tuple[Hand, RoundTask]:
        hand, task = self.round()
        self.fleet.rounds.begin(task.round_id, task.lease, provenance(hand.number))
        return hand, task

    def report(self, **said: Any) -> str:  # noqa: ANN401
        hand, task = self.begun()
        hand.report(task, **said)
        with self.store.transaction() as session:
            row = session.get_one(RoundRow, task.round_id)
            return f"{row.status}: {row.reason}"

    def measurement_of_a_round(self, **change: Any) -> str:  # noqa: ANN401
        hand, task = self.begun()
        problem = problem_from_key(task.problem_key)
        failed = replace(measured(FAMILY.config({}), problem=problem, outcome=Outcome.TIMEOUT), **change)
        hand.report(task, [failed])
        (stored,) = self.store.page(problem=problem)
        return repr(stored.measurement)

    def offer(self, by: str = "node", **change: Any) -> str:  # noqa: ANN401
        made = replace(Build("0" * 64, b"x", 1, (), "13.0", 0.1), **change)
        return builds.offer(self.store, Offer(PROBLEM, FAMILY.config({}).key, "sm_90a", made), by)[0].offered_by


CALLS: dict[str, Callable[[Asked, str], object]] = {
    "store.begin_study device": lambda a, s: a.store.begin_study(replace(study_key(), device=s)).key.device,
    "store.begin_study kind": lambda a, s: a.store.begin_study(replace(study_key(), device_kind=s)).key.device_kind,
    "store.begin_study family": lambda a, s: a.store.begin_study(replace(study_key(), family=s)).key.family,
    "store.begin_study source": lambda a, s: a.store.begin_study(replace(study_key(), source=s)).key.source,
    "store.finish_study": lambda a, s: [a.store.finish_study(a.study, s), a.store.begin_study(study_key())],
    "store.record detail": lambda a, s: a.record(detail=s).measurement.detail,
    "store.record note": lambda a, s: a.record(note=s).measurement.note,
    "store.record build": lambda a, s: a.record(build_digest=s).measurement.build_digest,
    "store.record provenance": lambda a, s: a.record(replace(PROVENANCE, driver=s)).provenance.driver,
    "store.record device": lambda a, s: a.record(replace(PROVENANCE, device=s)).provenance.device,
    "store.record_many": lambda a, s: len(a.store.record_many(a.study, [a.failed(detail=s)], PROVENANCE)),
    "store.page device": lambda a, s: a.store.page(device=s),
    "store.page outcome": lambda a, s: a.store.page(outcome=s),
    "store.every": lambda a, s: list(a.store.every(s)),
    "store.set_bests": lambda a, s: keep_best(a.store, device=s).device,
    "store.best_changes": lambda a, s: a.store.best_changes(PROBLEM, s),
    "store.roll_back": lambda a, s: a.store.roll_back(PROBLEM, s, 1),
    "store.best": lambda a, s: a.store.best(PROBLEM, s),
    "store.bests": lambda a, s: a.store.bests(s),
    "store.bests_by_policy": lambda a, s: a.store.bests_by_policy(s),
    "store.neighbours": lambda a, s: a.store.neighbours(PROBLEM, s),
    "store.wrong": lambda a, s: a.store.wrong(PROBLEM, s),
    "store.winners_near": lambda a, s: a.store.winners_near(PROBLEM, s),
    "store.served_of device": lambda a, s: a.store.served_of(s, [PROBLEM.key]),
    "store.served_of keys": lambda a, s: a.store.served_of(DEVICE, [s, PROBLEM.key]),
    "campaigns.create name": lambda a, s: a.fleet.campaigns.create(request(s))[0].name,
    "campaigns.create device": lambda a, s: a.fleet.campaigns.create(request("n", s))[0].name,
    "campaigns.create key": lambda a, s: a.fleet.campaigns.create(request("n"), s)[0].name,
    "campaigns.run name": lambda a, s: a.fleet.campaigns.run(request(s)).name,
    "campaigns.run device": lambda a, s: a.fleet.campaigns.run(request("n", s)).name,
    "workers.register name": lambda a, s: a.fleet.workers.register(s, a.facts()).heartbeat_seconds,
    "workers.register device": lambda a, s: a.fleet.workers.register("w", a.facts(name=s)).heartbeat_seconds,
    "workers.register uuid": lambda a, s: a.fleet.workers.register("w", a.facts(uuid=s)).heartbeat_seconds,
    "workers.register driver": lambda a, s: a.fleet.workers.register("w", a.facts(driver=s)).heartbeat_seconds,
    "workers.register arch": lambda a, s: a.fleet.workers.register("w", a.facts(arch=s)).heartbeat_seconds,
    "rounds.begin lease": lambda a, s: a.fleet.rounds.begin(a.round()[1].round_id, s, provenance()),
    "rounds.begin provenance": lambda a, s: begin(a, driver=s),
    "rounds.begin digest": lambda a, s: begin(a, kernel_source_digest=s),
    "rounds.begin gemmtune": lambda a, s: begin(a, gemmtune=s),
    "rounds.announce lease": lambda a, s: a.fleet.rounds.announce(1, s, "screen", [FAMILY.config({}).key]),
    "rounds.announce config": lambda a, s: announce(a, s),
    "rounds.finish lease": lambda a, s: a.fleet.rounds.finish(1, s, RoundReport()),
    "rounds.finish ended": lambda a, s: a.report(ended=s),
    "rounds.finish failure": lambda a, s: a.report(failure=s, hopeless=True),
    "rounds.finish detail": lambda a, s: a.measurement_of_a_round(detail=s),
    "rounds.finish note": lambda a, s: a.measurement_of_a_round(note=s),
    "rounds.finish build": lambda a, s: a.measurement_of_a_round(build_digest=s),
    "rounds.finish problem": lambda a, s: a.measurement_of_a_round(problem_key=s),
    "rounds.finish reference": lambda a, s: a.measurement_of_a_round(verification=Verification(1, 0, 0.5, s)),
    "rounds.finish clocks": lambda a, s: a.measurement_of_a_round(clocks=replace(CLOCKS, throttle_reasons=(s,))),
    "tokens.make name": lambda a, s: tokens.make(a.store, s, ["read"])[0].name,
    "tokens.make scope": lambda a, s: tokens.make(a.store, "t", [s])[0].name,
    "tokens.revoke": lambda a, s: tokens.revoke(a.store, s).name,
    "revocations.revoke worker": lambda a, s: revocations.revoke(a.store, worker=s).measurements,
    "revocations.revoke token": lambda a, s: revocations.revoke(a.store, token=s).measurements,
    "revocations.revoke reason": lambda a, s: revocations.revoke(a.store, worker="known", reason=s).reason,
    "revocations.revoke by": lambda a, s: revocations.revoke(a.store, worker="known", made_by=s).made_by,
    "builds.offer by": lambda a, s: a.offer(by=s),
    "builds.offer digest": lambda a, s: a.offer(digest=s),
    "builds.offer nvrtc": lambda a, s: a.offer(nvrtc=s),
    "builds.offer warnings": lambda a, s: a.offer(warnings=(s,)),
    "builds.shared": lambda a, s: builds.shared(a.store, s),
    "builds.remove": lambda a, s: builds.remove(a.store, s),
    "builds.page": lambda a, s: builds.page(a.store, 0, 10, s),
    "estimate.estimate": lambda a, s: estimate.estimate(a.store, request("n", s)).problems,
}


def request(name: str, device: str = DEVICE) -> CampaignRequest:
    return CampaignRequest(name, (PROBLEM,), ((device, "cuda"),))


def begin(asked: Asked, **change: str) -> object:
    hand, task = asked.round()
    told = replace(provenance(hand.number), **change)  # type: ignore[arg-type]
    return asked.fleet.rounds.begin(task.round_id, task.lease, told).finals_done


def announce(asked: Asked, config: str) -> None:
    _, task = asked.begun()
    asked.fleet.rounds.announce(task.round_id, task.lease, "screen", [config])


@pytest.fixture(scope="module")
def both(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Asked]]:
    folder = tmp_path_factory.mktemp("poison")
    with Store.open(f"sqlite:///{folder}/store.db") as light, Store.open(postgres_server.database()) as heavy:
        both = Asked(light), Asked(heavy)
        for asked in both:
            asked.fleet.workers.register("known", asked.facts())
        yield both


def outcome(asked: Asked, call: str, said: str) -> tuple[str, str]:
    """What a call gives or refuses, without the numbers of rows."""
    before = asked.kept()
    try:
        given = CALLS[call](asked, said)
    except (TunerError, SpaceError) as refusal:
        if isinstance(refusal, StoreError) and not isinstance(refusal, UnstorableValue):
            # As if the database were down: a worker would send the same again for ever.
            raise
        told = type(refusal).__name__, re.sub(r"\d+", "N", str(refusal))
    else:
        return "given", re.sub(r"\d+", "N", repr(given))
    assert asked.kept() == before
    return told


@pytest.mark.parametrize("call", CALLS)
def test_both_databases_store_it_or_refuse_it_alike(both: tuple[Asked, Asked], call: str) -> None:
    for name, said in (POISON | FINE).items():
        on_sqlite, on_postgresql = (outcome(asked, call, said) for asked in both)
        assert on_sqlite == on_postgresql, name
        if name in ("NUL", "half a pair") and on_sqlite[0] == "given":
            # A question with it finds nothing.
            assert on_sqlite[1] in ("[]", "None", "False", "()", "N"), name


def test_every_public_call_is_among_them() -> None:
    named = {call.partition(" ")[0] for call in CALLS}
    public = {
        f"{owner}.{name}" for owner, thing in OWNERS.items() for name, found in vars(thing).items()
        if not name.startswith("_") and _is_call_of(thing, found)
    }  # fmt: skip
    assert public - named == WITHOUT_TEXT & public
    assert named <= public


def _is_call_of(owner: object, found: object) -> bool:
    found = getattr(found, "__func__", found)
    if isinstance(found, property):
        return True
    module = owner.__name__ if inspect.ismodule(owner) else getattr(owner, "__module__", None)
    return inspect.isfunction(found) and found.__module__ == module


def test_text_that_every_database_stores_comes_back_as_it_was(both: tuple[Asked, Asked]) -> None:
    for said in FINE.values():
        for asked in both:
            assert CALLS["store.record detail"](asked, said) == said
            assert CALLS["store.record note"](asked, said) == said


def test_a_device_with_a_name_longer_than_a_channel_is_queued_and_tuned(fleet: Fleet) -> None:
    if not fleet.store.embedded:
        with fleet.store.transaction(writes=True) as session:
            queue = f"{LONG}/sm_90a/cuda"
            assert len(queue) > 63
            columns = "procrastinate_jobs (queue_name, task_name, queueing_lock)"
            session.execute(text(f"INSERT INTO {columns} VALUES (:queue, 'round', 'mig')"), {"queue": queue})
    fleet.workers.register("mig", replace(facts(), name=LONG))


def test_a_report_that_can_never_be_stored_is_refused_at_once_and_its_round_ends(fleet: Fleet) -> None:
    campaign, hand = fleet.campaign([PROBLEM]), fleet.hand()
    task = hand.claimed()
    hand.begin(task)
    local = LocalCoordinator(fleet.store, BY_HAND)
    poisoned = RoundReport(
        (replace(measured(FAMILY.config({}), outcome=Outcome.TIMEOUT), detail="a\0b"),), provenance(), 1.0
    )
    retry = RetryWhileHeld(threading.Event())
    with pytest.raises(ResultRefused, match="NUL"):
        retry(lambda: fleet.rounds.finish(task.round_id, task.lease, poisoned))
    retry(lambda: local.finish(task, RoundReport(busy_seconds=1.0, failure="the report was refused")))
    assert results.problems(fleet.store, campaign.id, 0, 1)[0].status in ("waiting", "parked")


def _report(lease: str, **change: Any) -> dict[str, Any]:  # noqa: ANN401
    failed: Measurement = measured(FAMILY.config({}), outcome=Outcome.TIMEOUT)
    entry = {"config": failed.config.key, "stage": "screen", "policy": failed.policy.value, "outcome": "timeout"}
    return {"lease": lease, "problem_key": PROBLEM.key, "measurements": [entry | change]}


@pytest.mark.parametrize("field", ["detail", "note", "build_digest", "config"])
@pytest.mark.parametrize("name", ["NUL", "half a pair"])
def test_the_edge_refuses_poison_by_the_field(store: Store, field: str, name: str) -> None:
    with TestClient(create_app(store), raise_server_exceptions=False) as http:
        body = json.dumps(_report("0" * 32, **{field: POISON[name]}))
        refused = http.post("/v1/rounds/1:finish", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["pointer"] == f"/measurements/0/{field}"
        for path, made in (
            ("/v1/workers", {"name": POISON[name], "facts": asdict(facts())}),
            ("/v1/workers", {"name": "w", "facts": asdict(facts()) | {"name": POISON[name]}}),
            ("/v1/campaigns", {"name": POISON[name], "problems": [{"m": 8, "n": 8, "k": 8}],
                               "devices": [{"name": DEVICE}]}),
        ):  # fmt: skip
            refused = http.post(path, content=json.dumps(made), headers={"Content-Type": "application/json"})
            assert refused.status_code == 422, refused.text
            assert refused.json()["errors"][0]["pointer"].endswith("name")
