"""Guarantees that campaigns need from any queue, and limits of the engine that they do not rely on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.postgres import Postgres
from space.kinds.gemm import Gemm
from tests.fleet import PROBLEMS, QUEUE, Fleet
from tuner.evidence.campaign_models import RoundRow
from tuner.evidence.store import Store
from tuner.fleet.campaigns.reconcile import reconcile
from tuner.fleet.queue.choice import queue_of
from tuner.fleet.queue.on_postgresql import PostgresQueue
from tuner.fleet.queue.port import Queue


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


@pytest.fixture
def queue(store: Store) -> Queue:
    return queue_of(store)


def rounds_of(store: Store, count: int = 4) -> list[int]:
    """Queued rounds, made by a campaign."""
    Fleet(store).campaign([Gemm.parse(f"{64 * m}x256x256") for m in range(1, count + 1)])
    with store.transaction() as session:
        return list(session.scalars(sa.select(RoundRow.id).order_by(RoundRow.id)))


class TestEveryQueue:
    def test_sqlite_needs_no_engine_and_postgresql_has_one(self, store: Store) -> None:
        with store.transaction() as session:
            assert sa.inspect(session.connection()).has_table("procrastinate_jobs") is not store.embedded

    def test_higher_priorities_first_then_first_come(self, store: Store, queue: Queue) -> None:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:2])
        fleet.campaign(PROBLEMS[2:4], priority=7)
        taken = []
        with store.transaction(writes=True) as session:
            worker = queue.register(session)
            while job := queue.take(session, QUEUE, worker):
                taken.append(session.scalars(sa.select(RoundRow.campaign_problem_id).filter_by(job_id=job)).one())
                session.execute(sa.update(RoundRow).where(RoundRow.job_id == job).values(status="withdrawn"))
        assert taken == [3, 4, 1, 2]

    def test_a_transaction_that_fails_took_nothing(self, store: Store, queue: Queue) -> None:
        rounds_of(store)
        taken = []

        def take_and_fail() -> None:
            with store.transaction(writes=True) as session:
                taken.append(queue.take(session, QUEUE, queue.register(session)))
                raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                take_and_fail()
        assert taken[0] == taken[1] is not None

    def test_a_job_that_was_taken_can_not_be_withdrawn(self, store: Store, queue: Queue) -> None:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:2])
        fleet.hand().claimed()
        with store.transaction(writes=True) as session:
            jobs = {row.status: row.job_id for row in session.scalars(sa.select(RoundRow))}
            assert queue.withdraw(session, [jobs["queued"], jobs["running"]]) == [jobs["queued"]]

    def test_a_job_is_ended_twice_without_harm_and_retried_as_the_next_round(self, store: Store, queue: Queue) -> None:
        first, second = rounds_of(store, 2)
        with store.transaction(writes=True) as session:
            job = queue.take(session, QUEUE, queue.register(session))
            assert job
            session.execute(sa.update(RoundRow).where(RoundRow.id == first).values(status="withdrawn", job_id=None))
            session.execute(sa.update(RoundRow).where(RoundRow.id == second).values(priority=9))
            again = queue.retry(session, job, QUEUE, second, 9)
            session.execute(sa.update(RoundRow).where(RoundRow.id == second).values(job_id=again))
            assert queue.take(session, QUEUE, queue.register(session)) == again
            queue.end(session, again)
            queue.end(session, again)

    def test_other_queues_are_left_alone(self, store: Store, queue: Queue) -> None:
        rounds_of(store)
        with store.transaction(writes=True) as session:
            assert queue.take(session, "NVIDIA H200/sm_90a/recorded", queue.register(session)) is None

    def test_a_hundred_threads_never_share_a_job(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign([Gemm.parse(f"{64 * m}x256x256") for m in range(1, 61)])
        hands = [fleet.hand(number) for number in range(60)]
        tasks, lock = [], threading.Lock()

        def claim(number: int) -> None:
            task = hands[number].claimed()
            with lock:
                tasks.append(task.round_id)

        threads = [threading.Thread(target=claim, args=(number,)) for number in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(tasks)) == 60


class TestReconciler:
    """The queue is derived: whatever happens to it, it is rebuilt from the rounds."""

    @pytest.fixture
    def store(self, postgres: Postgres) -> Iterator[Store]:
        with Store.open(postgres.database()) as opened:
            yield opened

    def test_an_empty_queue_is_filled_again(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign()
        with store._engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM procrastinate_jobs"))
        assert fleet.hand().claim() is None
        assert reconcile(store, queue_of(store)) == {"rounds without a job withdrawn": 6}
        hand = fleet.hand(1)
        assert [hand.work(hand.claimed()) != [] for _ in range(6)] == [True] * 6
        assert reconcile(store, queue_of(store)) == {}

    def test_jobs_that_stand_for_nothing_are_ended(self, store: Store) -> None:
        rounds_of(store, 2)
        with store.transaction(writes=True) as session:
            queue_of(store).put(session, QUEUE, [(1, 50), (99_999, 60)])
        assert reconcile(store, queue_of(store)) == {"jobs ended": 2}

    def test_a_claim_clears_such_jobs_away_by_itself(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:1])
        with store.transaction(writes=True) as session:
            queue_of(store).put(session, QUEUE, [(99_999, 60), (1, 50)])
        assert fleet.hand().claimed().problem_key == PROBLEMS[0].key

    def test_a_job_that_its_taker_left_behind_is_put_again(self, store: Store) -> None:
        rounds_of(store, 1)
        queue = queue_of(store)
        with store.transaction(writes=True) as session:
            # The claim's round was never written, as after restoring an older backup or editing the tables by hand.
            assert queue.take(session, QUEUE, queue.register(session))
        assert reconcile(store, queue) == {"rounds without a job withdrawn": 1, "jobs ended": 1}
        assert Fleet(store).hand().claim() is not None

    def test_problems_follow_their_rounds(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:2])
        with store._engine.begin() as connection:
            connection.execute(sa.text("UPDATE round SET status = 'withdrawn' WHERE campaign_problem_id = 1"))
            connection.execute(sa.text("UPDATE campaign_problem SET status = 'waiting' WHERE id = 2"))
        assert reconcile(store, queue_of(store)) == {"jobs ended": 1, "problems opened or put back": 2}


class TestEdgesOfTheEngine:
    """Guarantees that the engine does not give. If one of these tests fails, the engine has changed."""

    @pytest.fixture
    def session(self, postgres: Postgres) -> Iterator[Session]:
        with Store.open(postgres.database()) as store, store.transaction(writes=True) as session:
            yield session

    def put(self, session: Session, lock: str | None = None, queueing_lock: str | None = None) -> int:
        statement = sa.text(
            "SELECT unnest(procrastinate_defer_jobs_v1(ARRAY[ROW('q', 'round', 0, CAST(:lock AS text), "
            "CAST(:queueing_lock AS text), '{}', NULL)::procrastinate_job_to_defer_v1]))"
        )
        return int(session.scalars(statement, {"lock": lock, "queueing_lock": queueing_lock}).one())

    def take(self, session: Session) -> int | None:
        queue = PostgresQueue()
        return queue.take(session, "q", queue.register(session))

    def test_a_queueing_lock_covers_waiting_jobs_only(self, session: Session) -> None:
        self.put(session, queueing_lock="problem-1")
        self.take(session)
        # The first one runs, and a second one is accepted.
        self.put(session, queueing_lock="problem-1")

    def test_a_lock_covers_running_jobs_only(self, session: Session) -> None:
        first = self.put(session, lock="problem-1")
        # A second one waits beside the first, and takes a place in the window.
        self.put(session, lock="problem-1")
        assert self.take(session) == first
        assert self.take(session) is None

    def test_retrying_a_stalled_job_fails_beside_its_successor(self, session: Session) -> None:
        first = self.put(session, queueing_lock="problem-1")
        self.take(session)
        self.put(session, queueing_lock="problem-1")
        with pytest.raises(sa.exc.IntegrityError), session.begin_nested():
            PostgresQueue().retry(session, first, "q", 1, 0)

    def test_nothing_fences_a_worker_that_lost_its_job(self, session: Session) -> None:
        queue = PostgresQueue()
        job = self.put(session)
        self.take(session)
        queue.retry(session, job, "q", 1, 0)
        assert self.take(session) == job
        # Any caller may finish a job: the engine does not check the worker.
        queue.end(session, job)
        assert self.take(session) is None

    def test_a_forgotten_worker_leaves_its_job_taken_until_it_is_retried(self, session: Session) -> None:
        queue = PostgresQueue()
        job = self.put(session)
        worker = queue.register(session)
        assert queue.take(session, "q", worker) == job
        queue.unregister(session, worker)
        assert self.take(session) is None
        assert queue.retry(session, job, "q", 1, 0) == job
        assert self.take(session) == job

    def test_a_worker_that_it_does_not_know_can_not_take(self, session: Session) -> None:
        self.put(session)
        with pytest.raises(sa.exc.IntegrityError), session.begin_nested():
            PostgresQueue().take(session, "q", 12_345)

    def test_only_workers_that_stall_are_pruned(self, session: Session) -> None:
        queue = PostgresQueue()
        silent, heard = queue.register(session), queue.register(session)
        late = "UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - interval '9 s' WHERE id = :id"
        session.execute(sa.text(late), {"id": silent})
        queue.prune(session, 5)
        assert session.scalars(sa.text("SELECT id FROM procrastinate_workers")).all() == [heard]
