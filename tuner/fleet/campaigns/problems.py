"""Problem lists, read from JSON, CSV and ladder expressions."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final

from space.errors import ProblemError
from space.problem import MAX_EXTENT, Problem, ProblemKind
from space.registry import DEFAULT_KIND, KINDS, kind_named

#: Most problems per campaign: as many as one request creates in a few seconds.
MOST_PROBLEMS: Final = 20_000
#: Fields of a list entry that are ignored, for its human readers.
_REMARKS: Final = frozenset({"name", "class", "source", "comment", "key"})
#: No digits of other scripts, and no overlong numbers.
_NUMBER: Final = re.compile("[0-9]{1,10}")
_STEPS: Final = re.compile(r"([0-9]{1,10})\.\.([0-9]{1,10})(?::([x+])([0-9]{1,10}))?")


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
    if field is None or not text:
        example = " ".join(f"{extent}=4096" for extent in kind.shape[1:])
        others = ", ".join(field.name for field in kind.fields if field.name not in kind.shape)
        raise ProblemError(
            f"{part[:80]!r} in {expression[:120]!r} is not part of a ladder: write {kind.shape[0]}=1..8192:x2 "
            f"{example}, and any of {others}"
        )
    return _numbers(part, text) if field.type is int else text.split(",")


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
        return kind.of({name: entry[name] for name in entry if name not in {"kind", *empty, *_REMARKS}})
    except ProblemError as error:
        raise ProblemError(f"{where}: {error}") from error


def from_csv(text: str, where: str = "the CSV") -> list[Problem]:
    """Problems from CSV with a header that names the fields.

    Raises:
        ProblemError: the text is not CSV, or a row is invalid.
    """
    problems: list[Problem] = []
    try:
        for row in csv.DictReader(io.StringIO(text, newline=""), strict=True):
            place = f"{where}, row {len(problems) + 1}"
            if None in row or None in row.values():
                raise ProblemError(f"{place} and the header differ in length: give every field, or leave it empty")
            numbers = _number_fields(row.get("kind"))
            fields: dict[str, Any] = {
                name: _number(value.strip()) if name in numbers else value.strip() for name, value in row.items()
            }
            problems.append(from_fields(fields, place))
    except csv.Error as error:
        raise ProblemError(f"{where} is not valid CSV ({error}): give a header that names the fields") from error
    return problems


def from_json(text: str, where: str = "the JSON") -> list[Problem]:
    """Problems from a JSON list of objects with the fields of a problem.

    Raises:
        ProblemError: the text is not such a list, or an entry is invalid.
    """
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise ProblemError(f"{where} is not valid JSON ({error}): give a list of objects with m, n and k") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ProblemError(f"{where} is not a list of problems: give a list of objects with m, n and k")
    return [from_fields(entry, f"{where}, entry {place}") for place, entry in enumerate(entries, 1)]


def from_file(path: Path) -> list[Problem]:
    """Problems of a `.csv` or `.json` file.

    Raises:
        ProblemError: the file cannot be read, or is invalid.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path} cannot be read ({error}): give a CSV or JSON file of problems") from error
    return from_csv(text, str(path)) if path.suffix.lower() == ".csv" else from_json(text, str(path))


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


def _number_fields(kind: str | None) -> set[str]:
    """Names of the whole-number fields of a row's kind; none if the kind is unknown, which `from_fields` reports."""
    known = KINDS.get((kind or DEFAULT_KIND).strip())
    return {field.name for field in known.fields if field.type is int} if known else set()


def _number(text: str) -> int | str:
    """The number that a text spells; otherwise the text itself, for the error message."""
    return int(text) if _NUMBER.fullmatch(text) else text


def _numbers(part: str, text: str) -> list[int]:
    numbers: list[int] = []
    for piece in text.split(","):
        if isinstance(number := _number(piece), int):
            numbers.append(number)
        elif steps := _STEPS.fullmatch(piece):
            numbers += _steps(part, int(steps[1]), int(steps[2]), steps[3] or "+", int(steps[4] or 1))
        else:
            raise ProblemError(f"{part[:80]!r} is not a list of numbers: write 64, 64,128 or 1..8192:x2 or 64..512:+64")
        if len(numbers) > MOST_PROBLEMS:
            raise ProblemError(f"{part[:80]!r} means more than {MOST_PROBLEMS:,} numbers: give fewer")
    return list(dict.fromkeys(numbers))


def _steps(part: str, first: int, last: int, how: str, by: int) -> list[int]:
    if not 1 <= first <= last <= MAX_EXTENT or by < (2 if how == "x" else 1):
        raise ProblemError(
            f"{part[:80]!r} does not increase: 1 <= first <= last <= {MAX_EXTENT:,}, a factor of 2 or more, a step of "
            f"1 or more"
        )
    if how == "+":
        return list(range(first, last + 1, by)[: MOST_PROBLEMS + 1])
    numbers = [first]
    while numbers[-1] * by <= last:
        numbers.append(numbers[-1] * by)
    return numbers
