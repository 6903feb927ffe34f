"""Coordinator: gives rounds to an agent and takes its reports, in this process or over HTTP."""

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


class Coordinator(Protocol):
    """Everything that an agent asks of the service.

    Every call may raise `Unreachable`; the agent may then repeat it.
    """

    def register(self, name: str, facts: DeviceFacts) -> Registration:
        """Registers a worker on one device."""
        ...

    def beat(self, worker_id: int, round_id: int | None) -> HeartbeatReply:
        """Sends a heartbeat; `round_id` is the round that the worker runs."""
        ...

    def claim(self, worker_id: int) -> RoundTask | None:
        """Claims the next round; None while no round is waiting."""
        ...

    def begin(self, task: RoundTask, provenance: Provenance) -> StudyHistory:
        """Begins a round on a prepared device and returns the history of its study."""
        ...

    def announce(self, task: RoundTask, announcement: Announcement) -> None:
        """Announces the candidates that are measured next."""
        ...

    def finish(self, task: RoundTask, report: RoundReport) -> None:
        """Reports a round."""
        ...

    def leave(self, worker_id: int) -> None:
        """Removes the worker."""
        ...


class LocalCoordinator:
    """A coordinator on a store in this process."""

    def __init__(self, store: Store, timing: Timing = TIMING) -> None:
        self._workers, self._rounds = Workers(store, timing), Rounds(store, timing)

    def register(self, name: str, facts: DeviceFacts) -> Registration:
        return self._workers.register(name, facts)

    def beat(self, worker_id: int, round_id: int | None) -> HeartbeatReply:
        try:
            return self._workers.beat(worker_id, round_id)
        except StoreError as error:
            raise Unreachable(str(error)) from error

    def claim(self, worker_id: int) -> RoundTask | None:
        return self._rounds.claim(worker_id)

    def begin(self, task: RoundTask, provenance: Provenance) -> StudyHistory:
        return self._rounds.begin(task.round_id, task.lease, provenance)

    def announce(self, task: RoundTask, announcement: Announcement) -> None:
        self._rounds.announce(task.round_id, task.lease, announcement)

    def finish(self, task: RoundTask, report: RoundReport) -> None:
        self._rounds.finish(task.round_id, task.lease, report)

    def leave(self, worker_id: int) -> None:
        self._workers.leave(worker_id)
