"""The Typer application, and the exit code of each kind of error."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import pairwise
from typing import Annotated, Any, Final, NoReturn

import typer

from space.errors import SpaceError
from space.version import own_version
from tuner import errors, exits
from tuner.cli.commands import Command, lazy_group
from workers.errors import WorkerError

#: The first row with an error's class decides: an unknown campaign is also a campaign error.
_EXIT_CODES: Final[tuple[tuple[int, tuple[type[Exception], ...]], ...]] = (
    (exits.EXIT_NOTHING,
     (errors.NothingCorrect, errors.NothingMeasured, errors.UnknownDevice, errors.UnknownCampaign,
      errors.WorkerGone)),
    (exits.EXIT_STORE, (errors.StoreError, errors.ExportError, errors.TableError)),
    (exits.EXIT_DEVICE, (errors.DeviceError, WorkerError)),
    (exits.EXIT_SERVICE, (errors.FleetError,)),
    (exits.EXIT_INPUT, (SpaceError, errors.SettingsError, errors.ModelError, errors.TokenError, errors.BuildRefused,
                        errors.CampaignError)),
)  # fmt: skip


#: Typer's error for a wrong command line; it exports no other class of its own Click.
_UsageError: Final = typer.BadParameter.__mro__[1]
#: Why standard output takes nothing more, although somebody wants it.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Commands that resume where an earlier run stopped.
_RESUMABLE: Final = (("tune",), ("record",), ("campaign", "run"))


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


def run(app: typer.Typer) -> NoReturn:
    """Runs one command. An expected failure ends it with one sentence and its exit code."""
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Files of others may hold what UTF-8 can't spell, and terminals may spell less than that.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _code_of(app)
        sys.stdout.flush()
    except BrokenPipeError:
        code = exits.EXIT_UNREAD
        _discard_output()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        code = exits.EXIT_STORE
        _discard_output()
        with suppress(OSError):
            _say(f"the output can't be written ({error.strerror}): free space, or write it elsewhere")
    sys.exit(code)


def _open_closed_streams() -> None:
    """Gives each standard stream that the caller closed to /dev/null: the next file opened would take its number."""
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  (as long as the process)


def _discard_output() -> None:
    """Sends what is left of the output nowhere: Python flushes again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _code_of(app: typer.Typer) -> int:
    """Runs one command; returns its exit code."""
    try:
        # Typer returns the code of a command that exits, which is 130 where Ctrl-C ended it.
        with _told_to_end() if _resumes() else nullcontext():
            code = app(standalone_mode=False, prog_name="gemmtune") or exits.EXIT_DONE
    except SystemExit:
        # So end Typer and Rich, with code 1, where nobody reads the output any more.
        return exits.EXIT_UNREAD
    except KeyboardInterrupt:
        code = exits.EXIT_INTERRUPTED
    except Exception as error:
        if isinstance(error, _UsageError):
            return _refuse(error)
        expected = next((code for code, kinds in _EXIT_CODES if isinstance(error, kinds)), None)
        if expected is None:
            raise
        _fail(str(error))
        return expected
    if code == exits.EXIT_INTERRUPTED:
        again = "the same command without --fresh" if "--fresh" in sys.argv else "the same command"
        _fail(f"interrupted: everything measured is kept; {again} resumes" if _resumes() else "interrupted")
    return int(code)


def _resumes() -> bool:
    """Whether the command goes on where an earlier run stopped."""
    return any(sys.argv[1 : 1 + len(words)] == list(words) for words in _RESUMABLE)


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Within the block, SIGTERM is Ctrl-C, as supervisors and batch systems send it: the device is closed, and the last
    words say that nothing is lost."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse(error: Any) -> int:  # noqa: ANN401  (a `_UsageError`)
    """Says that the command line is wrong, or shows the help text if it is empty; returns the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        # Where an option's value is missing, Typer has forgotten the command.
        command = error.ctx.command_path if error.ctx else " ".join(["gemmtune", *sys.argv[1:2]])
        # pydantic puts its own two words before those of our rules.
        said = error.format_message().rstrip(".").replace("Value error, ", "")
        # Typer names the option, but not the value that it refuses.
        options = getattr(getattr(error, "param", None), "opts", ())
        # Of an option that is given twice the last value counts.
        values = [value for word, value in pairwise(sys.argv) if word in options]
        given = values[-1] if values else ""
        if given not in said:
            said = said.replace("Invalid value", f"{given!r} is an invalid value")
        _fail(f"{said}{' See' if said.endswith('?') else ': see'} `{command} --help`")
    return int(error.exit_code)


def _fail(sentence: str) -> None:
    """Prints one sentence on standard error and, with `--json`, as JSON on standard output."""
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": sentence}, indent=2, ensure_ascii=False) + "\n")
    _say(sentence)


def _say(sentence: str) -> None:
    sys.stderr.write(f"gemmtune: {sentence}\n")
