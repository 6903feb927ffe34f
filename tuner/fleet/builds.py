"""Shared builds: what one worker has compiled, the others download.

A build is offered under the digest of its source. It is kept only if this version computes the same digest for the
config's source, the config is legal, and the bytes are a program for the arch. Only compiling again can tell whether
the program really comes from the source: `verify` does so on any machine, because one release of NVRTC gives the same
bytes for the same source.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

from sqlalchemy import CursorResult, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import undefer

from space.arch import arch_named
from space.devices import reference_profile
from space.errors import SpaceError
from space.explain import is_legal
from space.family import config_named, family_named
from space.kind import problem_from_key
from space.problem import Problem
from tuner.cubins import fault_of, release_of
from tuner.errors import BuildDiffers, BuildRefused
from tuner.evidence.campaign_models import BuildRow
from tuner.evidence.codec import utc
from tuner.evidence.columns import check_text
from tuner.evidence.store import Store
from workers.build import Build as Build
from workers.build import compile_source, digest_of, nvrtc_version
from workers.builder import source_of


@dataclass(frozen=True, slots=True)
class Offer:
    """A build as a worker offers it.

    Attributes:
        problem, config_key: one problem and config that need the build; launch knobs do not matter.
        build: the build, with its digest.
        arch: compile target.
    """

    problem: Problem
    config_key: str
    arch: str
    build: Build


#: Builds that one token may have stored.
MOST_OF_A_TOKEN: Final = 20_000


@dataclass(frozen=True, slots=True)
class SharedBuild:
    """A stored build without its bytes.

    Attributes:
        offered_by: name of the token that offered it.
    """

    id: int
    digest: str
    arch: str
    nvrtc: str
    problem_key: str
    config_key: str
    registers: int
    warnings: tuple[str, ...]
    seconds: float
    cubin_sha256: str
    offered_by: str
    offered_at: datetime


def offer(store: Store, offered: Offer, by: str) -> tuple[SharedBuild, bool]:
    """Stores a build; returns it, and whether it was new.

    Raises:
        BuildRefused: it breaks a rule; nothing was stored.
        BuildDiffers: another program is stored under this digest.
    """
    check_text(by)
    check(offered)
    build = offered.build
    sha256 = hashlib.sha256(build.cubin).hexdigest()
    with store.transaction(writes=True) as session:
        dialect = sqlite if store.embedded else postgresql
        # Another worker may offer the same build now: the first is kept, and the second compared with it.
        same = select(BuildRow.id).where(BuildRow.digest == build.digest)
        of_token = select(func.count()).select_from(BuildRow).where(BuildRow.offered_by == by)
        if session.scalar(same) is None and (session.scalar(of_token) or 0) >= MOST_OF_A_TOKEN:
            raise BuildRefused(f"token {by!r} has {MOST_OF_A_TOKEN:,} builds stored, the limit: remove old ones")
        made = session.scalars(
            dialect.insert(BuildRow).on_conflict_do_nothing().returning(BuildRow.id),
            {
                "digest": build.digest, "arch": offered.arch, "nvrtc": build.nvrtc, "problem_key": offered.problem.key,
                "config_key": offered.config_key, "registers": build.registers, "warnings": list(build.warnings),
                "seconds": build.seconds, "cubin_sha256": sha256, "cubin": build.cubin, "offered_by": by,
                "offered_at": datetime.now(UTC),
            },
        ).one_or_none()  # fmt: skip
        kept = session.scalars(select(BuildRow).where(BuildRow.digest == build.digest)).one()
        if kept.cubin_sha256 != sha256:
            stored = session.scalars(select(BuildRow.cubin).where(BuildRow.digest == build.digest)).one()
            why = _releases(stored, build.cubin) or (
                "one release of NVRTC gives the same bytes for the same source, so one of them is damaged or forged: "
                "run `gemmtune builds verify`"
            )
            raise BuildDiffers(
                f"build {build.digest[:12]} is stored with other bytes, offered by {kept.offered_by!r}: {why}"
            )
        return _shared(kept), made is not None


def check(offered: Offer) -> None:
    """Checks an offer.

    Raises:
        BuildRefused: it breaks a rule, which is named.
        UnstorableValue: one of its texts can't be stored.
    """
    build = offered.build
    for said in (build.nvrtc, *build.warnings):
        check_text(said)
    try:
        arch, config = arch_named(offered.arch), config_named(offered.config_key)
        family = family_named(config.family)
        built = arch.name in family.targets | family.fallbacks
        legal = built and is_legal(family, offered.problem, config, reference_profile(arch.name))
    except SpaceError as error:
        raise BuildRefused(str(error)) from error
    if not legal:
        raise BuildRefused(f"{config.key[:200]} is not legal for {offered.problem.shape} on {arch.name}")
    expected = digest_of(source_of(offered.problem, config, arch.name), arch.name, build.nvrtc)
    if build.digest != expected:
        raise BuildRefused(
            f"digest {build.digest[:12]} differs from {expected[:12]}, that of this config's source: the worker has "
            f"other kernels than this service, upgrade one of them"
        )
    check_cubin(build.cubin, arch.name)


def check_cubin(cubin: bytes, arch: str) -> None:
    """Checks by their header that bytes are a program for an arch.

    Raises:
        BuildRefused: they are not.
    """
    if fault := fault_of(cubin, arch):
        raise BuildRefused(fault)


def shared(store: Store, digest: str) -> tuple[SharedBuild, bytes] | None:
    """A build and its cubin; None if it is not stored."""
    with store.transaction() as session:
        query = select(BuildRow).where(BuildRow.digest == digest).options(undefer(BuildRow.cubin))
        row = session.scalars(query).one_or_none()
        return (_shared(row), row.cubin) if row else None


def remove(store: Store, digest: str) -> bool:
    """Deletes a build; whether there was one. Workers that have fetched it keep theirs in their caches."""
    with store.transaction(writes=True) as session:
        found = session.execute(delete(BuildRow).where(BuildRow.digest == digest))
        return bool(cast("CursorResult[object]", found).rowcount)


def page(store: Store, after: int, limit: int, arch: str | None = None) -> list[SharedBuild]:
    """Builds with an id above `after`, in the order in which they were offered."""
    query = select(BuildRow).where(BuildRow.id > after).order_by(BuildRow.id).limit(limit)
    if arch is not None:
        query = query.where(BuildRow.arch == arch)
    with store.transaction() as session:
        return [_shared(row) for row in session.scalars(query)]


def verify(store: Store, most: int, seed: int) -> Iterator[tuple[SharedBuild, str]]:
    """Recompiles randomly chosen builds; yields each with what is wrong with it, or an empty string.

    Only builds by this machine's version of NVRTC can be checked; the others are skipped.
    """
    with store.transaction() as session:
        digests = list(session.scalars(select(BuildRow.digest).where(BuildRow.nvrtc == nvrtc_version())))
    for digest in random.Random(seed).sample(digests, min(most, len(digests))):
        found = shared(store, digest)
        if found is None:
            continue
        about, cubin = found
        try:
            source = source_of(problem_from_key(about.problem_key), config_named(about.config_key), about.arch)
        except SpaceError as error:
            yield about, f"this version can't compile it: {error}"
            continue
        made = compile_source(source, about.arch, None)
        if not isinstance(made, Build):
            yield about, f"its source does not compile: {made.reason}"
        elif made.digest != about.digest:
            yield about, "its source differs in this version"
        else:
            why = ("its bytes differ from what its source compiles to", _releases(cubin, made.cubin))
            yield about, "" if made.cubin == cubin else "; ".join(filter(None, why))


def _releases(stored: bytes, other: bytes) -> str:
    """Where the releases of two programs differ, by the programs' own word: these, and what to do."""
    before, now = release_of(stored), release_of(other)
    if before == now:
        return ""
    return (
        f"NVRTC {before or '(unknown)'} wrote the stored one and {now or '(unknown)'} the other: "
        f"give workers and service one release of nvidia-cuda-nvrtc, and `gemmtune builds remove` what others wrote"
    )


def _shared(row: BuildRow) -> SharedBuild:
    return SharedBuild(
        row.id, row.digest, row.arch, row.nvrtc, row.problem_key, row.config_key, row.registers, tuple(row.warnings),
        row.seconds, row.cubin_sha256, row.offered_by, utc(row.offered_at),
    )  # fmt: skip
