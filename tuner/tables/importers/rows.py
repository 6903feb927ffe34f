"""Our CSV: a header that names the fields of a problem, and optionally `count`. Exported rows are read as well.

Capitals in the header are as good as small letters.
"""

from __future__ import annotations

import csv
import re
from typing import Any, Final

from space.errors import ProblemError
from space.kind import DEFAULT_KIND, KINDS
from space.problem import Problem
from tuner.tables.importers.source import Asked, Source
from tuner.tables.problems import COLUMNS, count_of, from_fields, number
from tuner.tables.shapes import Shapes, Tally

READS: Final = "a CSV list with a header that names the fields of a problem (m,n,k,dtype,layout,…,count)"
#: Whole numbers, also those beyond every extent: the problem says which it takes. No digits of other scripts.
_WHOLE: Final = re.compile("-?[0-9]{1,40}")
#: Different rows whose problems are remembered: long lists repeat few.
_MOST_KNOWN: Final = 100_000


def recognizes(source: Source) -> bool:
    """Whether the first line is a header with an extent, or a file named `.csv` that nothing else recognizes."""
    header = source.head.partition("\n")[0]
    names = [name.strip().strip('"').lower() for name in header.split(_separator(header))]
    return not source.head.lstrip().startswith(("{", "[")) and ("k" in names or source.path.suffix.lower() == ".csv")


def read(source: Source, asked: Asked) -> Shapes:
    """The problems of all rows, in order.

    Raises:
        ProblemError: the file is not CSV, or a row is invalid.
    """
    tally, where = Tally(), str(source.path)
    # With its end: what stands between quotes may go over several lines.
    lines = (f"{line}\n" for _, line in source.lines())
    known: dict[tuple[str, ...], tuple[Problem, int]] = {}
    rows = csv.reader(lines, strict=True, delimiter=_separator(source.head.partition("\n")[0]))
    try:
        header = [name.strip().lower() for name in next(rows, [])]
        _check(header, where)
        for row in rows:
            if not any(map(str.strip, row)):
                continue  # spreadsheets write empty rows below the last one
            place = f"{where}, line {rows.line_num}"
            found = known.get(tuple(row))
            if found is None:
                found = _problem(header, row, place)
                if len(known) < _MOST_KNOWN:
                    known[tuple(row)] = found
            tally.add(*found, place)
    except csv.Error as error:
        raise ProblemError(f"{where}, line {rows.line_num} is not valid CSV ({error})") from error
    return tally.shapes()


def _separator(header: str) -> str:
    """What stands between fields: spreadsheets write semicolons where a comma is in numbers, or tabs."""
    return max(",;\t", key=header.count)


def _check(header: list[str], where: str) -> None:
    if not {field.name for kind in KINDS.values() for field in kind.fields}.intersection(header):
        raise ProblemError(f"{where} has no header: begin it with a line that names the fields, as in m,n,k,count")
    if twice := next((name for name in header if name and header.count(name) > 1), ""):
        raise ProblemError(f"{where}, line 1 names {twice[:80]!r} twice: name each field once")


def _problem(header: list[str], row: list[str], place: str) -> tuple[Problem, int]:
    if len(row) != len(header):
        raise ProblemError(f"{place} and the header differ in length: give every field, or leave it empty")
    texts = {name: value.strip() for name, value in zip(header, row, strict=True)}
    for name in COLUMNS:  # what an export says of the best
        texts.pop(name, None)
    if not texts.get(""):
        texts.pop("", None)  # a spreadsheet's empty columns
    numbers = _number_fields(texts.get("kind"))
    fields: dict[str, Any] = {name: number(text, _WHOLE) if name in numbers else text for name, text in texts.items()}
    return from_fields(fields, place), count_of(texts, place)


def _number_fields(kind: str | None) -> set[str]:
    """Names of the whole-number fields of a row's kind; none if the kind is unknown, which `from_fields` reports."""
    known = KINDS.get(kind or DEFAULT_KIND)
    return {field.name for field in known.fields if field.type is int} if known else set()
