"""The registry: every kernel family and every problem kind, one line each, and how to look them up.

`register` adds those that live elsewhere. It records the module that calls it, so that a worker's child process can
import it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from space.config import Config
from space.devices import reference_profile
from space.errors import FamilyError, ProblemError
from space.families.cublaslt import CUBLASLT
from space.families.gemv import GEMV
from space.families.mma_sync import MMA_SYNC
from space.families.sm90_wgmma import SM90_WGMMA
from space.family import Family
from space.kinds.gemm import GEMM
from space.problem import Problem, ProblemKind

#: A new family is one line here; see docs/architecture.md for its three folders.
FAMILIES: Final[dict[str, Family]] = {family.name: family for family in (SM90_WGMMA, MMA_SYNC, GEMV, CUBLASLT)}
#: A new problem kind is one line here.
KINDS: Final[dict[str, ProblemKind]] = {kind.name: kind for kind in (GEMM,)}
#: Kind of a question, file or table that names none.
DEFAULT_KIND: Final = GEMM.name

#: Tables, reports and answers ask for the same few configs again and again, and configs never change.
_KEPT_CONFIGS: Final = 16_384
#: The module that registered each family or kind from outside this package.
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


def family_named(name: str) -> Family:
    """The registered family of that name.

    Raises:
        FamilyError: the name is unknown.
    """
    if name not in FAMILIES:
        raise FamilyError(f"family {name!r} is unknown: use one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def is_own(config: Config) -> bool:
    """Whether gemmtune writes its kernel; the library's algorithms are not its own.

    Raises:
        FamilyError: its family is unknown.
    """
    return family_named(config.family).own


@lru_cache(maxsize=_KEPT_CONFIGS)
def config_named(key: str) -> Config:
    """The config with this `Config.key`.

    Raises:
        SpaceError: no family has such a config.
    """
    family, _, knobs = key.partition(":")
    return family_named(family).parse(knobs)


def families_taking(kind: str) -> tuple[Family, ...]:
    """Our own families that take problems of a kind.

    Raises:
        FamilyError: none takes them.
    """
    found = tuple(family for family in FAMILIES.values() if family.own and kind in family.kinds)
    if not found:
        kinds = sorted({taken for family in FAMILIES.values() for taken in family.kinds})
        raise FamilyError(f"no kernel family takes {kind} problems: families take {', '.join(kinds)}")
    return found


def families_for(arch: str, problem: Problem | None = None) -> tuple[Family, ...]:
    """Our own families whose kernels compile for `arch`, grounded ones first.

    Args:
        problem: leaves out families that do not take its kind, and those that have no config for it, whatever their
            knobs. If every family that takes its kind has none, these stay, so that a caller that looks for candidates
            learns which rules remove them.

    Raises:
        FamilyError: no family compiles for it, or none of those takes the problem's kind.
        ProfileError: no known device has this arch.
    """
    found = _compiled_for(arch, problem)
    if problem is None:
        return found
    return tuple(_taking(list(found), problem, arch)) or found


def _compiled_for(arch: str, problem: Problem | None) -> tuple[Family, ...]:
    """Our own families that compile for `arch` and take the problem's kind; fallbacks if no other has a config for
    it."""
    own = [family for family in FAMILIES.values() if family.own]
    found = [family for family in own if arch in family.targets]
    if not found:
        known = ", ".join(sorted({target for family in own for target in family.targets}))
        raise FamilyError(f"no kernel family is built for {arch}: families exist for {known}")
    if problem is not None:
        taking = families_taking(problem.kind)
        found = [family for family in found if family in taking]
        if not found:
            known = ", ".join(sorted({target for family in taking for target in family.targets}))
            raise FamilyError(f"no kernel family for {arch} takes {problem.kind} problems: families exist for {known}")
        if not _taking(found, problem, arch):
            found = _taking([family for family in own if arch in family.fallbacks], problem, arch) or found
    first = [] if problem is None else _taking([family for family in found if family.special], problem, arch)
    return tuple(sorted(found, key=lambda family: (not family.grounded, family not in first, family.special)))


def _taking(families: list[Family], problem: Problem, arch: str) -> list[Family]:
    """Those that have a config for the problem, whatever their knobs."""
    return [family for family in families if family.takes(problem, reference_profile(arch))]


def family_for(arch: str, problem: Problem | None = None) -> Family:
    """Our own family whose estimate answers on `arch` for unmeasured problems.

    Args:
        problem: leaves out families that do not take its kind.

    Raises:
        FamilyError: no family compiles for it, or none of those takes the problem's kind.
    """
    return _compiled_for(arch, problem)[0]


def family_with(arch: str, knobs: Iterable[str], problem: Problem | None = None) -> Family:
    """Our first family for `arch` that has all of these knobs; the first of all if none has.

    Args:
        problem: leaves out families that do not take its kind.

    Raises:
        FamilyError: no family compiles for it, or none of those takes the problem's kind.
    """
    families, named = _compiled_for(arch, problem), set(knobs)
    return next((family for family in families if named <= family.knob_named.keys()), families[0])


def kind_named(name: str) -> ProblemKind:
    """The registered problem kind of that name.

    Raises:
        ProblemError: the name is unknown; the message suggests known ones.
    """
    if name not in KINDS:
        near = get_close_matches(name, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(KINDS)}"
        raise ProblemError(f"problem kind {name[:80]!r} is unknown: {hint}")
    return KINDS[name]


def problem_from_key(key: str) -> Problem:
    """The problem with this `Problem.key`.

    Raises:
        ProblemError: no kind reads the key.
    """
    kind, colon, _ = key.partition(":")
    if not colon or kind not in KINDS:
        begun = " or ".join(f"{name}:" for name in KINDS)
        raise ProblemError(f"key {key[:120]!r} is not a problem key: begin it with {begun}, as in "
                           "gemm:bf16,bf16,bf16,f32:nt:64x64x64:b1:none")  # fmt: skip
    return KINDS[kind].from_key(key)


def problem_of(given: Mapping[str, Any]) -> Problem:
    """The problem that these fields describe; the field `kind` names its kind, `gemm` by default.

    Raises:
        ProblemError: the kind is unknown, or the fields do not describe a problem of it.
    """
    fields = dict(given)
    return kind_named(str(fields.pop("kind", DEFAULT_KIND))).of(fields)
