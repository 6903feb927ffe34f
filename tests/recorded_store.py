"""A store such as a week of work leaves, filled from recordings of a real H200 within seconds.

It has bests with finals, a history of changes, failures, a campaign in progress with its rounds, and workers that run,
drain, or are gone. Names hold markup, so that whatever shows them must show text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from space.family import is_own
from space.problem import Problem
from tuner.evidence.picks import bests_of
from tuner.evidence.records import StudyKey
from tuner.evidence.store import Store
from tuner.fleet.campaigns.campaigns import Campaigns
from tuner.fleet.campaigns.records import CampaignBudget, CampaignRequest, RoundReport, RoundTask, Timing
from tuner.fleet.campaigns.rounds import Rounds
from tuner.fleet.campaigns.workers import Workers
from workers.measurement import Measurement, Outcome, Policy
from workers.recording import Recording, read_recording

FOLDER: Final = Path(__file__).resolve().parents[1] / "recorded" / "h200"
DEVICE: Final = "NVIDIA H200"
OTHER_DEVICE: Final = "NVIDIA H100 80GB HBM3"
#: Tuned by the campaign, in this order: a square one, weights at several M, fp8, an unaligned one.
NAMES: Final = ("bf16_nt_4096x4096x4096", "bf16_nt_16x28672x4096", "bf16_nt_128x28672x4096",
                "bf16_nt_2048x28672x4096", "fp8_e4m3_nt_128x7168x2048", "bf16_nt_512x512x512")  # fmt: skip
#: Parked, open and waiting.
LEFT: Final = ("bf16_nt_4096x4096x4100", "bf16_nt_64x4096x4096", "bf16_nt_1024x2880x2880")
HOSTILE: Final = "<img src=x onerror=alert(1)>"
#: Nobody is silent, however slow the machine is.
PATIENT: Final = Timing(heartbeat_seconds=3_600.0, round_seconds=3_600.0)
_SCREENED: Final = 60
_FAILURES: Final = (
    (Outcome.COMPILE, f"nvrtc: error: {HOSTILE} register limit 255 at line 12"),
    (Outcome.LAUNCH, "CUDA_ERROR_INVALID_VALUE: 232,960 B of shared memory"),
    (Outcome.TIMEOUT, "no answer for 5.2 s"),
)


@dataclass(frozen=True, slots=True)
class Filled:
    """What `fill` has put into a store.

    Attributes:
        problems: those with a best.
        open_round: running, held by `worker`.
    """

    problems: tuple[Problem, ...]
    campaign: int
    worker: int
    open_round: RoundTask


def fill(store: Store, two_devices: bool = True) -> Filled:
    """Fills an empty store, with the bests of a second card or without."""
    campaigns, workers, rounds = Campaigns(store), Workers(store, PATIENT), Rounds(store, PATIENT)
    recordings = {name: recording(name) for name in (*NAMES, *LEFT)}
    problems = tuple(each.problem for each in recordings.values())
    facts = replace(recordings[NAMES[0]].facts, kind="recorded")
    _, draining, gone = (workers.register(name, facts).worker_id
                           for name in ("node-1", f"node-2 {HOSTILE}", "node-3"))  # fmt: skip
    request = CampaignRequest(f"llama {HOSTILE}", problems, ((DEVICE, "recorded"),), CampaignBudget(_SCREENED))
    campaign, _ = campaigns.create(request)
    for name in NAMES:
        _tune(rounds, _claimed(rounds, draining), recordings[name])
    for _ in range(PATIENT.attempts):
        parked = _claimed(rounds, draining)
        rounds.finish(parked.round_id, parked.lease, RoundReport(failure=f"device lost {HOSTILE}", hopeless=True))
    open_round = _claimed(rounds, draining)
    workers.drain(draining)
    workers.leave(gone)
    _retune(store, recordings[NAMES[0]], faster=0.97)
    if two_devices:
        _other_device(store, [recordings[name] for name in NAMES[:3]])
    return Filled(problems[: len(NAMES)], campaign.id, draining, open_round)


@cache
def recording(name: str) -> Recording:
    """A recording by its file's name."""
    return read_recording(FOLDER / f"{name}.parquet")


def _claimed(rounds: Rounds, worker: int) -> RoundTask:
    task = rounds.claim(worker)
    assert task is not None
    return task


def _tune(rounds: Rounds, task: RoundTask, recorded: Recording) -> None:
    """Reports a round that screens and finishes a problem; every ninth candidate fails in one of several ways."""
    screens, finals = _taken(recorded)
    rounds.begin(task.round_id, task.lease, recorded.measurements[0][1])
    rounds.announce(task.round_id, task.lease, "screen", [one.config.key for one in screens[:16]])
    told = [_failed(one, place) if place % 9 == 8 else one for place, one in enumerate(screens)]
    provenance = recorded.measurements[0][1]
    report = RoundReport((*told, *finals), provenance, 4.5, "60 of 60 candidates are tried")
    rounds.finish(task.round_id, task.lease, report)


def _taken(recorded: Recording) -> tuple[list[Measurement], list[Measurement]]:
    """Some screened candidates, those of the finals among them, and the finals."""
    own = [one for one, _ in recorded.measurements if is_own(one.config)]
    finals = [one for one, _ in recorded.measurements if one.stage == "final"]
    final_keys = {one.config.key for one in finals if is_own(one.config)}
    screens = [one for one in own if one.stage == "screen"]
    chosen = [one for one in screens if one.config.key not in final_keys][: _SCREENED - len(final_keys)]
    return chosen + [one for one in screens if one.config.key in final_keys], finals


def _failed(one: Measurement, place: int) -> Measurement:
    outcome, detail = _FAILURES[place // 9 % len(_FAILURES)]
    return replace(one, outcome=outcome, detail=detail, samples_us=(), verification=None, clocks=None)


def _retune(store: Store, recorded: Recording, faster: float) -> None:
    """A second study with another driver, a little faster: the best has a history."""
    finals = _taken(recorded)[1]
    provenance = replace(recorded.measurements[0][1], driver="590.10.01", nvrtc="13.2")
    key = StudyKey(recorded.problem, DEVICE, "recorded", Policy.ROUNDS, "sm90_wgmma", "second")
    study = store.begin_study(key)
    quicker = [replace(one, samples_us=tuple(us * faster for us in one.samples_us)) for one in finals]
    stored = store.record_many(study.id, quicker, provenance)
    store.set_bests(bests_of(recorded.problem, stored, len(finals), {}))
    store.finish_study(study.id, "finals alone")


def _other_device(store: Store, recordings: Sequence[Recording]) -> None:
    """Bests of another card under two policies; its times are the recorded ones, scaled."""
    for recorded in recordings:
        finals = _taken(recorded)[1]
        key = StudyKey(recorded.problem, OTHER_DEVICE, "cuda", Policy.BURST, "sm90_wgmma", "other")
        study = store.begin_study(key)
        slower = [
            replace(one, policy=policy, samples_us=tuple(us * by for us in one.samples_us))
            for policy, by in ((Policy.SUSTAINED, 1.4), (Policy.CHAIN, 1.3)) for one in finals
        ]  # fmt: skip
        provenance = replace(recorded.measurements[0][1], device=OTHER_DEVICE)
        stored = store.record_many(study.id, slower, provenance)
        store.set_bests(bests_of(recorded.problem, stored, len(finals), {}))
        store.finish_study(study.id, "finals alone")
