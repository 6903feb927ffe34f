"""Parses the problems that benchmarks take: on the command line, and from lists like `benchmarks/problems/dev.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from tuner.members import each_once
from tuner.tables.problems import from_fields


def problem_of(text: str) -> Gemm:
    """The problem of `DTYPE:MxNxK`, with layout `nt` like a Linear's weight.

    Raises:
        ProblemError: the text is none.
    """
    dtype, colon, shape = text.partition(":")
    if not colon:
        raise ProblemError(f"problem {text[:80]!r} is not DTYPE:MxNxK: write it as in bf16:4096x4096x4096")
    return Gemm.parse(shape, dtype)


def named_problems(path: Path) -> Iterator[tuple[str, str, Gemm]]:
    """Name, class and problem of each entry of a list; names differ, as tables and parts of them are kept by name.

    Raises:
        ProblemError: the file is no list of problems; with the entry.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=each_once)
    except (OSError, ValueError) as error:
        raise ProblemError(f"{path} can't be read ({error}): give a JSON list of problems") from error
    if not isinstance(entries, list):
        raise ProblemError(f"{path} is no JSON list: give [{{name, class, m, n, k, dtype, layout}}, …]")
    taken = set[str]()
    for place, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise ProblemError(f"{path}, entry {place}: {str(entry)[:80]!r} is no object of name, m, n, k and more")
        problem = problem_of_entry(entry, f"{path}, entry {place}")
        said = str(entry.get("name") or problem.title)
        names = (said if number == 1 else f"{said} ({number})" for number in count(1))
        name = next(each for each in names if each not in taken)
        taken.add(name)
        yield name, str(entry.get("class") or "none"), problem


def problem_of_entry(entry: Mapping[str, Any], where: str) -> Gemm:
    """The problem of one entry of a list, with the fields and defaults of a campaign's.

    Raises:
        ProblemError: a field is missing, unknown, or outside its domain; with `where`.
    """
    found = from_fields(entry, where)
    if not isinstance(found, Gemm):
        raise ProblemError(f"{where}: {found.kind} problems have no benchmark here: give gemm")
    return found
