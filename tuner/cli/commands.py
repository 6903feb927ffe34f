"""Every command with its sentence; its module is imported only when it runs.

Help and version then cost the import of Typer alone: SQLAlchemy, Optuna, PyArrow and NumPy take a second and more.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup


@dataclass(frozen=True, slots=True)
class Command:
    """A command that is not imported yet.

    Attributes:
        name: as it is typed.
        place: module below `tuner.cli` and attribute: a function, or a `typer.Typer` of sub-commands.
        help: the first sentence of that function or group.
    """

    name: str
    place: str
    help: str

    def load(self) -> Any:  # noqa: ANN401  (a class of Typer's own Click, which it does not export)
        """The command itself, with its options."""
        module, attribute = self.place.split(":")
        found = getattr(import_module(f"tuner.cli.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False)
            found.command(self.name)(function)
        return typer.main.get_command(found)


COMMANDS: Final = (
    Command("tune", "tune:tune", "Finds the fastest proved-correct config of one GEMM on one device, and keeps it."),
    Command("best", "query:best",
            "Answers from the store: measured, else nearest, else predicted, else default; it always says which."),
    Command("explain", "explain:explain",
            "Says whether a config is legal for a problem, and if not, every rule that it breaks."),
    Command("space", "explain:space",
            "Counts the configs that are left for a problem, family by family, and how many each rule removes."),
    Command("why", "why:why", "Says why the winner of a tuned problem won, from the measurements in the store."),
    Command("ladder", "ladder:ladder",
            "Answers for every M of one weight, and says which measured ones can't all be right."),
    Command("instructions", "instructions:instructions",
            "Lists the limits of an arch and its tensor-core instructions: dtypes, shapes, major modes, source."),
    Command("export", "export:export", "Writes every best of one device as a table, whole or not at all."),
    Command("serve", "service:serve",
            "Serves the store over HTTP: best, explain, measurements, tables, campaigns and their workers."),
    Command("doctor", "service:doctor",
            "Checks this machine and the fleet: service, database, queue, workers; one line each, with the fix."),
    Command("record", "record:record",
            "Measures many candidates of each problem and writes one Parquet file a problem."),
    Command("backup", "backup:backup",
            "Writes everything that the store has at one moment to one file, while services go on."),
    Command("restore", "backup:restore",
            "Fills an empty store from a backup, all of it or nothing; SQLite and PostgreSQL take each other's."),
    Command("recordings", "recordings:app",
            "Recordings of real GPUs: what they hold, and as files for other tools."),
    Command("campaign", "campaign:app", "Many problems with one budget: make, run, watch, pause, cancel."),
    Command("worker", "worker:app", "Workers: run one here, list them, let one leave."),
    Command("token", "token:app", "API tokens: make, list and revoke."),
    Command("builds", "builds:app", "Builds that workers share."),
    Command("model", "model:app", "The learned model of a GPU: train it, look at it."),
    Command("layout", "layout:app",
            "Layouts behind the kernels: swizzles, fragments, descriptors, TMA boxes, bank conflicts."),
)  # fmt: skip
_BY_NAME: Final = {command.name: command for command in COMMANDS}


def group(name: str) -> typer.Typer:
    """The app of a command that has sub-commands."""
    return typer.Typer(no_args_is_help=True, add_completion=False, help=_BY_NAME[name].help)


class LazyGroup(TyperGroup):
    """Shows `COMMANDS` by their sentences and imports the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401
        name, command, rest = super().resolve_command(ctx, args)
        return name, _BY_NAME[name].load() if name in _BY_NAME else command, rest


def add_commands(app: typer.Typer) -> None:
    """Gives an app of class `LazyGroup` every command."""
    for command in COMMANDS:
        app.command(command.name, help=command.help)(_shown)


def _shown() -> None:
    """Stands for a command in lists; `LazyGroup` never calls it."""
