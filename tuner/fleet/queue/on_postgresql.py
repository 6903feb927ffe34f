"""Queue on PostgreSQL: Procrastinate's `JobManager`, run on the caller's own connection and transaction.

So a job is put, taken and ended in the same transaction as our rows, and nothing falls between two stores.

What the engine does not promise, and what is therefore not asked of it (`tests/integration/queue` holds it):

* `queueing_lock` covers waiting jobs only; no problem runs twice because of our unique index on open rounds.
* Nothing fences a worker that lost its job: it could end the next one's. We end jobs only under our lease.
* Stalled jobs are not retried by themselves, and retrying one that has a `queueing_lock` can fail. A job is
  taken once: a lost round ends, and its problem gets a new round with a new job.
* Claims slow down with the backlog of all queues together, so only a window of the backlog is put.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, LiteralString, TypeVar, cast

from procrastinate.exceptions import ConnectorException, ProcrastinateException
from procrastinate.jobs import Job as EngineJob
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from procrastinate.sync_psycopg_connector import SyncPsycopgConnector
from sqlalchemy.orm import Session

from tuner.errors import StoreError
from tuner.fleet.queue.port import Job

_TASK: Final = "round"
T = TypeVar("T")


class PostgresQueue:
    """See `tuner.fleet.queue.port.Queue`. Ended jobs are deleted: the history of rounds is ours."""

    def enlist(self, session: Session) -> int | None:
        """A worker's row at the engine."""
        return _run(_manager(session).register_worker())

    def dismiss(self, session: Session, worker: int | None) -> None:
        """Deletes that row; the engine sets the jobs' worker to NULL."""
        if worker is not None:
            _run(_manager(session).unregister_worker(worker))

    def put(self, session: Session, queue: str, rounds: Sequence[tuple[int, int]]) -> list[int]:
        """One statement, however many."""
        if not rounds:
            return []
        jobs = [
            EngineJob(
                queue=queue, priority=priority, lock=None, queueing_lock=None, task_name=_TASK,
                task_kwargs={"round": round_id},
            )
            for round_id, priority in rounds
        ]  # fmt: skip
        deferred = _told(lambda: _manager(session).batch_defer_jobs(jobs, connection=_connection(session)))
        return [job.id for job in deferred if job.id is not None]

    def take(self, session: Session, queue: str, worker: int | None) -> Job | None:
        """The engine's own claim: FOR UPDATE SKIP LOCKED by priority."""
        if worker is None:
            raise StoreError("a worker that the queue does not know can't take a round: it has to register again")
        job = _run(_manager(session).fetch_job([queue], worker))
        return _job(job) if job else None

    def end(self, session: Session, job: int) -> None:
        """Deletes the job."""
        found = self._found(session, job)
        if found is not None:
            _run(_manager(session).finish_job_by_id_async(job, Status.SUCCEEDED, delete_job=True))

    def withdraw(self, session: Session, job: int) -> bool:
        """Deletes the job if it waits; waits itself for whoever is about to take it."""
        manager = _manager(session)
        return _told(lambda: manager.cancel_job_by_id(job, delete_job=True, connection=_connection(session)))

    def jobs(self, session: Session) -> list[Job]:
        """Jobs that wait or were taken."""
        manager = _manager(session)
        listed = [job for status in ("todo", "doing") for job in _run(manager.list_jobs_async(status=status))]
        return [_job(job) for job in listed]

    def _found(self, session: Session, job: int) -> EngineJob | None:
        listed = _run(_manager(session).list_jobs_async(id=job))
        return next((found for found in listed if found.status in ("todo", "doing")), None)


class _InTransaction(SyncPsycopgConnector):
    """Runs the engine's queries on one connection that is in the middle of a transaction."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401  (psycopg's own, which SQLAlchemy hands out untyped)
        super().__init__()
        self._connection = connection

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:  # noqa: ANN401
        self.execute_query_all_with_connection(self._connection, query, **arguments)

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
        return self.execute_query_one_with_connection(self._connection, query, **arguments)

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        return self.execute_query_all_with_connection(self._connection, query, **arguments)


def _manager(session: Session) -> JobManager:
    return JobManager(_InTransaction(_connection(session)))


def _connection(session: Session) -> Any:  # noqa: ANN401
    return session.connection().connection.driver_connection


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs one of the engine's coroutines; on our connector none of them ever waits."""

    def step() -> T:
        try:
            coroutine.send(None)
        except StopIteration as ended:
            return cast(T, ended.value)
        raise AssertionError("the queue's engine waited for something")

    return _told(step)


def _told(call: Callable[[], T]) -> T:
    try:
        return call()
    except ConnectorException as error:
        cause = error.__cause__ or error
        raise StoreError(f"the queue can't be used ({str(cause).splitlines()[0]}): start PostgreSQL again") from error
    except ProcrastinateException as error:
        raise StoreError(f"the queue refused it ({error}): this is a defect of gemmtune") from error


def _job(job: EngineJob) -> Job:
    if job.id is None:
        raise StoreError("the queue gave a job without a number: this is a defect of gemmtune")
    return Job(job.id, int(str(job.task_kwargs.get("round", 0))), job.status == "doing")
