"""JSON texts of float columns: writing digits takes most of a document's time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

#: Rows that are written together, and written again when one of them changes.
_BLOCK: Final = 256
Floats = npt.NDArray[np.floating[Any]]


class WrittenColumns:
    """Keeps each column's text, and rewrites only the rows that changed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], tuple[Floats, list[tuple[int, bytes]]]] = {}

    def within(self, document: dict[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
        """A document with its float columns as JSON texts, in which NaN is null.

        Args:
            path: names of the document; each column is made from the last one of the same path and name.
        """
        found: dict[str, Any] = {}
        for name, value in document.items():
            if isinstance(value, dict):
                found[name] = self.within(value, (*path, name))
            elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
                found[name] = self._text((*path, name), value)
            else:
                found[name] = value
        return found

    def _text(self, path: tuple[str, ...], column: Floats) -> orjson.Fragment:
        before, blocks = self._kept.get(path, (column[:0], []))
        same_first, same_last = _alike(before, column)
        head, first = _within(blocks, same_first)
        tail, last = _within(blocks[::-1], same_last)
        changed = column[first : len(column) - last]
        parts = np.array_split(changed, max(1, round(len(changed) / _BLOCK))) if len(changed) else []
        blocks = [*head, *map(_block, parts), *tail[::-1]]
        self._kept[path] = column, blocks
        return orjson.Fragment(b"[" + b",".join(text for _, text in blocks) + b"]")


def _alike(before: Floats, after: Floats) -> tuple[int, int]:
    """How many rows at the beginning, and how many of the others at the end, are the same in both."""
    # As integers, NaN equals itself.
    whole = f"i{after.itemsize}"
    old, new = before.view(whole), after.view(whole)
    count = min(len(old), len(new))
    differ = np.flatnonzero(old[:count] != new[:count])
    first = int(differ[0]) if len(differ) else count
    differ = np.flatnonzero(old[len(old) - count :] != new[len(new) - count :])
    last = count - 1 - int(differ[-1]) if len(differ) else count
    return first, min(last, count - first)


def _within(blocks: list[tuple[int, bytes]], rows: int) -> tuple[list[tuple[int, bytes]], int]:
    """The first blocks that lie within so many rows, and their rows together."""
    ends = np.cumsum([count for count, _ in blocks])
    found = blocks[: int(np.searchsorted(ends, rows, "right"))]
    return found, sum(count for count, _ in found)


def _block(rows: Floats) -> tuple[int, bytes]:
    return len(rows), orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
