"""Every problem kind, one line each, and how to look one up, or a problem of one."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from space.errors import ProblemError
from space.kinds.gemm import GEMM
from space.problem import Problem, ProblemKind

#: A new problem kind is one line here.
KINDS: Final[dict[str, ProblemKind]] = {kind.name: kind for kind in (GEMM,)}
#: Kind of a question, file or table that names none.
DEFAULT_KIND: Final = GEMM.name


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
