"""Staleness: whether the kernel that was measured is the one that would be compiled today."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, combinations
from typing import Final, Self

from space.config import Config
from space.devices import find_profile, reference_profile
from space.errors import SpaceError
from space.family import families_for, family_named
from space.knobs import KnobValue
from space.plug import Family
from space.problem import Problem
from tuner.evidence.records import Best
from workers.build import digest_of, nvrtc_version
from workers.errors import CacheError
from workers.kernels.source import digests_alike, source_of_family

#: Digests kept: a card's bests share a few thousand kernels.
_KEPT: Final = 8192


@dataclass(frozen=True, slots=True)
class Built:
    """A measurement's facts about its kernel.

    Attributes:
        nvrtc: version that compiled it.
        kernels: digest of the sources of all families that competed (`Provenance.kernel_source_digest`).
        build: digest of its own text, arch and compiler; empty if unknown.
    """

    problem: Problem
    config: Config
    device: str
    device_kind: str
    nvrtc: str
    kernels: str
    build: str

    @classmethod
    def of(cls, best: Best) -> Self:
        """The facts of a best's winner."""
        by = best.winner.provenance
        return cls(best.problem, best.config, best.device, best.device_kind, by.nvrtc, by.kernel_source_digest,
                   best.winner.measurement.build_digest)  # fmt: skip


def staleness(best: Best, nvrtc: str | None = None) -> str:
    """How a best's kernel has changed since a GPU measured it, as a clause; empty where it has not.

    Replays are not compared (`outdated` does that), as nothing here measures them again, nor are the library's kernels.

    Args:
        nvrtc: version that would compile it; by default the one that did.
    """
    return "" if best.device_kind == "recorded" else change(Built.of(best), nvrtc)


def staleness_here(best: Best) -> str:
    """`staleness` with the NVRTC that would compile in this process, which is loaded for what a GPU measured alone."""
    return staleness(best, nvrtc_here() if best.device_kind == "cuda" else None)


def changed_since(best: Best) -> str:
    """How what was measured or replayed has changed since, as a clause; empty where an answer is `measured`."""
    return staleness_here(best) or outdated(best)


def outdated(best: Best) -> str:
    """That our kernels have changed since a replayed best was recorded, as a clause; empty where they have not."""
    if best.device_kind != "recorded" or not change(Built.of(best)):
        return ""
    kernels = best.winner.provenance.kernel_source_digest
    return f"our kernels have changed since they were recorded, with source {kernels[:12]}"


def change(built: Built, nvrtc: str | None = None) -> str:
    """How a measured kernel has changed, as a clause: compares the whole text, constants included.

    Args:
        nvrtc: as in `staleness`; replays are not compiled again.
    """
    if built.device_kind == "recorded":
        nvrtc = None
    if nvrtc in (None, built.nvrtc) and unchanged(built.device, built.config.family, built.kernels):
        return ""
    try:
        now = _digest_now(built, nvrtc or built.nvrtc)
    except SpaceError as error:
        return f"its kernel can't be built any more: {error}"
    if now in ("", built.build):
        return ""
    same_text = proved_build(built) == _digest_now(built, built.nvrtc)
    what = f"NVRTC {built.nvrtc} is {nvrtc} here" if same_text else "its kernel has changed since"
    return f"{what}: build {built.build[:12] or 'unknown'} then, {now[:12]} now"


def proved_build(built: Built) -> str:
    """Digest of the build that a measurement proves: its own; of an earlier text of the same machine code, that of
    today's text by the same NVRTC.
    """
    profile = find_profile(built.device)
    if profile is None or not unchanged(built.device, built.config.family, built.kernels):
        return built.build
    if built.kernels in _todays(families_for(profile.arch.name)):
        return built.build
    try:
        return _digest_now(built, built.nvrtc) or built.build
    except SpaceError:
        return built.build


@cache
def nvrtc_here() -> str | None:
    """Version of the NVRTC that would compile in this process; None without one."""
    try:
        return nvrtc_version()
    except CacheError:
        return None


def unchanged(device: str, family: str, kernels: str) -> bool:
    """Whether there is nothing to compare: the sources are today's or compile to the same, or the kernel is not ours.

    It depends on few values, so one look decides for many measurements.

    Args:
        kernels: as in `Built`.
    """
    named, profile = family_named(family), find_profile(device)
    if not named.own or profile is None:
        return True
    return family in _competing(profile.arch.name).get(kernels, ())


def same_kernels(device: str, kernels: str, others: str) -> bool:
    """Whether two digests, as in `Built`, are of one text, or of today's and one that compiles to the same."""
    profile = find_profile(device)
    found = _competing(profile.arch.name) if profile else {}
    return kernels == others or (kernels in found and found[kernels] == found.get(others))


def _competing(arch: str) -> dict[str, frozenset[str]]:
    try:
        return _families_of(families_for(arch))
    except SpaceError:
        return {}


@cache
def _families_of(families: tuple[Family, ...]) -> dict[str, frozenset[str]]:
    """Sets of competing families by the digest of their sources, today's and those alike; a problem or a user may leave
    some out.
    """
    named = ((frozenset(family.name for family in some), some) for some in _some_of(families))
    return {digest: names for names, some in named for digest in digests_alike(some)}


@cache
def _todays(families: tuple[Family, ...]) -> frozenset[str]:
    """Digests of today's sources, of any of the families."""
    return frozenset(digest for some in _some_of(families) for digest in digests_alike(some, earlier=False))


def _some_of(families: tuple[Family, ...]) -> Iterator[tuple[Family, ...]]:
    return chain.from_iterable(combinations(families, count) for count in range(1, len(families) + 1))


def _digest_now(built: Built, nvrtc: str) -> str:
    """Digest of the build that today's text makes of a measured config; empty where the kernel or the card is none of
    ours.

    Raises:
        SpaceError: the config can't be built any more.
    """
    family, profile = family_named(built.config.family), find_profile(built.device)
    if not family.own or profile is None:
        return ""
    # Of a kernel, not of a problem: many share one.
    constants = _constants(family, built.problem.class_of_alignment(), built.config, profile.arch.name)
    return _build_digest(family, constants, profile.arch.name, nvrtc)


@lru_cache(_KEPT)
def _constants(family: Family, problem: Problem, config: Config, arch: str) -> tuple[tuple[str, KnobValue], ...]:
    """The constants of a program; of a recording, each answer asks for the same.

    Args:
        problem: as `Problem.class_of_alignment` has it.
    """
    return tuple(family.compile_constants(problem, config, reference_profile(arch)).items())


@lru_cache(_KEPT)
def _build_digest(family: Family, constants: tuple[tuple[str, KnobValue], ...], arch: str, nvrtc: str) -> str:
    return digest_of(source_of_family(family).render(dict(constants)), arch, nvrtc)
