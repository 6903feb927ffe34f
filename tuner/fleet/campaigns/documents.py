"""JSON documents of campaigns, their problems and workers, the same over HTTP and from the command line."""

from __future__ import annotations

from typing import Any

import orjson

from tuner.evidence.physics import in_range
from tuner.fleet.campaigns.records import CampaignProblem

Document = dict[str, Any]


def document(value: object) -> Document:
    """A record as JSON values: its fields, with enums by value and times in ISO 8601."""
    fields: Document = orjson.loads(orjson.dumps(value))
    if isinstance(value, CampaignProblem):
        del fields["campaign_id"]
        fields |= {
            "problem": value.problem.document(),
            "tflops": value.problem.tflops(value.median_us) if in_range(value.median_us) else None,
            "versus_cublaslt_first": fields.pop("versus_first"),
            "versus_cublaslt_best": fields.pop("versus_best"),
        }
    return fields
