"""Programs: what ran when something was measured, and whether this version still runs it."""

from __future__ import annotations

from functools import cache
from itertools import chain, combinations
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from space.devices import find_profile
from space.errors import SpaceError
from space.registry import families_for
from tuner.evidence.models import ProvenanceRow
from workers.kernels.source import sources_digest

#: Names of a program's parts in views, and the fields of the provenance that hold them.
PARTS: Final = {"driver": "driver", "nvrtc": "nvrtc", "kernels": "kernel_source_digest", "cublaslt": "cublaslt"}


def programs_of(session: Session) -> dict[int, dict[str, str]]:
    """Driver, compiler, kernels and library of every provenance, by row id."""
    rows = session.execute(select(ProvenanceRow.id, ProvenanceRow.content))
    return {number: {name: str(content.get(field, "")) for name, field in PARTS.items()} for number, content in rows}


def kernels_today(device: str) -> frozenset[str]:
    """Digests that this version's kernels can have on a device, whichever families compete; empty if it is unknown."""
    profile = find_profile(device)
    return _digests(profile.arch.name) if profile else frozenset()


@cache
def _digests(arch: str) -> frozenset[str]:
    try:
        families = families_for(arch)
    except SpaceError:
        return frozenset()
    competing = chain.from_iterable(combinations(families, count) for count in range(1, len(families) + 1))
    return frozenset(map(sources_digest, competing))
