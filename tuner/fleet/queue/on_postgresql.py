"""Queue on PostgreSQL: Procrastinate holds one job per waiting problem, in the caller's transaction.

The engine fetches by priority with FOR UPDATE SKIP LOCKED, keeps at most one waiting job per problem (its queueing
lock), keeps the heartbeats, prunes workers that stall and retries their jobs. Jobs and our rows change in one
transaction, so nothing falls between two stores. What it does not promise stays ours (`tests/integration/fleet/queue`
shows each):

* It does not fence: any caller can finish any job. Our lease is checked in the transaction that stores a report.
* Its lock, which would keep two campaigns from running one problem at once, makes a claim compare every job with every
  other. Our unique index refuses the second round, whose job then ends until `align` makes it again.
* It retries nothing by itself, and does not count the retries of one problem across jobs: `attempts` parks a problem.
* It reports stalled jobs of workers, but a silent worker without a job also blocks its GPU's slot. So stalled
  workers are pruned, and each is then declared gone with the round that it held.

A claim takes 1 ms from the first queue of a backlog of 100,000, and 7 ms if 50,000 jobs of other queues come first; so
jobs of a campaign's devices alternate.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, DateTime, Executable, column, exists, func, select, table, text
from sqlalchemy.orm import Session

from tuner.evidence.campaign_models import WorkerRow
from tuner.fleet.queue.in_table import Job, TableQueue

_ENGINE_WORKER = table(
    "procrastinate_workers", column("id", BigInteger), column("last_heartbeat", DateTime(timezone=True))
)
_MANY = 1_000
#: Advisory lock of those who align all queues: two that delete and put the same jobs may wait for each other.
_LOCK = 0x71756575
#: Waiting problems of running campaigns without a job, except those that run in another campaign.
_MISSING = """
    SELECT item.id, item.queue, 2 * campaign.priority + CAST(item.started AS integer) AS priority,
           campaign.id AS campaign, row_number() OVER (PARTITION BY campaign.id, item.queue ORDER BY item.id) AS place
    FROM campaign_problem AS item JOIN campaign ON campaign.id = item.campaign_id
    WHERE item.status = 'waiting' AND campaign.status = 'running'
    AND NOT EXISTS (
        SELECT FROM procrastinate_jobs AS job WHERE job.queueing_lock = CAST(item.id AS text) AND job.status = 'todo'
    )
    AND (item.problem_id, item.queue) NOT IN (SELECT problem_id, queue FROM round WHERE status = 'running')
"""
#: Waiting jobs of problems that do not wait, and taken jobs of rounds that have ended.
_STRAY = """
    job.status = 'todo' AND NOT EXISTS (
        SELECT FROM campaign_problem AS item JOIN campaign ON campaign.id = item.campaign_id
        WHERE item.id = CAST(job.queueing_lock AS integer) AND item.status = 'waiting' AND campaign.status = 'running'
    )
    OR job.status = 'doing' AND NOT EXISTS (
        SELECT FROM round WHERE round.job_id = job.id AND round.status = 'running'
    )
"""
#: As the engine defers a job, but a problem whose job waits already is left alone.
_PUT = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, queueing_lock)
    SELECT queue, 'round', priority, CAST(id AS text) FROM ({missing}) AS missing ORDER BY campaign, place
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING
    RETURNING id
"""
_PUT_ALL = text(_PUT.format(missing=_MISSING))
_PUT_IN_QUEUE = text(_PUT.format(missing=_MISSING + "AND item.queue = :queue"))
_DROP = text(f"DELETE FROM procrastinate_jobs AS job WHERE {_STRAY} RETURNING id")
_MISMATCHES = text(f"""
    SELECT 'without a job: problem ' || id FROM ({_MISSING}) AS missing
    UNION ALL SELECT 'for no round: job ' || job.id FROM procrastinate_jobs AS job WHERE {_STRAY}
""")
_TAKE = text("SELECT id, queueing_lock FROM procrastinate_fetch_job_v2(ARRAY[CAST(:queue AS varchar)], :worker)")
#: An odd priority: before problems of equal campaigns that have not been started.
_RETRY = text("""
    SELECT procrastinate_retry_job_v2(id, NULL, priority | 1, NULL, NULL) FROM procrastinate_jobs
    WHERE id = :job AND status = 'doing'
""")
_END = text("""
    SELECT procrastinate_finish_job_v1(id, 'succeeded', true) FROM procrastinate_jobs
    WHERE id = :job AND status = 'doing'
""")
#: The engine prunes what is old; a heartbeat of the future came before the clock was set back.
_PRUNE = (
    # The worker's row keeps when it was last heard: the engine's goes.
    text("""
        WITH silent AS MATERIALIZED (
            SELECT worker.id, last_heartbeat FROM worker
            JOIN procrastinate_workers ON procrastinate_workers.id = worker.engine_id
            WHERE last_heartbeat < now() - make_interval(secs => :seconds)
                OR last_heartbeat > now() + make_interval(secs => :seconds)
            ORDER BY worker.id FOR UPDATE OF worker
        )
        UPDATE worker SET beat_at = last_heartbeat FROM silent WHERE worker.id = silent.id
    """),
    text("SELECT procrastinate_prune_stalled_workers_v1(:seconds)"),
    text("""
        SELECT procrastinate_unregister_worker_v1(id) FROM procrastinate_workers
        WHERE last_heartbeat > now() + make_interval(secs => :seconds)
    """),
)
#: The engine's row stays free for heartbeats.
_PRESENCE = text("""
    SELECT status, clock_timestamp(), queue, engine_id, slot
    FROM worker JOIN procrastinate_workers ON procrastinate_workers.id = engine_id
    WHERE worker.id = :worker AND status <> 'gone' AND token_id IS NOT DISTINCT FROM CAST(:token AS integer)
    FOR UPDATE OF worker
""")
#: The worker's row is locked before the engine's, as everywhere.
_HEARTBEAT = text("""
    WITH present AS MATERIALIZED (
        SELECT status, queue, engine_id, slot FROM worker
        WHERE id = :worker AND status <> 'gone' AND token_id IS NOT DISTINCT FROM CAST(:token AS integer)
        FOR UPDATE
    )
    SELECT status, clock_timestamp(), queue, engine_id, slot, procrastinate_update_heartbeat_v1(engine_id)
    FROM present JOIN procrastinate_workers ON procrastinate_workers.id = engine_id
""")
#: Heartbeats of many workers: status of each, and of the campaign whose round it holds. Never waits for a lock: a
#: claim that holds one records a heartbeat itself, and one worker must not delay the heartbeats of others.
HEARTBEATS = text("""
    WITH said AS MATERIALIZED (
        SELECT said.round, said.token, worker.id, worker.status, worker.engine_id
        FROM unnest(CAST(:workers AS integer[]), CAST(:rounds AS integer[]), CAST(:tokens AS integer[]))
            AS said (worker, round, token)
        JOIN worker ON worker.id = said.worker AND worker.token_id IS NOT DISTINCT FROM said.token
        JOIN procrastinate_workers ON procrastinate_workers.id = worker.engine_id
        WHERE worker.status <> 'gone'
    ), free AS MATERIALIZED (
        SELECT id FROM procrastinate_workers WHERE id IN (SELECT engine_id FROM said)
        FOR NO KEY UPDATE SKIP LOCKED
    ), heard AS MATERIALIZED (
        SELECT procrastinate_update_heartbeat_v1(id) FROM free
    )
    SELECT said.id, said.round, said.token, said.status, (
        SELECT campaign.status
        FROM round
        JOIN campaign_problem ON campaign_problem.id = round.campaign_problem_id
        JOIN campaign ON campaign.id = campaign_problem.campaign_id
        WHERE round.id = said.round AND round.worker_id = said.id AND round.status = 'running'
    ), (SELECT count(*) FROM heard)
    FROM said
""")


class PostgresQueue(TableQueue):
    """`TableQueue` on Procrastinate. Ended jobs are deleted: the history of rounds is ours."""

    registered: ColumnElement[bool] = exists().where(_ENGINE_WORKER.c.id == WorkerRow.engine_id)
    heartbeat_at: ColumnElement[datetime] = func.coalesce(
        select(_ENGINE_WORKER.c.last_heartbeat).where(_ENGINE_WORKER.c.id == WorkerRow.engine_id).scalar_subquery(),
        WorkerRow.beat_at,
        type_=DateTime(timezone=True),
    )
    heartbeat: Executable = _HEARTBEAT
    presence: Executable = _PRESENCE

    def register(self, session: Session) -> int:
        return int(session.scalars(text("SELECT worker_id FROM procrastinate_register_worker_v1()")).one())

    def unregister(self, session: Session, engine_id: int) -> None:
        session.execute(text("SELECT procrastinate_unregister_worker_v1(:worker)"), {"worker": engine_id})

    def prune(self, session: Session, seconds: float) -> None:
        for statement in _PRUNE:
            session.execute(statement, {"seconds": seconds})

    def take(self, session: Session, queue: str, engine_id: int) -> Job | None:
        job, item_id = session.execute(_TAKE, {"queue": queue, "worker": engine_id}).one_or_none() or (None, None)
        return None if job is None else Job(job, int(item_id or 0))

    def release(self, session: Session, job: int | None, again: bool) -> None:
        session.execute(_RETRY if again else _END, {"job": job})

    def align(self, session: Session, queue: str | None = None) -> int:
        if queue is not None:
            return len(session.execute(_PUT_IN_QUEUE, {"queue": queue}).all())
        session.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        dropped, put = len(session.execute(_DROP).all()), len(session.execute(_PUT_ALL).all())
        if put >= _MANY:
            # Until the database knows that there are so many, it plans claims of 100 ms.
            session.execute(text("ANALYZE procrastinate_jobs"))
        return dropped + put

    def mismatches(self, session: Session) -> list[str]:
        return list(session.scalars(_MISMATCHES))
