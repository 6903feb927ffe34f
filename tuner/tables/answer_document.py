"""An answer as a JSON document, the same over HTTP and from `gemmtune best --json`."""

from __future__ import annotations

from typing import Any

from space.devices import find_profile
from space.rank import roofline_us
from tuner.answering.answers import Answer
from tuner.hints import tune_command
from tuner.tables.entries import config_document, entry, fields


def document(answer: Answer) -> dict[str, Any]:
    """An answer as `GET /v1/best` returns it; `api.schemas.BestOut` is its schema."""
    problem, profile = answer.problem, find_profile(answer.device)
    content = fields(answer) | {
        "problem": problem.document(), "config": config_document(answer.config) if answer.config else None,
        "tflops": answer.tflops, "roofline_us": roofline_us(problem, profile) if profile else None,
        "evidence": entry(answer.best) if answer.best else None, "tune": tune_command(problem),
    }  # fmt: skip
    del content["best"]
    return content
