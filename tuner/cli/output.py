"""Output of commands: rich text on a terminal, plain lines elsewhere, one JSON document with `--json`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from space.config import Config
from space.problem import Problem
from tuner.evidence.records import Best, Ratio

#: Messages for people go to standard error; standard output is left to results.
notes = Console(stderr=True, highlight=False, soft_wrap=True)
console = Console(highlight=False, soft_wrap=True)


def emit(document: Mapping[str, Any]) -> None:
    """Prints one JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def fail(sentence: str, as_json: bool) -> None:
    """Prints one sentence on standard error and, with `--json`, as JSON on standard output."""
    if as_json:
        emit({"error": sentence})
    notes.print(f"gemmtune: {sentence}", markup=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Prints a table with right-aligned numbers."""
    grid = Table(title=title or None, box=None, pad_edge=False, title_justify="left")
    for place, name in enumerate(columns):
        numeric = bool(rows) and all(str(row[place]).replace(",", "").replace(".", "").isdigit() for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(str(cell) for cell in row))
    console.print(grid)


def problem_json(problem: Problem) -> dict[str, Any]:
    """A problem as JSON: its fields, its dtype word and its key."""
    return problem.document()


def config_json(config: Config | None) -> dict[str, Any] | None:
    """A config as JSON."""
    return {"family": config.family, "knobs": config.knobs, "key": config.key} if config else None


def ratio_json(ratio: Ratio | None) -> dict[str, Any] | None:
    """A ratio as JSON."""
    return dataclasses.asdict(ratio) if ratio else None


def ratio_text(ratio: Ratio | None) -> str:
    """`1.021 (95 % 1.018 to 1.024)`."""
    if ratio is None:
        return "not measured"
    how = "" if ratio.paired else ", unpaired"
    return f"{ratio.value:.3f} (95 % {ratio.low:.3f} to {ratio.high:.3f}{how})"


def best_json(best: Best) -> dict[str, Any]:
    """A best with its evidence as JSON."""
    measurement = best.winner.measurement
    return {
        "problem": problem_json(best.problem),
        "device": best.device,
        "device_kind": best.device_kind,
        "policy": measurement.policy.value,
        "config": config_json(best.config),
        "median_us": best.median_us,
        "tflops": best.tflops,
        "samples": len(measurement.samples_us),
        "stage": measurement.stage,
        "versus_cublaslt_first": ratio_json(best.versus_first),
        "versus_cublaslt_best": ratio_json(best.versus_best),
        "verification": dataclasses.asdict(measurement.verification) if measurement.verification else None,
        "clocks": dataclasses.asdict(measurement.clocks) if measurement.clocks else None,
        "provenance": dataclasses.asdict(best.winner.provenance),
        "measurement_id": best.winner.id,
        "taken_at": best.winner.taken_at.isoformat(),
        "tried": best.tried,
        "failed": best.failed,
    }
