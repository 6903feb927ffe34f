"""Concurrent heartbeats: each gets its own worker's orders."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from sqlalchemy import text

from api.app import create_app
from benchmarks.postgres import Postgres
from space.kind import problem_from_key
from tests.fleet import PROBLEMS, Fleet, eventually
from tests.integration.api.asking import serving
from tests.support import measured
from tuner.errors import UnknownWorker, WorkerGone
from tuner.evidence import changes
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import HeartbeatReply


def test_each_worker_gets_its_own_answer(fleet: Fleet) -> None:
    wanted, dropped = fleet.campaign(PROBLEMS[:1]), fleet.campaign(PROBLEMS[1:2])
    hands = [fleet.hand(number) for number in range(5)]
    tasks = [hands[0].claimed(), hands[1].claimed()]
    fleet.campaigns.pause(wanted.id)
    fleet.campaigns.cancel(dropped.id)
    fleet.workers.drain(hands[2].id)
    fleet.workers.leave(hands[3].id)
    held = [task.round_id for task in tasks]
    answers = fleet.workers.beat_all([
        (hands[4].id, None, None), (hands[0].id, held[0], None), (hands[1].id, held[1], None),
        (hands[2].id, None, None), (hands[3].id, None, None),
        # A worker that does not exist, and another token's.
        (hands[4].id + 1, None, None), (hands[4].id, None, 7),
    ])  # fmt: skip
    go_on, stop, drain = HeartbeatReply(), HeartbeatReply(stop=True), HeartbeatReply(drain=True)
    assert answers[:4] == [go_on, go_on, stop, drain]
    assert [type(answer) for answer in answers[4:]] == [WorkerGone, UnknownWorker, UnknownWorker]
    assert fleet.workers.beat_all([(hands[4].id, held[0], None)]) == [stop]
    assert fleet.workers.beat_all([]) == []


def test_a_beat_is_noted(fleet: Fleet) -> None:
    hand = fleet.hand()
    fleet.pass_time(1e6)
    before = fleet.workers.page()[0].beat_at
    fleet.workers.beat(hand.id)
    assert fleet.workers.page()[0].beat_at > before


def test_a_lost_worker_was_seen_when_it_was_last_heard(fleet: Fleet) -> None:
    hand = fleet.hand()
    fleet.pass_time(100 * 86_400)
    fleet.workers.beat(hand.id)
    heard = fleet.workers.page()[0].beat_at
    fleet.fall_silent()
    assert fleet.sweeper.sweep()["workers lost"] == 1
    (lost,) = fleet.workers.page(gone=True)
    assert (heard - lost.beat_at).total_seconds() == pytest.approx(fleet.timing.silence_seconds + 1)


def test_beats_and_claims_go_on_while_a_report_waits_for_its_turn(postgres: Postgres) -> None:
    # Reports insert their measurements one after the other, and lock their worker's row long before.
    with Store.open(postgres.database()) as store, ThreadPoolExecutor(1) as pool:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:2])
        hands = [fleet.hand(number) for number in range(2)]
        task = hands[0].claimed()
        problem, (config, *_) = problem_from_key(task.problem_key), hands[0].begin(task).propose()
        with store.transaction(writes=True) as session:
            changes.count(session, "measurement")
            report = pool.submit(hands[0].report, task, [measured(config, 20.0, problem)])
            waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            eventually(lambda: session.scalar(waiting) == 1)
            beats, before = [(hands[0].id, task.round_id, None), (hands[1].id, None, None)], fleet.workers.page()
            assert fleet.workers.beat_all(beats) == [HeartbeatReply(False, False), HeartbeatReply(False, False)]
            assert all(now.beat_at > then.beat_at for now, then in zip(fleet.workers.page(), before, strict=True))
            assert hands[1].claim() is not None
            assert not report.done()
        report.result()
        assert store.counts()["measurement"] == 1


def test_many_at_once_over_http(postgres: Postgres) -> None:
    with Store.open(postgres.database()) as store:
        fleet = Fleet(store)
        workers = [fleet.hand(number).id for number in range(40)]
        fleet.workers.leave(workers[-1])
        with serving(create_app(store)) as url, httpx2.Client(base_url=url) as http:

            def beat(worker: int) -> int:
                return http.post(f"/v1/workers/{worker}:heartbeat", json={"round_id": None}).status_code

            with ThreadPoolExecutor(20) as pool:
                assert list(pool.map(beat, 3 * workers)) == 3 * [*[200] * 39, 409]
