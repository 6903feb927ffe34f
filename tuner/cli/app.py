"""The Typer application, its commands, and how errors become exit codes."""

from __future__ import annotations

import sys
from typing import Final

import typer

from space.errors import SpaceError
from tuner.cli import (
    backup,
    builds,
    campaign,
    explain,
    export,
    instructions,
    ladder,
    layout,
    model,
    query,
    record,
    recordings,
    service,
    token,
    tune,
    why,
    worker,
)
from tuner.cli.output import fail
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
from workers.errors import WorkerError

EXIT_INPUT: Final = 3
EXIT_DEVICE: Final = 4
EXIT_STORE: Final = 5
EXIT_NOTHING: Final = 6
EXIT_SERVICE: Final = 7
EXIT_INTERRUPTED: Final = 130

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

app = typer.Typer(
    name="gemmtune",
    help="Finds the fastest proved-correct kernel configuration for a GEMM on a GPU, keeps it and serves it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(tune.tune)
app.command()(query.best)
app.command()(explain.explain)
app.command()(explain.space)
app.command()(why.why)
app.command()(ladder.ladder)
app.command()(instructions.instructions)
app.command()(export.export)
app.command()(service.serve)
app.command()(service.doctor)
app.command()(record.record)
app.command()(backup.backup)
app.command()(backup.restore)
app.add_typer(recordings.app, name="recordings")
app.add_typer(campaign.app, name="campaign")
app.add_typer(worker.app, name="worker")
app.add_typer(token.app, name="token")
app.add_typer(builds.app, name="builds")
app.add_typer(model.app, name="model")
app.add_typer(layout.app, name="layout")


def main() -> None:
    """Runs one command; expected failures end in one sentence and their exit code."""
    try:
        app()
    except KeyboardInterrupt:
        fail("interrupted; everything measured is kept, and the same command resumes", as_json="--json" in sys.argv)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        for kind, code in _EXIT_CODES:
            if isinstance(error, kind):
                fail(str(error), as_json="--json" in sys.argv)
                sys.exit(code)
        raise
