"""Options that name a problem: one for each field of the registered problem kinds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import typer

from space.errors import ProblemError
from space.kind import DEFAULT_KIND, KINDS, kind_named
from space.problem import Field, ProblemKind
from tuner.cli.commands import Deferred

_EXAMPLE: Final = "4096"


def asks_problem(command: Callable[..., None]) -> Deferred:
    """A command whose first parameter is a Problem, named by its shape and the options of its other fields."""

    return Deferred(lambda: _with_options(command, "shape", lambda kind, shape: kind.parse_shape(shape)))


def asks_weight(command: Callable[..., None]) -> Deferred:
    """A command whose first parameter is a Problem with one row, named by its weight and its other fields."""

    def extents(kind: ProblemKind, weight: str) -> dict[str, int]:
        rest = kind.shape[1:]
        if weight.lower().count("x") != len(rest) - 1:
            pattern, example = "x".join(map(str.upper, rest)), "x".join(_EXAMPLE for _ in rest)
            raise ProblemError(f"weight {weight[:80]!r} is not {pattern}: write whole numbers, as in {example}")
        return kind.parse_shape(f"1x{weight}")

    return Deferred(lambda: _with_options(command, "weight", extents))


def _with_options(
    command: Callable[..., None], argument: str, extents: Callable[[ProblemKind, str], dict[str, int]]
) -> Callable[..., None]:
    """The command as Typer calls it: the problem's parameters, then those of the command."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    options = {field.name: (field, text) for field, text in _fields()}

    def asked(**given: Any) -> None:  # noqa: ANN401  (values of any option)
        fields = {name: given.pop(name) for name in options}
        said = {name: value for name, value in fields.items() if value is not None}
        kind = kind_named(given.pop("kind"))
        command(kind.of(extents(kind, given.pop(argument)) | said), **given)

    kinds = typer.Option(help=f"Problem kind: {', '.join(KINDS)}.")
    parameters = [
        _parameter(argument, str, _argument(argument)),
        *(_parameter(field.name, field.type | None, _option(field, text), None) for field, text in options.values()),
        _parameter("kind", str, kinds, DEFAULT_KIND),
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
    ]
    asked.__name__, asked.__doc__, asked.__annotations__ = command.__name__, command.__doc__, {}
    asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return asked


def _parameter(name: str, type_: Any, info: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:  # noqa: ANN401  (Typer's)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[type_, info])


def _option(field: Field, text: str) -> Any:  # noqa: ANN401  (Typer's OptionInfo)
    return typer.Option(help=text, min=field.least if field.type is int else None)


def _argument(name: str) -> Any:  # noqa: ANN401  (Typer's ArgumentInfo)
    """The shape, or what is left of it without its first extent."""
    shapes = dict.fromkeys(kind.shape[name == "weight" :] for kind in KINDS.values())
    what = "the weight" if name == "weight" else KINDS[DEFAULT_KIND].product
    example = "x".join(_EXAMPLE for _ in next(iter(shapes)))
    metavar = "|".join("x".join(map(str.upper, shape)) for shape in shapes)
    return typer.Argument(metavar=metavar, help=f"Extents of {what}, as in {example}.")


def _fields() -> Iterator[tuple[Field, str]]:
    """Every kind's fields beside its shape, each with its help; the first kind that has one describes it."""
    found: dict[str, list[tuple[ProblemKind, Field]]] = {}
    for kind in KINDS.values():
        for field in kind.fields:
            if field.name not in kind.shape:
                found.setdefault(field.name, []).append((kind, field))
    for uses in found.values():
        _, field = uses[0]
        of = "" if len(uses) == len(KINDS) else f" For {', '.join(kind.name for kind, _ in uses)} alone."
        # Typer gets no default: the kind checks only what was said. A bare bracket would be markup to Rich.
        default = f" \\[default: {field.default}]" if field.default is not None else ""
        yield field, f"{field.help}{of}{default}"
