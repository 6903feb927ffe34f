"""Problems from fields and from ladder expressions. `tuner.tables.importers` reads files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

from space.errors import ProblemError
from space.kind import DEFAULT_KIND, KINDS, kind_named
from space.problem import MAX_EXTENT, Problem, ProblemKind

#: Most problems per campaign: as many as one request creates in a few seconds.
MOST_PROBLEMS: Final = 20_000
#: Fields of a list entry that are ignored, for its human readers.
_REMARKS: Final = ("name", "class", "source", "comment", "key")
#: What an entry may have beside the fields of its problem.
_BESIDE: Final = ("kind", "count", *_REMARKS)
#: Columns of an exported row, behind those of its problem.
COLUMNS: Final = (
    "family", "config", "time_us", "tflops", "gain", "gain_low", "gain_high", "policy", "driver", "nvrtc", "cublaslt",
    "taken_at",
)  # fmt: skip
#: Most runs of one problem.
MOST_COUNT: Final = 10**12
#: No digits of other scripts, and no overlong numbers; who checks a number's domain names one that is out of it.
_NUMBER: Final = re.compile("-?[0-9]{1,20}")
_COUNT: Final = re.compile("[0-9]{1,13}")
_STEPS: Final = re.compile(r"([0-9]{1,20})\.\.([0-9]{1,20})(?::([x+])([0-9]{1,20}))?")


def ladder(expression: str) -> list[Problem]:
    """Problems from `m=1..8192:x2 n=4096,8192 k=4096 dtype=bf16 layout=nt`.

    Each field is a list of values; `a..b:xF` multiplies by F from a to b, `a..b:+S` adds S, `a..b` adds 1.
    The problems are all combinations, the last field changing fastest.

    Raises:
        ProblemError: a field is unknown, missing or malformed, or there are too many problems.
    """
    fields: dict[str, str] = {}
    for part in expression.split():
        name, equals, text = part.partition("=")
        if name in fields:
            raise ProblemError(f"{name} is given twice in {expression[:120]!r}: give each field once")
        fields[name] = text if equals else ""
    kind = kind_named(fields.pop("kind", DEFAULT_KIND))
    values = {name: _values(kind, name, text, expression) for name, text in fields.items()}
    if (count := prod(map(len, values.values()))) > MOST_PROBLEMS:
        raise ProblemError(f"{expression[:120]!r} means {count:,} problems: give at most {MOST_PROBLEMS:,}")
    return [kind.of(dict(zip(values, chosen, strict=True))) for chosen in product(*values.values())]


def _values(kind: ProblemKind, name: str, text: str, expression: str) -> Sequence[int | str]:
    """The values in one part of a ladder."""
    field = next((field for field in kind.fields if field.name == name), None)
    part = f"{name}={text}"
    # Parts that commas or semicolons join would be read as the values of the first one.
    if field is None or not text or "=" in text:
        example = " ".join(f"{extent}=4096" for extent in kind.shape[1:])
        others = ", ".join(field.name for field in kind.fields if field.name not in kind.shape)
        said = part if part in expression else name
        raise ProblemError(
            f"{said[:80]!r} in {expression[:120]!r} is not part of a ladder: write {kind.shape[0]}=1..8192:x2 "
            f"{example}, and any of {others}, with spaces between"
        )
    return numbers(part, text) if field.type is int else text.split(",")


def from_fields(entry: Mapping[str, Any], where: str) -> Problem:
    """One problem from its fields; those with a default are optional, and `kind` is `gemm` by default.

    Args:
        where: place of the entry, for messages.

    Raises:
        ProblemError: a field is missing, unknown, or outside its domain.
    """
    try:
        kind = kind_named(str(entry.get("kind") or DEFAULT_KIND))
        # A list of several kinds has columns for the fields of all.
        fields = {field.name for each in KINDS.values() for field in each.fields}
        empty = {name for name in fields if entry.get(name) in (None, "")}
        return kind.of({name: entry[name] for name in entry if name not in {*empty, *_BESIDE}}, _BESIDE)
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from error


def count_of(entry: Mapping[str, Any], where: str) -> int:
    """How often an entry's problem runs; 1 if the entry does not say.

    Raises:
        ProblemError: it says no whole number from 1 to `MOST_COUNT`.
    """
    said = entry.get("count")
    if said in (None, ""):
        return 1
    found = number(said, _COUNT) if isinstance(said, str) else said
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= MOST_COUNT:
        shown = repr(said)[:80]
        raise ProblemError(f"{where}: count = {shown} is not a count: give a whole number from 1 to {MOST_COUNT:,}")
    return found


def distinct(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems in order, without repeats.

    Raises:
        ProblemError: there are none, or too many.
    """
    found = tuple(dict.fromkeys(problems))
    if not found:
        raise ProblemError("no problem given: give a list, a file or a ladder")
    if len(found) > MOST_PROBLEMS:
        raise ProblemError(f"{len(found):,} problems are too many for one campaign: give at most {MOST_PROBLEMS:,}")
    return found


def number(text: str, pattern: re.Pattern[str] = _NUMBER) -> int | str:
    """A text as a number, or the text itself, for the error message, if it is none."""
    return int(text) if pattern.fullmatch(text) else text


def numbers(part: str, text: str) -> list[int]:
    """The numbers of a list such as `64,128`, `1..8192:x2` or `64..512:+64`.

    Args:
        part: the list as messages name it.

    Raises:
        ProblemError: it is malformed or too long.
    """
    found: list[int] = []
    for piece in text.split(","):
        if isinstance(spelled := number(piece), int):
            found.append(spelled)
        elif steps := _STEPS.fullmatch(piece):
            found += _steps(part, int(steps[1]), int(steps[2]), steps[3] or "+", int(steps[4] or 1))
        else:
            raise ProblemError(f"{part[:80]!r} is not a list of numbers: write 64, 64,128 or 1..8192:x2 or 64..512:+64")
        if len(found) > MOST_PROBLEMS:
            raise ProblemError(f"{part[:80]!r} means more than {MOST_PROBLEMS:,} numbers: give fewer")
    return list(dict.fromkeys(found))


def rows_of(text: str) -> list[int]:
    """The values of M that `--m` lists.

    Raises:
        ProblemError: the list is malformed or too long, or has a number that is no extent.
    """
    found = numbers(f"--m {text}", text)
    if outside := [m for m in found if not 1 <= m <= MAX_EXTENT]:
        raise ProblemError(
            f"m = {outside[0]} in --m {text[:80]!r} is not an extent: it must be 1 to {MAX_EXTENT:,}; "
            f"write 1,16,64 or 1..8192:x2"
        )
    return found


def _steps(part: str, first: int, last: int, how: str, by: int) -> list[int]:
    if not 1 <= first <= last <= MAX_EXTENT or by < (2 if how == "x" else 1):
        raise ProblemError(
            f"{part[:80]!r} does not increase: 1 <= first <= last <= {MAX_EXTENT:,}, a factor of 2 or more, a step of "
            f"1 or more"
        )
    if how == "+":
        return list(range(first, last + 1, by)[: MOST_PROBLEMS + 1])
    found = [first]
    while found[-1] * by <= last:
        found.append(found[-1] * by)
    return found
