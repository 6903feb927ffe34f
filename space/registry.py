"""Registers kernel families and problem kinds that live outside this package.

`register` records the module that calls it, so that a worker's child process can import it too.
"""

from __future__ import annotations

from typing import Any, Final

from space.errors import FamilyError, ProblemError
from space.family import FAMILIES, config_named
from space.kind import KINDS
from space.plug import Family
from space.problem import ProblemKind

#: The module that registered each family or kind.
_registered: Final[dict[Family | ProblemKind, str]] = {}


def register(plug: Family | ProblemKind, module: str) -> None:
    """Adds a family or a problem kind that lives outside this package.

    Args:
        module: dotted name of the module whose import registers it.

    Raises:
        FamilyError, ProblemError: another family, or another kind, has this name.
    """
    if _table_of(plug).setdefault(plug.name, plug) is not plug:
        what, error = ("family", FamilyError) if isinstance(plug, Family) else ("problem kind", ProblemError)
        raise error(f"{what} {plug.name!r} is already registered: choose another name")
    _registered[plug] = module


def unregister(plug: Family | ProblemKind) -> None:
    """Removes a family or a problem kind that `register` added."""
    config_named.cache_clear()
    if _registered.pop(plug, None):
        del _table_of(plug)[plug.name]


def _table_of(plug: Family | ProblemKind) -> dict[str, Any]:
    return FAMILIES if isinstance(plug, Family) else KINDS


def registered_modules() -> tuple[str, ...]:
    """Modules that registered families or kinds, in order."""
    return tuple(dict.fromkeys(_registered.values()))
