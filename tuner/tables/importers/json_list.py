"""Our JSON: a list of objects with the fields of a problem, or an exported table."""

from __future__ import annotations

from typing import Any, Final

from space.errors import ProblemError
from space.kind import problem_from_key
from space.problem import Problem
from tuner.tables.entries import content_of
from tuner.tables.importers.source import Asked, Source
from tuner.tables.problems import count_of, from_fields
from tuner.tables.shapes import Shapes, Tally
from tuner.tables.tables import SCHEMA, other_than_a_table

READS: Final = "a JSON list of objects with the fields of a problem, or a table that `gemmtune export` wrote"
_MOST_CHARACTERS: Final = 256 << 20


def recognizes(source: Source) -> bool:
    """Whether the file is a JSON list, or an object that names our schema."""
    return source.head.lstrip().startswith("[") or (
        source.head.lstrip().startswith("{")
        and ('"gemmtune.table/' in source.head or source.path.suffix.lower() == ".json")
    )


def read(source: Source, asked: Asked) -> Shapes:
    """The problems of all entries, in order.

    Raises:
        ProblemError: the file is not JSON of this form, or an entry is invalid.
    """
    where = str(source.path)
    document = source.document(_MOST_CHARACTERS)
    if isinstance(document, dict) and "schema" in document:
        return _of_table(document, where)
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise ProblemError(f"{where} is not a list of problems: give a list of objects with m, n and k")
    tally = Tally()
    for number, entry in enumerate(document, 1):
        place = f"{where}, entry {number}"
        tally.add(from_fields(entry, place), count_of(entry, place), place)
    return tally.shapes()


def _of_table(document: dict[str, Any], where: str) -> Shapes:
    if document["schema"] != SCHEMA:
        raise ProblemError(f"{where} is {other_than_a_table(document['schema'])}")
    tally = Tally()
    try:
        keys = [entry["problem"]["key"] for entry in document["entries"]] + list(document.get("library") or ())
        if content_of(document) != document["content"]:
            raise ProblemError(f"{where} was changed: its content does not match its hash; export it again")
        for number, key in enumerate(keys, 1):
            place = f"{where}, problem {number}"
            tally.add(_problem(key, place), 1, place)
    except (KeyError, TypeError, AttributeError) as error:
        raise ProblemError(f"{where} is not a table ({error!r}): export it again") from error
    return tally.shapes()


def _problem(key: str, place: str) -> Problem:
    try:
        return problem_from_key(key)
    except ProblemError as error:  # of a newer gemmtune's kind or dtype
        raise ProblemError(f"{place}: {error}") from error
