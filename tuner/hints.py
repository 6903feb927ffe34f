"""Commands that messages suggest to the user."""

from __future__ import annotations

import shlex

from space.devices import find_profile
from space.kind import DEFAULT_KIND, kind_named
from space.problem import Problem


def flags_of(problem: Problem) -> str:
    """The options that a problem needs besides its shape; empty where every field has its default."""
    kind, given = kind_named(problem.kind), problem.fields()
    flags = [
        f" --{field.name.replace('_', '-')} {given[field.name]}" for field in kind.fields
        if field.name not in kind.shape and given[field.name] != field.default
    ]  # fmt: skip
    return "".join([*([] if kind.name == DEFAULT_KIND else [f" --kind {kind.name}"]), *flags])


def device_option(device: str) -> str:
    """The option for a card: whoever reads the command may have another one, or none. It takes no card that the table
    of cards lacks.
    """
    return f" --device {shlex.quote(device)}" if find_profile(device) else ""


def tune_command(problem: Problem) -> str:
    """The command that measures a problem."""
    return f"gemmtune tune {problem.shape}{flags_of(problem)}"
