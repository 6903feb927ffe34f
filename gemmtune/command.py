"""The `gemmtune` command: the composition root, which names both the service and the tuner's commands.

A command's module is imported only when the command runs, so that help and version cost the import of Typer alone;
SQLAlchemy, Optuna, PyArrow and NumPy take more than a second.
"""

from __future__ import annotations

import gc
from typing import Final

from tuner.cli.app import create_app, run
from tuner.cli.commands import Command

COMMANDS: Final = (
    Command("tune", "tuner.cli.tune:tune",
            "Finds the fastest proved-correct config for one GEMM on one device and stores it."),
    Command("retune", "tuner.cli.retune:retune", "Measures bests again, and says which winners moved and by how much."),
    Command("best", "tuner.cli.query:best",
            "Prints the best known config and its source: measured, recorded, nearest or predicted."),
    Command("explain", "tuner.cli.explain:explain",
            "Checks whether a config is legal for a problem, and lists every rule that it breaks."),
    Command("space", "tuner.cli.explain:space",
            "Counts the legal configs of a problem by family, and how many each rule removes."),
    Command("why", "tuner.cli.why:why",
            "Explains why a tuned problem's winner won, from the measurements in the store."),
    Command("ladder", "tuner.cli.ladder:ladder",
            "Prints the best config for every M of one weight, and finds measurements that contradict each other."),
    Command("instructions", "tuner.cli.instructions:instructions",
            "Lists an arch's limits and its tensor-core instructions: dtypes, shapes, major modes, source."),
    Command("shapes", "tuner.cli.shapes:shapes",
            "Lists the problems in files of many formats, with counts and roofline times, and what was left out."),
    Command("export", "tuner.cli.export:export", "Writes the bests of one device as a table, atomically."),
    Command("serve", "gemmtune.serve:serve",
            "Serves the store over HTTP: best, explain, measurements, tables, campaigns and their workers."),
    Command("doctor", "tuner.cli.doctor:doctor",
            "Checks this machine and the fleet: one line per check, with the fix for what fails."),
    Command("record", "tuner.cli.record:record",
            "Measures many candidates of each problem and writes one Parquet file per problem."),
    Command("backup", "tuner.cli.backup:backup",
            "Writes a consistent copy of the whole store to one file while services keep running."),
    Command("restore", "tuner.cli.backup:restore",
            "Fills an empty store from a backup, atomically; SQLite and PostgreSQL backups are interchangeable."),
    Command("migrate", "tuner.cli.migrate:migrate",
            "Brings the store's schema to this version's, with the role in GEMMTUNE_MIGRATION_DB."),
    Command("recordings", "tuner.cli.recordings:app",
            "Recordings of real GPUs: list them, make them from a store's studies, or export them for other tools."),
    Command("campaign", "tuner.cli.campaign:app", "Many problems with one budget: create, run, watch, pause, cancel."),
    Command("worker", "tuner.cli.worker:app", "Workers: run one here, list them, drain one, revoke its reports."),
    Command("token", "tuner.cli.token:app", "API tokens: create, list and revoke."),
    Command("builds", "tuner.cli.builds:app", "Builds that workers share."),
    Command("model", "tuner.cli.model:app", "The learned model of a GPU: train it, show it."),
    Command("layout", "tuner.cli.layout:app",
            "Layouts of the kernels: swizzles, fragments, descriptors, TMA boxes, bank conflicts."),
)  # fmt: skip

app = create_app(COMMANDS)
#: Allocations between two garbage collections. What a command imports stays; by Python's default its imports would be
#: traversed dozens of times.
_GC_THRESHOLD: Final = 50_000


def main() -> None:
    """Runs one command."""
    gc.set_threshold(_GC_THRESHOLD)
    run(app)
