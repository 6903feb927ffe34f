"""Documents: campaigns, their problems and workers as JSON; the same over HTTP and from the command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from space.problem import Problem
from tuner.fleet.campaigns.records import Campaign, CampaignProblem, Progress, Summary, Worker

Document = dict[str, Any]


def problem(value: Problem) -> Document:
    """A problem with its dtype word and its key."""
    return value.document()


def campaign(value: Campaign) -> Document:
    """A campaign."""
    return asdict(value) | {
        "status": value.status.value,
        "policy": value.policy.value,
        "created_at": value.created_at.isoformat(),
        "finished_at": value.finished_at.isoformat() if value.finished_at else None,
    }


def progress(value: Progress) -> Document:
    """Where a campaign stands."""
    return asdict(value) | {"campaign": campaign(value.campaign)}


def summary(value: Summary) -> Document:
    """What a campaign came to."""
    return asdict(value) | {"progress": progress(value.progress)}


def campaign_problem(value: CampaignProblem) -> Document:
    """One problem of a campaign on one device."""
    document = asdict(value) | {
        "problem": problem(value.problem),
        "status": value.status.value,
        "tflops": value.problem.tflops(value.median_us) if value.median_us else None,
        "versus_cublaslt_first": asdict(value.versus_first) if value.versus_first else None,
        "versus_cublaslt_best": asdict(value.versus_best) if value.versus_best else None,
        "ended_at": value.ended_at.isoformat() if value.ended_at else None,
    }
    for name in ("campaign_id", "versus_first", "versus_best"):
        del document[name]
    return document


def worker(value: Worker) -> Document:
    """A worker."""
    return asdict(value) | {
        "registered_at": value.registered_at.isoformat(),
        "beat_at": value.beat_at.isoformat(),
    }
