"""Renders the findings of `benchmarks.fleet` as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.storm_audit import Audit, Struck


@dataclass(frozen=True, slots=True)
class Faulted:
    """Faults of a fleet, and how soon it recovered.

    Attributes:
        struck: for the audit.
        anew_seconds: from the kill of a worker to the claim of its problem's next round.
        back_seconds: from that kill until the number of workers was restored.
        hung: the stopped process: a GPU process or a worker.
        replaced_seconds: from the stop until the stopped process was killed.
        hung_anew_seconds: from the stop of a worker to the claim of its problem's next round.
    """

    struck: Sequence[Struck]
    anew_seconds: float
    back_seconds: float
    hung: str
    replaced_seconds: float
    hung_anew_seconds: float | None


@dataclass(frozen=True, slots=True)
class Phase:
    """One campaign.

    Attributes:
        busy_seconds: time that reported rounds held their devices, summed over all workers.
        gpu_share: GPU utilization from the driver; None if unknown.
    """

    name: str
    workers: int
    seconds: float
    busy_seconds: float
    gpu_share: float | None
    rounds: int
    measured: int
    audit: Audit
    faulted: Faulted | None

    @property
    def busy_share(self) -> float:
        """Share of the workers' time that rounds used."""
        return self.busy_seconds / (self.workers * self.seconds)


def table(
    phases: Sequence[Phase], devices: Sequence[str], problems: int, candidates: int, heartbeat: float, cores: int
) -> str:
    """The whole report as Markdown."""
    first = phases[0]
    lines = [
        f"{problems} problems of {candidates} candidates on {', '.join(devices)}; {cores} CPU cores, heartbeat "
        f"{heartbeat:g} s, each campaign with an empty cache of builds.",
        "",
        "| campaign | workers | seconds | speed-up over one worker | rounds hold the device | a kernel runs (driver) "
        "| rounds | measurements |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for phase in phases:
        share = f"{phase.gpu_share:.0%}" if phase.gpu_share is not None else "–"
        lines.append(
            f"| {phase.name} | {phase.workers} | {phase.seconds:.1f} | {first.seconds / phase.seconds:.2f} | "
            f"{phase.busy_share:.0%} | {share} | {phase.rounds} | {phase.measured:,} |"
        )
    for phase in phases:
        if phase.faulted:
            lines += ["", *_faults(phase.faulted)]
    lines += ["", "| what has to hold | " + " | ".join(phase.name for phase in phases) + " |"]
    lines.append("| --- |" + " --- |" * len(phases))
    for checks in zip(*(phase.audit.checks for phase in phases), strict=True):
        cells = [f"{'yes' if check.holds else '**no**'}: {check.found}" for check in checks]
        lines.append(f"| {checks[0].what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _faults(found: Faulted) -> list[str]:
    lines = ["| fault | what followed |", "| --- | --- |"]
    lines.append(
        f"| a worker in a round was killed -9 | its round began anew after {found.anew_seconds:.1f} s; as many workers "
        f"as before after {found.back_seconds:.1f} s |"
    )
    text = f"it was killed after {found.replaced_seconds:.1f} s"
    if found.hung_anew_seconds is not None:
        text = f"its round began anew after {found.hung_anew_seconds:.1f} s; {text}"
    lines.append(f"| a {found.hung} in a round was stopped | {text} |")
    return lines
