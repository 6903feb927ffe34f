"""Every kernel family, one line each, and how to look one up by its name, an arch or a config."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from space.config import Config
from space.devices import reference_profile
from space.errors import FamilyError
from space.families.cublaslt import CUBLASLT
from space.families.gemv import GEMV
from space.families.mma_sync import MMA_SYNC
from space.families.sm90_wgmma import SM90_WGMMA
from space.plug import Family
from space.problem import Problem

#: A new family is one line here; docs/architecture.md says what else it is.
FAMILIES: Final[dict[str, Family]] = {family.name: family for family in (SM90_WGMMA, MMA_SYNC, GEMV, CUBLASLT)}

#: Tables, reports and answers ask for the same few configs again and again, and configs never change.
_KEPT_CONFIGS: Final = 16_384


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
    """Our own families that compile for `arch` and take the problem's kind; of those that fall back on it, the ones
    that compete for the problem, or all if no other has a config for it."""
    own = [family for family in FAMILIES.values() if family.own]
    found = [family for family in own if arch in family.targets]
    further = [family for family in own if arch in family.fallbacks]
    if not found:
        known = ", ".join(sorted({target for family in own for target in family.targets}))
        raise FamilyError(f"no kernel family is built for {arch}: families exist for {known}")
    if problem is None:
        return _in_order(found + further, [])
    taking = families_taking(problem.kind)
    found, further = ([family for family in some if family in taking] for some in (found, further))
    if not found:
        known = ", ".join(sorted({target for family in taking for target in family.targets}))
        raise FamilyError(f"no kernel family for {arch} takes {problem.kind} problems: families exist for {known}")
    if _taking(found, problem, arch):
        found += [family for family in further if family.competes_on(arch, problem)]
    else:
        found = _taking(further, problem, arch) or found
    return _in_order(found, _taking([family for family in found if family.special], problem, arch))


def _in_order(families: list[Family], first: list[Family]) -> tuple[Family, ...]:
    """Grounded families before others, and of these the special ones that take the problem `first`."""
    return tuple(sorted(families, key=lambda family: (not family.grounded, family not in first, family.special)))


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
