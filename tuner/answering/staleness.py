"""Staleness: whether the kernel that was measured is the one that would be compiled today."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from space.devices import find_profile, reference_profile
from space.errors import SpaceError
from space.family import Family
from space.registry import families_for, family_named
from tuner.evidence.records import Best
from workers.build import digest_of
from workers.kernels.source import source_of_family, sources_digest

#: Digests kept: a card's bests share a few thousand kernels.
_KEPT: Final = 8192
_KERNELS_OF_A_KIND: Final = 64


def staleness(best: Best, nvrtc: str | None = None) -> str:
    """How a best's kernel has changed since a GPU measured it, as a clause; empty where it has not.

    The whole text is compared, constants included. Replays are compared where they are replayed, and the library's
    kernels are not ours.

    Args:
        nvrtc: version that would compile it; by default the one that did.
    """
    family, profile = family_named(best.config.family), find_profile(best.device)
    if best.device_kind == "recorded" or not family.own or profile is None:
        return ""
    by, arch = best.winner.provenance, profile.arch.name
    try:
        if nvrtc in (None, by.nvrtc) and by.kernel_source_digest == _digest_of_all(families_for(arch, best.problem)):
            return ""
        constants = family.compile_constants(best.problem, best.config, reference_profile(arch))
    except SpaceError as error:
        return f"its kernel can't be built any more: {error}"
    then = best.winner.measurement.build_digest
    now = _build_digest(family, tuple(constants.items()), arch, nvrtc or by.nvrtc)
    return "" if then == now else f"its kernel has changed since: build {then[:12] or 'unknown'} then, {now[:12]} now"


@lru_cache(_KERNELS_OF_A_KIND)
def _digest_of_all(families: tuple[Family, ...]) -> str:
    return sources_digest(families)


@lru_cache(_KEPT)
def _build_digest(family: Family, constants: tuple[tuple[str, int | str], ...], arch: str, nvrtc: str) -> str:
    return digest_of(source_of_family(family).render(dict(constants)), arch, nvrtc)
