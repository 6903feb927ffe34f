"""A campaign in one process: store, queue, maintenance thread and one worker, without any server."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.fleet.agent.agent import Agent
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.maintenance import Maintenance
from tuner.fleet.campaigns.records import CampaignStatus, Progress, Timing
from tuner.prediction.learned import LearnedModel
from workers.ports import Worker

_LOOK_SECONDS = 0.5


class EmbeddedRun:
    """Runs the rounds of a store here until one campaign has ended, or until asked to stop.

    Several of them may run on one SQLite file, each with a GPU of its own.

    Args:
        watch: called about twice a second.
    """

    def __init__(
        self, store: Store, campaign_id: int, open_device: Callable[[], Worker], name: str, timing: Timing,
        watch: Callable[[Progress], None], model_of: Callable[[str], LearnedModel | None],
    ) -> None:  # fmt: skip
        self._store, self._campaign_id, self._timing, self._watch = store, campaign_id, timing, watch
        self._agent = Agent(LocalCoordinator(store, timing), open_device, name, idle_seconds=0.2, model_of=model_of)
        self._ended = threading.Event()

    def stop(self) -> None:
        """Reports the round with what it has, and ends; safe from signal handlers."""
        self._agent.leave()

    def run(self) -> Progress:
        """Works; where the campaign stands at the end.

        Raises:
            WorkerError: the device can't be used.
            FleetError: another process on this store has the device.
        """
        looking = threading.Thread(target=self._look, name="progress", daemon=True)
        with Maintenance(self._store, self._timing):
            looking.start()
            try:
                self._agent.run()
            finally:
                self._ended.set()
                looking.join()
        return results.progress(self._store, self._campaign_id)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                progress = results.progress(self._store, self._campaign_id)
            except StoreError:
                continue
            self._watch(progress)
            if progress.campaign.status in (CampaignStatus.FINISHED, CampaignStatus.CANCELLED):
                self._agent.leave()
