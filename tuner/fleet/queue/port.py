"""Port: all that campaigns ask of a queue. Every call is part of the caller's transaction.

An engine decides the order and lets no two callers take one job. Everything else that matters is held by our
own tables: who has a round (`lease`), whether that one still lives (heartbeats), how often a problem was tried
(`attempts`), and that a problem is open once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.orm import Session


@dataclass(frozen=True, slots=True)
class Job:
    """One round as the engine knows it.

    Attributes:
        id: the engine's own number.
        round_id: the round that it stands for.
        taken: somebody took it and did not end it yet.
    """

    id: int
    round_id: int
    taken: bool


class Queue(Protocol):
    """One queue a device model and arch; higher priorities first, then first come, first served."""

    def enlist(self, session: Session) -> int | None:
        """Makes a worker known to the engine; what `take` wants as `worker`. None where it keeps no workers."""
        ...

    def dismiss(self, session: Session, worker: int | None) -> None:
        """Forgets a worker. Its jobs stay taken until they are ended."""
        ...

    def put(self, session: Session, queue: str, rounds: Sequence[tuple[int, int]]) -> list[int]:
        """Adds jobs for rounds, given as (round, priority).

        Returns:
            The job of each.
        """
        ...

    def take(self, session: Session, queue: str, worker: int | None) -> Job | None:
        """The next job, which nobody else gets from now on; None when there is none."""
        ...

    def end(self, session: Session, job: int) -> None:
        """Forgets a job, waiting or taken. Nothing happens when it is gone already."""
        ...

    def withdraw(self, session: Session, job: int) -> bool:
        """Forgets a job that waits; False, and nothing is done, when somebody took it meanwhile."""
        ...

    def jobs(self, session: Session) -> list[Job]:
        """Every job that was not ended."""
        ...
