"""Schemas of problems, whose fields are those of the registered problem kinds."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, cast, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from api.derived import with_fields
from space import problem as problems
from space.kind import DEFAULT_KIND, KINDS, kind_named
from space.problem import Problem
from tuner import numbers

#: A query parameter is present or absent but never null; its JSON schema leaves null out.
Absent = SkipJsonSchema[None]


def _digits(given: Any) -> Any:  # noqa: ANN401  (a query's text, or a default)
    if isinstance(given, str) and not numbers.WHOLE.fullmatch(given):
        raise ValueError("give a whole number in digits, as in 4096")
    return given


#: Of a whole number in a query, behind its bounds: in front of them the description would lack them.
DIGITS: Final = BeforeValidator(_digits)


def _decimal(given: Any) -> Any:  # noqa: ANN401  (as above)
    if isinstance(given, str) and not numbers.DECIMAL.fullmatch(given):
        raise ValueError("give a number in digits, as in 1.05")
    return given


#: The same of any number in a query.
DECIMAL: Final = BeforeValidator(_decimal)

#: Longest text of a field.
_MOST_TEXT: Final = 60
#: Several times the fields of any object.
MOST_FIELDS: Final = 200


_KIND = Annotated[str, Field(max_length=_MOST_TEXT, description=f"problem kind: {', '.join(KINDS)}")]


def check_count(given: Any) -> Any:  # noqa: ANN401  (a JSON value)
    """Refuses an object with very many fields before each of them becomes an error of its own, which takes longer."""
    if isinstance(given, dict) and len(given) > MOST_FIELDS:
        raise PydanticCustomError(
            "too_many_fields", "an object with {count} fields, of at most {most}: compare it with /openapi.json",
            {"count": len(given), "most": MOST_FIELDS},
        )  # fmt: skip
    return given


def _asked(*of_numbers: BeforeValidator) -> dict[str, Any]:
    """The type of a question's field. It is optional if some kind lacks the field or has another default.

    Args:
        of_numbers: what else whole numbers are checked by.
    """
    uses: dict[str, list[problems.Field]] = {}
    for kind in KINDS.values():
        for field in kind.fields:
            uses.setdefault(field.name, []).append(field)
    found: dict[str, Any] = {}
    for name, fields in uses.items():
        defaults = {field.default for field in fields}
        if len(fields) < len(KINDS) or len(defaults) > 1:
            found[name] = (_type(fields[0], *of_numbers) | Absent, None)
        else:
            found[name] = (_type(fields[0], *of_numbers), ... if defaults == {None} else fields[0].default)
    return found


def _type(field: problems.Field, *of_numbers: BeforeValidator) -> Any:  # noqa: ANN401  (an annotated type)
    if field.type is int:
        return Annotated[int, Field(ge=field.least, le=field.most, description=field.help), *of_numbers]
    return Annotated[str, Field(max_length=_MOST_TEXT, description=field.help)]


def _answered() -> dict[str, Any]:
    """What every kind's `Problem.document` has."""
    hints = [get_type_hints(kind.problem) for kind in KINDS.values()]
    members = [[member.name for member in dataclasses.fields(cast(Any, kind.problem))] for kind in KINDS.values()]
    common = [name for name in members[0] if all(name in other for other in members)]
    return {name: (hints[0][name], ...) for name in common}


@with_fields(_asked(DIGITS))
class ProblemQuery(BaseModel):
    """A problem in a query string."""

    # Unknown fields are rejected, so that a typo is not mistaken for a default.
    model_config = ConfigDict(extra="forbid")
    _check_count = model_validator(mode="before")(check_count)

    kind: _KIND = DEFAULT_KIND

    def problem(self) -> Problem:
        """The problem.

        Raises:
            ProblemError: unknown kind, a field of another kind, or values that the kind refuses.
        """
        # A + in a query string decodes to a space, which no field's text contains.
        given = self.given()
        given |= {name: value.replace(" ", "+") for name, value in given.items() if isinstance(value, str)}
        return kind_named(self.kind).of(given)

    def given(self) -> dict[str, Any]:
        """The given fields, without the kind."""
        return {name: self.__dict__[name] for name in self.model_fields_set if name in _FIELDS}


_FIELDS: Final = frozenset(ProblemQuery.model_fields) - {"kind"}
#: Whether some kind lacks a field of another, so that absent ones must be left out.
_OPTIONAL: Final = any(info.default is None for info in ProblemQuery.model_fields.values())


@with_fields({name: (hint | Absent, None) for name, (hint, _) in (_asked(DIGITS) | {"kind": (_KIND, None)}).items()})
class ProblemFilter(BaseModel):
    """Fields of a problem, as a filter: all of them may be absent."""

    def problem_or_none(self) -> Problem | None:
        """The problem that the fields describe; None where none was given.

        Raises:
            ProblemError: the fields are incomplete or wrong.
        """
        given = {name: self.__dict__[name] for name in self.model_fields_set if name in _FIELDS}
        words = {name: value.replace(" ", "+") if isinstance(value, str) else value for name, value in given.items()}
        kind: str | None = self.__dict__["kind"]
        return kind_named(kind or DEFAULT_KIND).of(words) if words or kind else None


@with_fields(_asked())
class ProblemIn(ProblemQuery):
    """A problem in a JSON body, where numbers must be numbers, not strings or booleans."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def problem(self) -> Problem:
        """The problem.

        Raises:
            ProblemError: unknown kind, a field of another kind, or values that the kind refuses.
        """
        return kind_named(self.kind).of(self.given())

    @property
    def key(self) -> str | None:
        """The problem's key if the problem is valid, at a tenth of the cost of a `Problem`: for lookups."""
        kind = KINDS.get(self.kind)
        if kind is None:
            return None
        if _OPTIONAL or kind.quick_key is None:
            return kind.key_of(self.given())
        return kind.quick_key(**self.__dict__)


@with_fields(_answered())
class ProblemOut(BaseModel):
    """A problem with its kind and key; members that only its kind has are included."""

    model_config = ConfigDict(extra="allow")

    key: str
    kind: str
    dtype: str

    @model_validator(mode="before")
    @classmethod
    def of(cls, problem: Any) -> Any:  # noqa: ANN401  (a problem, or what was made of one)
        return problem.document() if isinstance(problem, Problem) else problem
