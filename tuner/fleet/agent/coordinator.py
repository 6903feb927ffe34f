"""Coordinators: they give rounds to an agent and take its reports, in this process or over HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from typing import Any, Final

from space.config import Config
from space.errors import SpaceError
from space.family import config_named
from tuner.evidence.columns import storable
from tuner.evidence.store import Store
from tuner.fleet.campaigns.checks import MOST_TEXT
from tuner.fleet.campaigns.records import (
    TIMING,
    HeartbeatReply,
    Registration,
    RoundProgress,
    RoundReport,
    RoundTask,
    StudyHistory,
    Timing,
)
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers
from tuner.fleet.service_client import ServiceClient
from tuner.studying.records import Trial
from workers.measurement import DeviceFacts, Measurement, Outcome, Provenance, Stage, to_json

#: A report may have to wait for others to be stored; other calls end sooner (`ServiceClient`).
_REPORT_SECONDS: Final = 30.0


class LocalCoordinator:
    """A coordinator on a store in this process.

    Args:
        watch: takes the progress of a round, with its id, at every heartbeat.
        first: id of a campaign whose problems are claimed before all others (`queue_of`).
    """

    def __init__(
        self, store: Store, timing: Timing = TIMING, watch: Callable[[int, RoundProgress], None] | None = None,
        first: int | None = None,
    ) -> None:  # fmt: skip
        self._watch = watch
        self._workers, self._rounds = Workers(store, timing), Rounds(store, timing, first)
        self.register, self.leave = self._workers.register, self._workers.leave
        self.claim = self._rounds.claim

    def beat(self, worker_id: int, round_id: int | None, progress: RoundProgress | None = None) -> HeartbeatReply:
        """Records a heartbeat."""
        if self._watch and round_id is not None and progress:
            self._watch(round_id, progress)
        return self._workers.beat(worker_id, round_id)

    def begin(self, task: RoundTask, provenance: Provenance) -> StudyHistory:
        """Begins a round on a prepared device and returns the history of its study."""
        return self._rounds.begin(task.round_id, task.lease, provenance)

    def announce(self, task: RoundTask, stage: Stage, configs: Sequence[str]) -> None:
        """Announces the candidates that are measured next."""
        self._rounds.announce(task.round_id, task.lease, stage, configs)

    def finish(self, task: RoundTask, report: RoundReport) -> None:
        """Reports a round."""
        self._rounds.finish(task.round_id, task.lease, _storable(report))


class HttpCoordinator:
    """The coordinator of an agent on another machine than the service. Every call may raise `Unreachable`."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service
        self._beat_seconds, self._takes_progress = 5.0, False

    def register(self, name: str, facts: DeviceFacts) -> Registration:
        said = self._service.document("POST", "/v1/workers", {"name": name, "facts": asdict(facts)}, has="worker_id")
        with self._reading():
            self._beat_seconds = float(said["heartbeat_seconds"])
            self._takes_progress = bool(said.get("progress", False))
            return Registration(int(said["worker_id"]), self._beat_seconds, self._takes_progress)

    def beat(self, worker_id: int, round_id: int | None, progress: RoundProgress | None = None) -> HeartbeatReply:
        """Times out after one heartbeat interval, when the next heartbeat is due."""
        path, body = f"/v1/workers/{worker_id}:heartbeat", dict[str, object](round_id=round_id)
        if progress and self._takes_progress:
            body["progress"] = asdict(progress)
        said = self._service.call("POST", path, body, seconds=max(self._beat_seconds, 1.0))
        with self._reading():
            return HeartbeatReply(bool(said["stop"]), bool(said["drain"]))

    def claim(self, worker_id: int) -> RoundTask | None:
        said = self._service.call("POST", f"/v1/workers/{worker_id}:claim")
        if said is None:
            return None
        with self._reading():
            # A service of a newer version may tell more.
            known = {field.name: said[field.name] for field in fields(RoundTask) if field.name in said}
            return RoundTask(**known | {"only": tuple(said["only"])})

    def begin(self, task: RoundTask, provenance: Provenance) -> StudyHistory:
        body = {"lease": task.lease, "provenance": asdict(provenance)}
        said = self._service.call("POST", f"/v1/rounds/{task.round_id}:begin", body)
        with self._reading():
            tried = tuple(
                # A service of an older version tells no noise.
                Trial(config, Outcome(entry["outcome"]), entry["median_us"] or math.inf, entry.get("noise") or 0.0)
                for entry in said["tried"]
                for config in _readable(entry["config"])
            )
            winners = tuple(config for key in said["winners"] for config in _readable(key))
            return StudyHistory(int(said["study_id"]), tried, bool(said["finals_done"]), winners)

    def announce(self, task: RoundTask, stage: Stage, configs: Sequence[str]) -> None:
        body = {"lease": task.lease, "stage": stage, "configs": list(configs)}
        self._service.call("POST", f"/v1/rounds/{task.round_id}:announce", body)

    def finish(self, task: RoundTask, report: RoundReport) -> None:
        report = _storable(report)
        body = {
            "lease": task.lease, "problem_key": task.problem_key,
            "measurements": [measurement_document(entry) for entry in report.measurements],
            "provenance": asdict(report.provenance) if report.provenance else None,
            "busy_seconds": report.busy_seconds, "ended": report.ended, "failure": report.failure,
            "hopeless": report.hopeless, "handed_back": report.handed_back,
        }  # fmt: skip
        self._service.call("POST", f"/v1/rounds/{task.round_id}:finish", body, seconds=_REPORT_SECONDS)

    def leave(self, worker_id: int) -> None:
        self._service.call("POST", f"/v1/workers/{worker_id}:leave")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Within the block, JSON of another form than gemmtune's is a `FleetError`."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._service.foreign() from error


def _readable(key: str) -> Iterator[Config]:
    """The config; none if a newer version or a plugin that is not here has it: it can be no finalist here."""
    with suppress(SpaceError):
        yield config_named(key)


def _storable(report: RoundReport) -> RoundReport:
    """A report with texts that are taken: compilers and drivers say more, and not always in UTF-8."""
    measurements = tuple(
        replace(each, detail=storable(each.detail, MOST_TEXT), note=storable(each.note, MOST_TEXT))
        for each in report.measurements
    )
    ended, failure = storable(report.ended, MOST_TEXT), storable(report.failure, MOST_TEXT)
    return replace(report, measurements=measurements, ended=ended, failure=failure)


Coordinator = LocalCoordinator | HttpCoordinator


def measurement_document(measurement: Measurement) -> dict[str, Any]:
    """A measurement in the form of a round's report, which gives problem and device once."""
    check, clocks = measurement.verification, measurement.clocks
    return {
        "config": measurement.config.key, "stage": measurement.stage, "policy": measurement.policy.value,
        "outcome": measurement.outcome.value,
        "samples_us": list(measurement.samples_us), "detail": measurement.detail,
        "verification": json.loads(to_json(check)) if check else None,
        "clocks": json.loads(to_json(clocks)) if clocks else None,
        "build_digest": measurement.build_digest, "note": measurement.note,
        "product_joules": measurement.product_joules,
    }  # fmt: skip
