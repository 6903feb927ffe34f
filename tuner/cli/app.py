"""The Typer application, and the exit code of each kind of error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from space.errors import SpaceError
from space.version import own_version
from tuner import errors, exits
from tuner.cli.commands import Command, lazy_group
from workers.errors import WorkerError

#: The first row that has an error's class decides: an unknown campaign is also a campaign error.
_EXIT_CODES: Final[tuple[tuple[int, tuple[type[Exception], ...]], ...]] = (
    (exits.EXIT_NOTHING,
     (errors.NothingCorrect, errors.NothingMeasured, errors.UnknownDevice, errors.UnknownCampaign)),
    (exits.EXIT_STORE, (errors.StoreError, errors.ExportError)),
    (exits.EXIT_DEVICE, (errors.DeviceError, WorkerError)),
    (exits.EXIT_SERVICE, (errors.FleetError,)),
    (exits.EXIT_INPUT, (SpaceError, errors.SettingsError, errors.ModelError, errors.TokenError, errors.BuildRefused,
                        errors.CampaignError)),
)  # fmt: skip


def create_app(commands: Sequence[Command]) -> typer.Typer:
    """The application with these commands."""
    app = typer.Typer(
        name="gemmtune",
        cls=lazy_group(commands),
        help="Finds the fastest proved-correct kernel configuration for a GEMM on a GPU, keeps it and serves it.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    # Placeholders, which only listings show.
    for command in commands:
        app.command(command.name, help=command.help)(lambda: None)
    app.callback()(gemmtune)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gemmtune {own_version()}")
        raise typer.Exit


def gemmtune(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that precede every command."""


def run(app: typer.Typer) -> None:
    """Runs one command. An expected failure ends it with one sentence and its exit code."""
    try:
        app()
    except KeyboardInterrupt:
        _fail("interrupted; everything measured is kept, and the same command resumes")
        sys.exit(exits.EXIT_INTERRUPTED)
    except Exception as error:
        code = next((code for code, kinds in _EXIT_CODES if isinstance(error, kinds)), None)
        if code is None:
            raise
        _fail(str(error))
        sys.exit(code)


def _fail(sentence: str) -> None:
    from tuner.cli.output import fail  # imports rich, which help and version do not need

    fail(sentence, as_json="--json" in sys.argv)
