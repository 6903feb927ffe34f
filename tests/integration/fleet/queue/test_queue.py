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
from tuner.evidence.database import current_revision, migrate, migrating
from tuner.evidence.store import Store
from tuner.fleet.queue.choice import queue_of
from tuner.fleet.queue.in_table import TableQueue
from tuner.fleet.queue.on_postgresql import PostgresQueue


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


@pytest.fixture
def queue(store: Store) -> TableQueue:
    return queue_of(store)


def jobs(store: Store) -> list[tuple[str, str]]:
    """Problem and status of every job, in the order of claims."""
    query = "SELECT queueing_lock, status FROM procrastinate_jobs ORDER BY priority DESC, id"
    with store.transaction() as session:
        return [(lock, status) for lock, status in session.execute(sa.text(query))]


def change(store: Store, *statements: str) -> None:
    """Changes by hand."""
    with store._engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


class TestEveryQueue:
    def test_sqlite_needs_no_engine_and_postgresql_has_one(self, store: Store) -> None:
        with store.transaction() as session:
            assert sa.inspect(session.connection()).has_table("procrastinate_jobs") is not store.embedded

    def test_higher_priorities_first_then_started_problems_then_first_come(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:2])
        fleet.campaign(PROBLEMS[2:4], priority=7)
        hands = [fleet.hand(number) for number in range(4)]
        seen = []
        for number in range(3):
            seen.append(hands[number].claimed())
        hands[2].report(seen[2], handed_back=True)
        hands[0].report(seen[0], handed_back=True)
        fleet.campaign(PROBLEMS[4:5], priority=7)
        seen += [hands[number].claimed() for number in (0, 2, 3)]
        places = [[problem.key for problem in PROBLEMS].index(task.problem_key) for task in seen]
        assert places == [2, 3, 0, 2, 4, 0]

    def test_a_transaction_that_fails_took_nothing(self, store: Store, queue: TableQueue) -> None:
        Fleet(store).campaign()
        taken = []

        def take_and_fail() -> None:
            with store.transaction(writes=True) as session:
                taken.append(queue.take(session, QUEUE, queue.register(session)))
                raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                take_and_fail()
        assert taken[0] == taken[1] is not None

    def test_a_job_is_released_twice_without_harm(self, store: Store, queue: TableQueue) -> None:
        Fleet(store).campaign(PROBLEMS[:1])
        with store.transaction(writes=True) as session:
            job = queue.take(session, QUEUE, queue.register(session))
            assert job
            for again in (True, True, False, False):
                queue.release(session, job.id, again)
            assert queue.take(session, QUEUE, queue.register(session)) == job

    def test_other_queues_are_left_alone(self, store: Store, queue: TableQueue) -> None:
        Fleet(store).campaign()
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


class TestAlign:
    """The queue is derived: whatever happens to it, it is rebuilt from the problems."""

    @pytest.fixture
    def store(self, postgres: Postgres) -> Iterator[Store]:
        with Store.open(postgres.database()) as opened:
            yield opened

    def test_only_problems_of_running_campaigns_have_jobs(self, store: Store) -> None:
        fleet = Fleet(store)
        first = fleet.campaign(PROBLEMS[:2])
        second = fleet.campaign(PROBLEMS[2:3])
        fleet.campaigns.pause(first.id)
        assert jobs(store) == [("3", "todo")]
        fleet.campaigns.resume(first.id)
        fleet.campaigns.cancel(second.id)
        assert jobs(store) == [("1", "todo"), ("2", "todo")]
        fleet.hand().claimed()
        fleet.campaigns.pause(first.id)
        assert jobs(store) == [("1", "doing")]

    def test_an_empty_queue_is_filled_again(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign()
        change(store, "DELETE FROM procrastinate_jobs")
        assert fleet.sweeper.sweep() == {"jobs repaired": 6}
        change(store, "DELETE FROM procrastinate_jobs")
        hand = fleet.hand(1)
        assert [hand.work(hand.claimed()) != [] for _ in range(6)] == [True] * 6
        assert jobs(store) == []

    def test_two_align_in_turn(self, store: Store) -> None:
        """Else each may wait for a job of the other: of 6,145 pauses and resumes at once three failed so."""
        queue, done = queue_of(store), threading.Event()

        def align() -> None:
            with store.transaction(writes=True) as session:
                queue.align(session)
                done.set()

        other = threading.Thread(target=align)
        with store.transaction(writes=True) as session:
            queue.align(session)
            other.start()
            assert not done.wait(0.5)
        other.join()
        assert done.is_set()

    def test_jobs_that_stand_for_nothing_are_ended(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:1])
        job = "INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, priority, status) VALUES "
        change(store, job + f"('{QUEUE}', 'round', '99', 50, 'todo'), ('{QUEUE}', 'round', NULL, 50, 'todo')")
        assert fleet.hand().claimed().problem_key == PROBLEMS[0].key
        change(store, job + f"('{QUEUE}', 'round', '99', 50, 'todo'), ('{QUEUE}', 'round', NULL, 50, 'doing')")
        assert fleet.sweeper.sweep() == {"jobs repaired": 2}
        assert jobs(store) == [("1", "doing")]

    def test_problems_follow_their_rounds(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:2])
        fleet.hand().claimed()
        change(store, "UPDATE round SET status = 'withdrawn'")
        assert fleet.sweeper.sweep() == {"open problems without a round put back": 1, "jobs repaired": 2}
        assert jobs(store) == [("2", "todo"), ("1", "todo")]

    def test_queued_rounds_of_an_older_version_become_waiting_problems(self, store: Store) -> None:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:2])
        hand = fleet.hand()
        task = hand.claimed()
        with migrating(store._engine) as connection:
            while current_revision(connection) != "0007":
                migrate(connection, "-1")
        change(
            store, "UPDATE procrastinate_jobs SET queueing_lock = NULL",
            "UPDATE campaign_problem SET status = 'open'",
            "INSERT INTO round (campaign_problem_id, problem_id, queue, status, priority, job_id, announced_stage, "
            "announced, created_at, busy_seconds, measured, reason) SELECT 2, item.problem_id, item.queue, "
            "'queued', 0, job_id + 1, '', '[]', created_at, 0, 0, '' FROM round, campaign_problem AS item "
            "WHERE item.id = 2",
        )  # fmt: skip
        with migrating(store._engine) as connection:
            migrate(connection, "head")
        hand.work(task)
        hand.work(hand.claimed())
        fleet.sweeper.sweep()
        assert (hand.claim(), jobs(store)) == (None, [])


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
        job = queue.take(session, "q", queue.register(session))
        return job and job.id

    def test_a_queueing_lock_covers_waiting_jobs_only(self, session: Session) -> None:
        self.put(session, queueing_lock="17")
        self.take(session)
        # The first one runs, and a second one is accepted.
        self.put(session, queueing_lock="17")

    def test_a_lock_covers_running_jobs_only(self, session: Session) -> None:
        first = self.put(session, lock="problem-1")
        self.put(session, lock="problem-1")
        assert self.take(session) == first
        assert self.take(session) is None

    def test_retrying_a_stalled_job_fails_beside_its_successor(self, session: Session) -> None:
        first = self.put(session, queueing_lock="17")
        self.take(session)
        self.put(session, queueing_lock="17")
        with pytest.raises(sa.exc.IntegrityError), session.begin_nested():
            PostgresQueue().release(session, first, again=True)

    def test_nothing_fences_a_worker_that_lost_its_job(self, session: Session) -> None:
        queue = PostgresQueue()
        job = self.put(session)
        self.take(session)
        queue.release(session, job, again=True)
        assert self.take(session) == job
        # Any caller may finish a job: the engine does not check the worker.
        queue.release(session, job, again=False)
        assert self.take(session) is None

    def test_a_forgotten_worker_leaves_its_job_taken_until_it_is_retried(self, session: Session) -> None:
        queue = PostgresQueue()
        job = self.put(session)
        worker = queue.register(session)
        assert queue.take(session, "q", worker)
        queue.unregister(session, worker)
        assert self.take(session) is None
        queue.release(session, job, again=True)
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
