"""The Typer application, and the exit code of each kind of error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from space.errors import SpaceError
from space.version import own_version
from tuner.cli.commands import Command, add_commands, lazy_group
from tuner.errors import (
    BuildRefused,
    CampaignError,
    DeviceError,
    ExportError,
    FleetError,
    ModelError,
    NothingCorrect,
    NothingMeasured,
    SettingsError,
    StoreError,
    TokenError,
    UnknownCampaign,
    UnknownDevice,
)
from tuner.exits import (
    EXIT_DEVICE,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_NOTHING,
    EXIT_SERVICE,
    EXIT_STORE,
)
from workers.errors import WorkerError

_EXIT_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (NothingCorrect, EXIT_NOTHING),
    (NothingMeasured, EXIT_NOTHING),
    (StoreError, EXIT_STORE),
    (DeviceError, EXIT_DEVICE),
    (WorkerError, EXIT_DEVICE),
    (ExportError, EXIT_STORE),
    (UnknownDevice, EXIT_NOTHING),
    (SettingsError, EXIT_INPUT),
    (ModelError, EXIT_INPUT),
    (TokenError, EXIT_INPUT),
    (BuildRefused, EXIT_INPUT),
    (SpaceError, EXIT_INPUT),
    (UnknownCampaign, EXIT_NOTHING),
    (CampaignError, EXIT_INPUT),
    (FleetError, EXIT_SERVICE),
)


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
    add_commands(app, commands)
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
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        for kind, code in _EXIT_CODES:
            if isinstance(error, kind):
                _fail(str(error))
                sys.exit(code)
        raise


def _fail(sentence: str) -> None:
    from tuner.cli.output import fail  # imports rich, which help and version do not need

    fail(sentence, as_json="--json" in sys.argv)
