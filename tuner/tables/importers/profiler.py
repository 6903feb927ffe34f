"""torch profiler traces: matrix products with extents, strides and dtypes, as often as they ran."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from space.errors import ProblemError
from tuner.tables.importers.products import ADDING, FACTORS, GROUPED, OPERATORS, OTHERS, Array, count_product
from tuner.tables.importers.source import MOST_LINE, Asked, Source
from tuner.tables.shapes import Shapes, Tally

READS: Final = "a torch profiler trace (.json, .json.gz) that was recorded with record_shapes=True"
_EVENTS: Final = re.compile(r'"traceEvents"\s*:\s*\[')
_NUMBER: Final = range(2**62)
#: Last argument of `_scaled_mm` that says how 8-bit floats are summed.
_FAST: Final = 7
#: How many scalars `ADDING` take that are asked for no dtype of C: beta and alpha.
_SCALARS: Final = 2
#: Numbers of c10::ScalarType.
_SCALAR_TYPES: Final = {
    "3": "int32", "5": "float16", "6": "float32", "15": "bfloat16", "23": "float8_e5m2", "24": "float8_e4m3fn",
}  # fmt: skip
_EIGHT_BITS: Final = ("_scaled_mm", "_int_mm")
_BATCHES, _MATRICES = ("baddbmm", "baddbmm_"), ("addmm", "addmm_")
_MOST_THREADS: Final = 1_000
#: Dimensions of a tensor of torch.
_MOST_DIMENSIONS: Final = 64
_GAP: Final = re.compile(r"[ \t\r\n,]*")


def recognizes(source: Source) -> bool:
    """Whether the file is a Chrome trace."""
    text = source.head.lstrip()
    return text.startswith("{") and ('"traceEvents"' in text or '"traceName"' in text or '"deviceProperties"' in text)


def read(source: Source, asked: Asked) -> Shapes:
    """The products of all events.

    Raises:
        ProblemError: the file is not a trace, is cut off, or has no shapes.
    """
    tally, named, shaped = Tally(), 0, 0
    calls = _Calls()
    for number, event in _events(source):
        operator = str(event.get("name", "")).removeprefix("aten::")
        arguments = event.get("args")
        if not str(event.get("name", "")).startswith("aten::") or not isinstance(arguments, dict):
            continue
        if operator in GROUPED:
            tally.leave_out("grouped products: gemmtune tunes no experts yet")
        if operator in OTHERS:
            tally.leave_out(f"products of {operator}, which gemmtune does not read")
        if operator not in OPERATORS:
            continue
        named += 1
        place = f"{source.path}, event {number}"
        arrays = _arrays(arguments, place)
        if arrays:
            shaped += 1
            said = arguments.get("Concrete Inputs")
            concrete = said if isinstance(said, list) else []
            fast = len(concrete) <= _FAST or str(concrete[_FAST]) == "True"
            output = _output(operator, concrete, arrays[0])
            factors = _factors(concrete) if operator in ADDING else FACTORS
            counted = partial(count_product, tally, operator, arrays, output, place, asked.tf32)
            calls.add(event, operator, partial(counted, fast=fast, factors=factors))
    calls.end()
    if named and not shaped:
        raise ProblemError(f"{source.path} has {named:,} products without shapes: record with record_shapes=True")
    tally.note("replayed CUDA graphs do not appear in a trace: record with graphs off")
    return tally.shapes()


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a product's operator, from when to when it ran, and what counts it."""

    began: float
    ended: float
    operator: str
    count: Callable[[], None]

    def holds(self, other: _Call) -> bool:
        """Whether another call of the same thread ran inside of this one."""
        inside = self.began <= other.began and other.ended <= self.ended
        return inside and (self.began, self.ended) != (other.began, other.ended)

    def computed_by(self, inner: _Call) -> bool:
        """Whether a product inside of it computes a part of it, as on the processor."""
        return self.operator in _EIGHT_BITS or (self.operator in _BATCHES and inner.operator in _MATRICES)


class _Calls:
    """Counts products in the order of their calls, without the calls that only called them again.

    Under autocast an operator is called with what it was given, and, inside of that, with what it computes; under
    `vmap` for one sample, and inside for all. Products inside of one of 8-bit numbers, and matrices inside of a
    batch, compute it for the processor.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], _Call] = {}

    def add(self, event: Mapping[str, Any], operator: str, count: Callable[[], None]) -> None:
        """One more; a trace has what is inside of a call after that call."""
        began, took = event.get("ts"), event.get("dur")
        if not isinstance(began, int | float) or not isinstance(took, int | float):
            return count()
        call = _Call(began, began + took, operator, count)
        thread = (str(event.get("pid")), str(event.get("tid")))
        if (last := self._last.pop(thread, None)) and not last.holds(call):
            last.count()
        elif last and last.computed_by(call):
            call = last
        if len(self._last) >= _MOST_THREADS:
            self.end()
        self._last[thread] = call
        return None

    def end(self) -> None:
        """Counts each thread's last call."""
        last, self._last = self._last, {}
        for call in last.values():
            call.count()


def _events(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbered members of `traceEvents`, one by one, with one event and one chunk in memory."""
    decoder, text, chunks = json.JSONDecoder(), "", source.chunks()
    while (found := _EVENTS.search(text)) is None:
        piece = next(chunks, "")
        if not piece or len(text) > 16 * MOST_LINE:
            raise ProblemError(f"{source.path} is not a trace: it has no traceEvents")
        text += piece
    place, number = found.end(), 1
    while True:
        gap = _GAP.match(text, place)
        place = gap.end() if gap else place
        if text[place : place + 1] == "]":
            return
        try:
            event, place = decoder.raw_decode(text, place)
        except RecursionError as error:
            raise ProblemError(f"{source.path} is not a trace: event {number} is nested too deeply") from error
        except ValueError as error:
            left = text[place:]
            if len(left) > MOST_LINE:
                why = _why(error)
                raise ProblemError(f"{source.path} is not a trace: event {number} can't be read ({why})") from error
            piece = next(chunks, "")
            if not piece:
                raise ProblemError(f"{source.path} is cut off, or event {number} is broken ({_why(error)})") from error
            text, place = left + piece, 0
            continue
        if isinstance(event, dict):
            yield number, event
        number += 1


def _why(error: ValueError) -> str:
    """Why text is not JSON; without the place, which is that in a piece of the file."""
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def _arrays(arguments: dict[str, Any], place: str) -> list[Array | None]:
    """The arguments of an operator; empty without shapes."""
    dims, strides, types = (arguments.get(name) for name in ("Input Dims", "Input Strides", "Input type"))
    if not isinstance(dims, list) or not isinstance(types, list):
        return []
    told = strides if isinstance(strides, list) else None
    found: list[Array | None] = []
    for shape, steps, word in zip(dims, map(_dense_strides, dims) if told is None else told, types, strict=False):
        sparse = told is not None and steps == []  # such tensors have no strides
        if not isinstance(shape, list) or not isinstance(word, str) or not shape or sparse:
            found.append(None)
        elif not isinstance(steps, list) or len(steps) != len(shape) or not _whole(shape) or not _whole(steps):
            raise ProblemError(f"{place}: {str(shape)[:80]} and {str(steps)[:80]} are not extents with strides")
        else:
            found.append(Array(tuple(shape), tuple(steps), word))
    return found


def _dense_strides(shape: object) -> list[int]:
    """Strides without gaps; none for what is no shape."""
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS or not _whole(shape):
        return []
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return strides[::-1]


def _whole(numbers: list[Any]) -> bool:
    return all(isinstance(each, int) and not isinstance(each, bool) and each in _NUMBER for each in numbers)


def _output(operator: str, concrete: list[Any], a: Array | None) -> str:
    """Dtype of C that the operator was asked for, which traces spell as a number of c10::ScalarType."""
    if operator == "_scaled_mm":
        said = concrete[_FAST - 1 : _FAST]
        if said == [""] and a is not None:
            return a.dtype  # asked for none, it has that of A
    else:
        # beta and alpha follow the dtype.
        scalars = _scalars(concrete)
        said = scalars[:1] if len(scalars) > (_SCALARS if operator in ADDING else 0) else []
    return _SCALAR_TYPES.get(str(said[0]), "") if said else ""


def _factors(concrete: list[Any]) -> tuple[float, float]:
    """beta and alpha, the last scalars; 1 where a trace does not say them as numbers."""
    scalars = _scalars(concrete)[-_SCALARS:]
    try:
        beta, alpha = map(float, scalars)
    except (TypeError, ValueError, OverflowError):
        return FACTORS
    return beta, alpha


def _scalars(concrete: list[Any]) -> list[Any]:
    """The arguments that are no tensors, which are empty in a trace."""
    return [each for each in concrete if each != ""]
