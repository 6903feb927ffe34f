"""The fleet under a storm: services and workers as processes."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from sqlalchemy import select

from benchmarks.installation import Installation
from tuner.errors import StoreError
from tuner.evidence.campaign_models import RoundRow, WorkerRow
from tuner.evidence.models import ProblemRow
from tuner.evidence.store import Store
from tuner.exits import EXIT_SERVICE, EXIT_STORE

_ROUND_SECONDS: Final = 3
#: Exit codes of a command that could not open the store or reach the service.
_UNREACHABLE: Final = (EXIT_STORE, EXIT_SERVICE)


class Fleet:
    """Services and their workers as processes.

    Args:
        url: of the database.
        device: of every worker.
        front: URL that workers use; by default the first service's.
    """

    def __init__(
        self, folder: Path, url: str, heartbeat_seconds: float, device: str = "recorded:h200", services: int = 1,
        front: str = "",
    ) -> None:  # fmt: skip
        self._device, self._folder, self.heartbeat_seconds = device, folder, heartbeat_seconds
        self._installed = Installation(folder, url, heartbeat_seconds, _ROUND_SECONDS, None, services, front)
        self.url, self.ports = self._installed.url, self._installed.ports
        self._installed.make_token()
        self.services = [self.start_service(place) for place in range(services)]
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def secret(self) -> str:
        """The workers' token."""
        return (self._folder / "token").read_text()

    def start_service(self, place: int) -> subprocess.Popen[bytes]:
        """`gemmtune serve`."""
        return self._installed.start_service(place)

    def start_worker(self) -> subprocess.Popen[bytes]:
        """`gemmtune worker run`."""
        return self._installed.start_worker(self._device)

    def keep(self) -> None:
        """Restarts services that ended, and workers that found no service, as systemd and compose do."""
        for place, service in enumerate(self.services):
            if service.poll() is not None:
                self.services[place] = self.start_service(place)
        self.workers = [self.start_worker() if worker.poll() in _UNREACHABLE else worker for worker in self.workers]

    def stop(self) -> None:
        """Ends every process."""
        for process in (*self.workers, *self.services):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


def running(store: Store) -> list[tuple[str, str]]:
    """Names of workers with the problems that they run now."""
    query = select(WorkerRow.name, ProblemRow.key).select_from(RoundRow).join(WorkerRow).join(ProblemRow)
    with store.transaction() as session:
        return [(name, key) for name, key in session.execute(query.where(RoundRow.status == "running"))]


def claimed_since(store: Store, problem_key: str, at: datetime) -> bool:
    """Whether a round of a problem was claimed after a moment; False while the store can't be read."""
    query = select(RoundRow.id).join(ProblemRow).where(ProblemRow.key == problem_key, RoundRow.claimed_at > at)
    with suppress(StoreError), store.transaction() as session:
        return session.scalar(query.limit(1)) is not None
    return False
