"""A campaign in one process: store, queue, maintenance thread and one worker, without any server."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tuner.errors import StoreError
from tuner.evidence.store import Store
from tuner.fleet.agent.agent import Agent
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.records import CampaignStatus, Progress, Timing
from tuner.fleet.campaigns.sweep import Maintenance
from tuner.prediction.learned import LearnedModel
from workers.ports import Worker

_LOOK_SECONDS = 0.5


class EmbeddedRun:
    """Runs a store's rounds in this process until one campaign has ended, or until asked to stop.

    That campaign's problems go first, on SQLite; while it only waits for other processes, those of others follow.
    Several may run on one SQLite file, each with its own GPU.

    Args:
        watch: called with the progress about twice a second.
    """

    def __init__(
        self, store: Store, campaign_id: int, open_device: Callable[[], Worker], name: str, timing: Timing,
        watch: Callable[[Progress], None], model_of: Callable[[str], LearnedModel | None],
    ) -> None:  # fmt: skip
        self._store, self._campaign_id, self._timing, self._watch = store, campaign_id, timing, watch
        coordinator = LocalCoordinator(store, timing, first=campaign_id)
        self._agent = Agent(coordinator, open_device, name, idle_seconds=0.2, model_of=model_of)
        self._ended = threading.Event()
        self._failure: BaseException | None = None

    def stop(self) -> None:
        """Reports the current round as it is, and ends; safe in signal handlers."""
        self._agent.leave()

    def run(self) -> Progress:
        """Runs rounds; returns the campaign's final progress.

        Raises:
            WorkerError: the device cannot be used.
            FleetError: another process on this store has the device.
            UnknownCampaign: the store has the campaign no more.
            StoreGone: the store's file, or its log, was moved, deleted or replaced.
            BaseException: what `watch` raised; the round was reported.
        """
        looking = threading.Thread(target=self._look, name="progress", daemon=True)
        with Maintenance(self._store, self._timing):
            looking.start()
            try:
                self._agent.run()
            finally:
                self._ended.set()
                looking.join()
        if self._failure:
            raise self._failure
        return results.progress(self._store, self._campaign_id)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                progress = results.progress(self._store, self._campaign_id)
                self._watch(progress)
            except StoreError:
                continue
            except BaseException as failure:
                # Nobody reads the progress any more: Rich raises SystemExit. Or the store was replaced by one without
                # the campaign. The end would not be noticed either.
                self._failure = failure
                self._agent.leave()
                return
            if progress.campaign.status in (CampaignStatus.FINISHED, CampaignStatus.CANCELLED):
                self._agent.leave()
