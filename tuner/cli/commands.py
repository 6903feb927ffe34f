"""Commands that are imported only when they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import Any, Final

import typer
from typer.core import TyperGroup

from tuner.numbers import DECIMAL, WHOLE

#: How numbers are written, and what is said of others: Typer takes what Python does.
_NUMBERS: Final = {
    int: (WHOLE, "give a whole number in digits, as in 64"),
    float: (DECIMAL, "give a number in digits, as in 1.05"),
}


@dataclass(frozen=True, slots=True)
class Deferred:
    """A command that learns its options when it is called.

    Attributes:
        function: makes the function that Typer reads the options of.
    """

    function: Callable[[], Callable[..., None]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command, imported when it runs.

    Attributes:
        name: name on the command line.
        place: `module:attribute` of a function, or of a `typer.Typer` with sub-commands.
        help: the first paragraph of that function's or group's help text.
    """

    name: str
    place: str
    help: str

    def load(self) -> Any:  # noqa: ANN401  (a class of Typer's own Click, which it does not export)
        """Imports the command and returns it with its options."""
        module, attribute = self.place.split(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False)
            if isinstance(function, Deferred):
                function = function.function()
            found.command(self.name)(function)
        return _prepared(typer.main.get_command(found))


def _prepared(command: Any) -> Any:  # noqa: ANN401
    """A command that takes numbers in digits, with help text that breaks lines where the terminal ends, not where the
    source does."""
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", cleandoc(command.help or ""))
    for parameter in command.params:
        if rule := _NUMBERS.get(parameter.type_descriptor.annotation):
            parameter.process_value = partial(_in_digits, parameter, parameter.process_value, *rule)
    for each in getattr(command, "commands", {}).values():
        _prepared(each)
    return command


def _in_digits(parameter: Any, process: Any, rule: re.Pattern[str], said: str, ctx: Any, value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str) and not rule.fullmatch(value):
        raise typer.BadParameter(f"{said}, not {value[:80]!r}", ctx, parameter)
    return process(ctx, value)


def group(help: str) -> typer.Typer:
    """The app of a command with sub-commands."""
    return typer.Typer(no_args_is_help=True, add_completion=False, help=help)


def lazy_group(commands: Sequence[Command]) -> type[TyperGroup]:
    """A group that lists `commands` by their help text and imports the one that is called."""
    by_name = {command.name: command for command in commands}

    class LazyGroup(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401
            name, command, rest = super().resolve_command(ctx, args)
            return name, by_name[name].load() if name in by_name else command, rest

    return LazyGroup
