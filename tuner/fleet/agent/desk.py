"""Desk: where an agent gets its rounds and leaves its reports, in this process or over HTTP."""

from __future__ import annotations

from typing import Protocol

from tuner.errors import StoreError, Unreachable
from tuner.evidence.store import Store
from tuner.fleet.campaigns.records import (
    TIMING,
    Announcement,
    HeartbeatReply,
    Registration,
    RoundReport,
    RoundTask,
    StudyHistory,
    Timing,
)
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers
from workers.measurement import DeviceFacts, Provenance


class Desk(Protocol):
    """What an agent needs of the service; see `tuner.fleet.campaigns.workers.Workers` and `…rounds.Rounds`.

    Every call may raise `Unreachable`; the same call may then be made again.
    """

    def register(self, name: str, facts: DeviceFacts) -> Registration:
        """A new worker."""
        ...

    def beat(self, worker_id: int, round_id: int | None) -> HeartbeatReply:
        """A sign of life."""
        ...

    def claim(self, worker_id: int) -> RoundTask | None:
        """The next round."""
        ...

    def begin(self, task: RoundTask, provenance: Provenance) -> StudyHistory:
        """What the round's study knows already."""
        ...

    def announce(self, task: RoundTask, announcement: Announcement) -> None:
        """Names the candidates that are measured next."""
        ...

    def finish(self, task: RoundTask, report: RoundReport) -> None:
        """Reports a round."""
        ...

    def leave(self, worker_id: int) -> None:
        """Says goodbye."""
        ...


class LocalDesk:
    """The desk of a store in this process: the embedded way."""

    def __init__(self, store: Store, timing: Timing = TIMING) -> None:
        self._workers, self._rounds = Workers(store, timing), Rounds(store, timing)

    def register(self, name: str, facts: DeviceFacts) -> Registration:
        """See `Desk`."""
        return self._workers.register(name, facts)

    def beat(self, worker_id: int, round_id: int | None) -> HeartbeatReply:
        """See `Desk`."""
        try:
            return self._workers.beat(worker_id, round_id)
        except StoreError as error:
            raise Unreachable(str(error)) from error

    def claim(self, worker_id: int) -> RoundTask | None:
        """See `Desk`."""
        return self._rounds.claim(worker_id)

    def begin(self, task: RoundTask, provenance: Provenance) -> StudyHistory:
        """See `Desk`."""
        return self._rounds.begin(task.round_id, task.lease, provenance)

    def announce(self, task: RoundTask, announcement: Announcement) -> None:
        """See `Desk`."""
        self._rounds.announce(task.round_id, task.lease, announcement)

    def finish(self, task: RoundTask, report: RoundReport) -> None:
        """See `Desk`."""
        self._rounds.finish(task.round_id, task.lease, report)

    def leave(self, worker_id: int) -> None:
        """See `Desk`."""
        self._workers.leave(worker_id)
