"""Launchers by family: each family's launcher module exports its launcher as `LAUNCHER`."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from space.plug import Family
from workers.cuda.families.launcher import Launcher
from workers.cuda.families.prepared import PreparedLauncher


@cache
def launcher_of(family: Family) -> type[Launcher]:
    """The launcher that a family's module exports."""
    module = family.launcher
    found: type[Launcher] = import_module(module).LAUNCHER
    assert issubclass(found, Launcher), f"{module}.LAUNCHER"
    return found


def prepared_launcher_of(family: Family) -> type[PreparedLauncher]:
    """The launcher of a family of ours, whose prepared arguments can be pointed at other operands."""
    found = launcher_of(family)
    assert issubclass(found, PreparedLauncher), f"{family.launcher}.LAUNCHER"
    return found
