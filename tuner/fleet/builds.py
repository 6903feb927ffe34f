"""Shared builds: what one worker compiled, the others need not.

A build is offered under the digest of the source that it was compiled from. What is offered is a claim: it is
kept only if the digest is the one that this version gives to that config's source, if the config is legal, and
if the bytes are a program for that arch. That the program really comes from the source only compiling again can
tell: `verify` does, on any machine, because NVRTC gives the same bytes for the same source.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import undefer

from space.arch import arch_named
from space.devices import reference_profile
from space.errors import SpaceError
from space.explain import is_legal
from space.problem import Problem
from space.registry import config_named, family_named, problem_from_key
from tuner.errors import BuildDiffers, BuildRefused
from tuner.evidence.build_models import BuildRow
from tuner.evidence.codec import config_of, utc
from tuner.evidence.store import Store
from workers.build import Build, compile_source, digest_of, nvrtc_version
from workers.builder import source_of

#: The largest of our kernels is a twentieth of it.
MOST_CUBIN_BYTES: Final = 2 * 2**20
_MOST_WARNINGS: Final = 50
_MOST_TEXT: Final = 500
_MOST_REGISTERS: Final = 255
#: ELF: class 64, little endian, an executable for machine 190, which is CUDA (`elf.h`: EM_CUDA).
_ELF: Final = b"\x7fELF\x02\x01\x01"
_EXECUTABLE, _CUDA = 2, 190
_HEADER_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Offer:
    """A build as a worker offers it.

    Attributes:
        problem, config_key: one of those that need it; its launch knobs don't matter.
        build: with the digest that it is kept under.
        arch: compile target.
    """

    problem: Problem
    config_key: str
    arch: str
    build: Build

    @classmethod
    def of(
        cls, problem: Problem, config_key: str, arch: str, digest: str, nvrtc: str, registers: int,
        warnings: Sequence[str], seconds: float, cubin: bytes,
    ) -> Offer:  # fmt: skip
        """From its parts."""
        return cls(problem, config_key, arch, Build(digest, cubin, registers, tuple(warnings), nvrtc, seconds))


@dataclass(frozen=True, slots=True)
class SharedBuild:
    """A build that is kept, without its bytes.

    Attributes:
        offered_by: name of the token.
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
    """Keeps a build; the second value is whether it was new.

    Raises:
        BuildRefused: it breaks a rule; nothing was stored.
        BuildDiffers: another program is kept under this digest.
    """
    check(offered)
    build = offered.build
    sha256 = hashlib.sha256(build.cubin).hexdigest()
    with store.transaction(writes=True) as session:
        dialect = sqlite if store.embedded else postgresql
        # Somebody may offer the same at this moment: then theirs is kept, and ours is compared with it.
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
            raise BuildDiffers(
                f"build {build.digest[:12]} is kept with other bytes, offered by {kept.offered_by!r}: NVRTC gives the "
                f"same for the same source, so one of the two is damaged or forged: ask `gemmtune builds verify`"
            )
        return _shared(kept), made is not None


def check(offered: Offer) -> None:
    """Whether an offer may be kept.

    Raises:
        BuildRefused: it may not, with the rule.
    """
    build = offered.build
    try:
        arch, config = arch_named(offered.arch), config_named(offered.config_key)
        family = family_named(config.family)
        legal = arch.name in family.targets and is_legal(family, offered.problem, config, reference_profile(arch.name))
    except SpaceError as error:
        raise BuildRefused(str(error)) from error
    if not legal:
        raise BuildRefused(f"{config.key[:200]} is not legal for {offered.problem.shape} on {arch.name}")
    expected = digest_of(source_of(offered.problem, config), arch.name, build.nvrtc)
    if build.digest != expected:
        raise BuildRefused(
            f"digest {build.digest[:12]} is not that of this config's source, which is {expected[:12]}: the worker "
            f"has other kernels than this service, upgrade one of them"
        )
    if not 0 < build.registers <= _MOST_REGISTERS or not 0 <= build.seconds < 3600:
        raise BuildRefused(f"{build.registers} registers and {build.seconds} s are not what compiling a kernel gives")
    if len(build.warnings) > _MOST_WARNINGS or any(len(line) > _MOST_TEXT for line in build.warnings):
        raise BuildRefused(f"more than {_MOST_WARNINGS} warnings, or one of more than {_MOST_TEXT} characters")
    check_cubin(build.cubin, arch.name)


def check_cubin(cubin: bytes, arch: str) -> None:
    """Whether bytes are a program for an arch, as far as their header tells.

    Raises:
        BuildRefused: they are not.
    """
    if not _HEADER_BYTES <= len(cubin) <= MOST_CUBIN_BYTES:
        raise BuildRefused(f"a cubin of {len(cubin):,} bytes: it has {_HEADER_BYTES} to {MOST_CUBIN_BYTES:,}")
    kind, machine = struct.unpack_from("<HH", cubin, 16)
    (flags,) = struct.unpack_from("<I", cubin, 48)
    if not cubin.startswith(_ELF) or (kind, machine) != (_EXECUTABLE, _CUDA):
        raise BuildRefused("the bytes are no cubin: an ELF executable for CUDA is wanted")
    # The second byte of the flags is the SM number, as in 90; seen in what NVRTC 13 writes for every arch.
    built_for = flags >> 8 & 0xFF
    if str(built_for) != arch.removeprefix("sm_").rstrip("af"):
        raise BuildRefused(f"the cubin is for sm_{built_for}, not for {arch}")


def shared(store: Store, digest: str) -> tuple[SharedBuild, bytes] | None:
    """A build and its cubin; None if it is not kept."""
    with store.transaction() as session:
        query = select(BuildRow).where(BuildRow.digest == digest).options(undefer(BuildRow.cubin))
        row = session.scalars(query).one_or_none()
        return (_shared(row), row.cubin) if row else None


def page(store: Store, after: int, limit: int, arch: str | None = None) -> list[SharedBuild]:
    """Builds with an id above `after`, in the order in which they were offered."""
    query = select(BuildRow).where(BuildRow.id > after).order_by(BuildRow.id).limit(limit)
    if arch is not None:
        query = query.where(BuildRow.arch == arch)
    with store.transaction() as session:
        return [_shared(row) for row in session.scalars(query)]


def verify(store: Store, most: int, seed: int) -> Iterator[tuple[SharedBuild, str]]:
    """Compiles some builds again, chosen at random, and says of each what is wrong with it; nothing if it is right.

    Those of another NVRTC than this machine's can't be told, and are left out.
    """
    with store.transaction() as session:
        digests = list(session.scalars(select(BuildRow.digest).where(BuildRow.nvrtc == nvrtc_version())))
    for digest in random.Random(seed).sample(digests, min(most, len(digests))):
        found = shared(store, digest)
        if found is None:
            continue
        about, cubin = found
        source = source_of(problem_from_key(about.problem_key), config_of(about.config_key))
        made = compile_source(source, about.arch, None)
        if not isinstance(made, Build):
            yield about, f"its source does not compile: {made.reason}"
        elif made.digest != about.digest:
            yield about, "its source is another in this version"
        else:
            yield about, "" if made.cubin == cubin else "its bytes are not what the source gives"


def _shared(row: BuildRow) -> SharedBuild:
    return SharedBuild(
        row.id, row.digest, row.arch, row.nvrtc, row.problem_key, row.config_key, row.registers, tuple(row.warnings),
        row.seconds, row.cubin_sha256, row.offered_by, utc(row.offered_at),
    )  # fmt: skip
