"""The `gemmtune` command: the composition root, the only module that names both the service and the tuner's commands.

A command's module is imported only when the command runs. Help and version then cost the import of Typer alone:
SQLAlchemy, Optuna, PyArrow and NumPy take a second and more.
"""

from __future__ import annotations

from typing import Final

from tuner.cli.app import create_app, run
from tuner.cli.commands import Command

COMMANDS: Final = (
    Command("tune", "tuner.cli.tune:tune",
            "Finds the fastest proved-correct config of one GEMM on one device, and keeps it."),
    Command("best", "tuner.cli.query:best",
            "Answers from the store: measured, else nearest, else predicted, else default; it always says which."),
    Command("explain", "tuner.cli.explain:explain",
            "Says whether a config is legal for a problem, and if not, every rule that it breaks."),
    Command("space", "tuner.cli.explain:space",
            "Counts the configs that are left for a problem, family by family, and how many each rule removes."),
    Command("why", "tuner.cli.why:why",
            "Says why the winner of a tuned problem won, from the measurements in the store."),
    Command("ladder", "tuner.cli.ladder:ladder",
            "Answers for every M of one weight, and says which measured ones can't all be right."),
    Command("instructions", "tuner.cli.instructions:instructions",
            "Lists the limits of an arch and its tensor-core instructions: dtypes, shapes, major modes, source."),
    Command("export", "tuner.cli.export:export", "Writes every best of one device as a table, whole or not at all."),
    Command("serve", "gemmtune.serve:serve",
            "Serves the store over HTTP: best, explain, measurements, tables, campaigns and their workers."),
    Command("doctor", "tuner.cli.doctor:doctor",
            "Checks this machine and the fleet: service, database, queue, workers; one line each, with the fix."),
    Command("record", "tuner.cli.record:record",
            "Measures many candidates of each problem and writes one Parquet file a problem."),
    Command("backup", "tuner.cli.backup:backup",
            "Writes everything that the store has at one moment to one file, while services go on."),
    Command("restore", "tuner.cli.backup:restore",
            "Fills an empty store from a backup, all of it or nothing; SQLite and PostgreSQL take each other's."),
    Command("recordings", "tuner.cli.recordings:app",
            "Recordings of real GPUs: what they hold, and as files for other tools."),
    Command("campaign", "tuner.cli.campaign:app", "Many problems with one budget: make, run, watch, pause, cancel."),
    Command("worker", "tuner.cli.worker:app", "Workers: run one here, list them, let one leave."),
    Command("token", "tuner.cli.token:app", "API tokens: make, list and revoke."),
    Command("builds", "tuner.cli.builds:app", "Builds that workers share."),
    Command("model", "tuner.cli.model:app", "The learned model of a GPU: train it, look at it."),
    Command("layout", "tuner.cli.layout:app",
            "Layouts behind the kernels: swizzles, fragments, descriptors, TMA boxes, bank conflicts."),
)  # fmt: skip

app = create_app(COMMANDS)


def main() -> None:
    """Runs one command."""
    run(app)
