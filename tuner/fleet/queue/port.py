"""Port: what campaigns ask of a queue. Every call joins the caller's transaction.

A queue hands out jobs by priority, never the same one twice, keeps the workers' heartbeats and forgets workers that
stall. Campaign tables hold the rest: leases (which fence late reports), attempts, and one open round per problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sqlalchemy import ColumnElement, Executable
from sqlalchemy.orm import Session


class Queue(Protocol):
    """One queue per device model, arch and kind; higher priorities first, then first come, first served."""

    #: Condition on `WorkerRow`: the queue still knows the worker.
    registered: ColumnElement[bool]
    #: Time of the last heartbeat of a `WorkerRow`.
    heartbeat_at: ColumnElement[datetime]
    #: Statement with parameter `worker`: records a heartbeat of a registered worker that is not gone, locks its row
    #: and returns status, the database's time, queue and engine_id; no row for any other worker.
    heartbeat: Executable

    def register(self, session: Session) -> int:
        """Registers a worker; returns its number, which `take` needs."""
        ...

    def unregister(self, session: Session, engine_id: int) -> None:
        """Forgets a worker. Its jobs stay taken until they are ended or retried."""
        ...

    def prune(self, session: Session, seconds: float) -> None:
        """Forgets every worker whose last heartbeat is older than `seconds`."""
        ...

    def put(self, session: Session, queue: str, rounds: Sequence[tuple[int, int]]) -> list[int]:
        """Adds one job per round, given as (round id, priority); returns the jobs in the same order."""
        ...

    def take(self, session: Session, queue: str, engine_id: int) -> int | None:
        """Takes the next job; None when no job waits."""
        ...

    def retry(self, session: Session, job: int, queue: str, round_id: int, priority: int) -> int:
        """Makes a taken job wait again, for the problem's next round; returns that round's job."""
        ...

    def end(self, session: Session, job: int) -> None:
        """Deletes a job, waiting or taken; does nothing when it no longer exists."""
        ...

    def withdraw(self, session: Session, jobs: Sequence[int]) -> list[int]:
        """Deletes those of the jobs that still wait, and returns them."""
        ...

    def jobless(self, session: Session) -> list[int]:
        """Queued rounds for which no job waits."""
        ...

    def strays(self, session: Session) -> list[int]:
        """Jobs of no open round."""
        ...
