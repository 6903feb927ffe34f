"""Queue on PostgreSQL: Procrastinate's SQL functions, called in the caller's transaction.

Jobs and our rows change in one transaction, so nothing falls between two stores. The engine fetches by priority with
FOR UPDATE SKIP LOCKED, keeps the heartbeats, prunes workers that stall and retries their jobs. What it does not
promise stays ours (`tests/integration/fleet/queue` shows each):

* It does not fence: any caller can finish any job. Our lease is checked in the transaction that stores a report.
* Its locks exclude running jobs only. Our unique index also keeps a second campaign from queueing an open problem,
  which would fill the window with jobs that cannot run, and holds on SQLite too.
* It retries nothing by itself, and does not count the retries of one problem across jobs: `attempts` parks a problem.
* Claims slow down with the backlog of all queues together, so only a window of the backlog is queued.
* It reports stalled jobs of workers, but a silent worker without a job also blocks its GPU's slot. So stalled
  workers are pruned, and each is then declared gone with the round that it held.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, DateTime, Executable, column, exists, func, select, table, text
from sqlalchemy.dialects.postgresql import ENUM
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import RoundRow, WorkerRow

_STATUS = ENUM("todo", "doing", name="procrastinate_job_status", create_type=False)
_JOB = table("procrastinate_jobs", column("id", BigInteger), column("status", _STATUS))
_ENGINE_WORKER = table(
    "procrastinate_workers", column("id", BigInteger), column("last_heartbeat", DateTime(timezone=True))
)
_PUT = text("""
    SELECT unnest(procrastinate_defer_jobs_v1(ARRAY(
        SELECT ROW(CAST(:queue AS varchar), 'round', priority, NULL, NULL, '{}', NULL)::procrastinate_job_to_defer_v1
        FROM unnest(CAST(:priorities AS integer[])) WITH ORDINALITY AS given (priority, place) ORDER BY place
    )))
""")
_TAKE = text("SELECT id FROM procrastinate_fetch_job_v2(ARRAY[CAST(:queue AS varchar)], :worker)")
_RETRY = text("""
    SELECT id, procrastinate_retry_job_v2(id, NULL, :priority, NULL, NULL) FROM procrastinate_jobs
    WHERE id = :job AND status = 'doing'
""")
_END = text("""
    SELECT procrastinate_finish_job_v1(id, 'succeeded', true) FROM procrastinate_jobs
    WHERE id = :job AND status IN ('todo', 'doing')
""")
_WITHDRAW = text("""
    SELECT job FROM unnest(CAST(:jobs AS bigint[])) AS given (job)
    WHERE procrastinate_cancel_job_v1(job, false, true) IS NOT NULL
""")
#: The worker's row is locked before the engine's, as everywhere.
_HEARTBEAT = text("""
    WITH present AS MATERIALIZED (
        SELECT status, queue, engine_id FROM worker WHERE id = :worker AND status <> 'gone' FOR UPDATE
    )
    SELECT status, clock_timestamp(), queue, engine_id, procrastinate_update_heartbeat_v1(engine_id)
    FROM present JOIN procrastinate_workers ON procrastinate_workers.id = engine_id
""")
#: Heartbeats of many workers: status of each, and of the campaign whose round it holds. Never waits for a lock: a
#: claim or report that holds one records a heartbeat itself, and one worker must not delay the heartbeats of others.
HEARTBEATS = text("""
    WITH said AS MATERIALIZED (
        SELECT said.round, worker.id, worker.status, worker.engine_id
        FROM unnest(CAST(:workers AS integer[]), CAST(:rounds AS integer[])) AS said (worker, round)
        JOIN worker ON worker.id = said.worker
        JOIN procrastinate_workers ON procrastinate_workers.id = worker.engine_id
        WHERE worker.status <> 'gone'
    ), free AS MATERIALIZED (
        SELECT id FROM procrastinate_workers WHERE id IN (SELECT engine_id FROM said)
        FOR NO KEY UPDATE SKIP LOCKED
    ), heard AS MATERIALIZED (
        SELECT procrastinate_update_heartbeat_v1(id) FROM free
    )
    SELECT said.id, said.status, (
        SELECT campaign.status
        FROM round
        JOIN campaign_problem ON campaign_problem.id = round.campaign_problem_id
        JOIN campaign ON campaign.id = campaign_problem.campaign_id
        WHERE round.id = said.round AND round.worker_id = said.id AND round.status = 'running'
    ), (SELECT count(*) FROM heard)
    FROM said
""")


class PostgresQueue:
    """`Queue` on Procrastinate. Ended jobs are deleted: the history of rounds is ours."""

    registered: ColumnElement[bool] = exists().where(_ENGINE_WORKER.c.id == WorkerRow.engine_id)
    heartbeat_at: ColumnElement[datetime] = func.coalesce(
        select(_ENGINE_WORKER.c.last_heartbeat).where(_ENGINE_WORKER.c.id == WorkerRow.engine_id).scalar_subquery(),
        WorkerRow.beat_at,
        type_=DateTime(timezone=True),
    )
    heartbeat: Executable = _HEARTBEAT

    def register(self, session: Session) -> int:
        return int(session.scalars(text("SELECT worker_id FROM procrastinate_register_worker_v1()")).one())

    def unregister(self, session: Session, engine_id: int) -> None:
        session.execute(text("SELECT procrastinate_unregister_worker_v1(:worker)"), {"worker": engine_id})

    def prune(self, session: Session, seconds: float) -> None:
        session.execute(text("SELECT procrastinate_prune_stalled_workers_v1(:seconds)"), {"seconds": seconds})

    def put(self, session: Session, queue: str, rounds: Sequence[tuple[int, int]]) -> list[int]:
        return list(session.scalars(_PUT, {"queue": queue, "priorities": [priority for _, priority in rounds]}))

    def take(self, session: Session, queue: str, engine_id: int) -> int | None:
        return session.scalars(_TAKE, {"queue": queue, "worker": engine_id}).one_or_none()

    def retry(self, session: Session, job: int, queue: str, round_id: int, priority: int) -> int:
        if session.execute(_RETRY, {"job": job, "priority": priority}).first() is not None:
            return job
        return self.put(session, queue, [(round_id, priority)])[0]

    def end(self, session: Session, job: int) -> None:
        session.execute(_END, {"job": job})

    def withdraw(self, session: Session, jobs: Sequence[int]) -> list[int]:
        return list(session.scalars(_WITHDRAW, {"jobs": list(jobs)}))

    def jobless(self, session: Session) -> list[int]:
        waits = exists().where(_JOB.c.id == RoundRow.job_id, _JOB.c.status == "todo")
        return list(session.scalars(select(RoundRow.id).where(RoundRow.status == "queued", ~waits)))

    def strays(self, session: Session) -> list[int]:
        named = exists().where(RoundRow.job_id == _JOB.c.id, RoundRow.status.in_(("queued", "running")))
        query = select(_JOB.c.id).where(_JOB.c.status.in_(("todo", "doing")), ~named)
        return list(session.scalars(query))
