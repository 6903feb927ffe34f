"""Output of commands: rich text on a terminal, plain lines elsewhere, one JSON document with `--json`."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from space.config import Config
from space.families.cublaslt import NOT_LISTED
from space.problem import Problem
from tuner.evidence.picks import LEFT_OUT, LIBRARY
from tuner.evidence.records import Best, Ratio
from tuner.tables.entries import config_document, entry, fields


def visible(text: str) -> str:
    """`text` with control characters, and those that reorder others, as escapes such as `\\x1b`."""
    if text.isprintable():
        return text
    hidden = (char for char in set(text) if unicodedata.category(char).startswith("C") and char not in "\n\t")
    return text.translate({ord(char): char.encode("unicode_escape").decode() for char in hidden})


class _Console(Console):
    """A console whose terminal takes no orders from the texts that it shows: a worker's reasons are anybody's words."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401  (rich's)
        return super().render_str(visible(text), **options)


#: Messages for people go to standard error; standard output is left to results.
notes = _Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
console = _Console(highlight=False, soft_wrap=True, markup=False)
Result = TypeVar("Result")
#: Least width of tables where there is no terminal.
PLAIN_COLUMNS: Final = 100
#: Cells of up to this many characters are not wrapped while there are longer ones to wrap.
SHORT: Final = 22

#: Members of a table's entry that `best --json` leaves out.
_IN_TABLES_ONLY: Final = ("runner_up", "samples_us", "note", "build_digest", "study_id")


def emit(document: object) -> None:
    """Prints one JSON document on standard output; it may hold any of our values."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, default=_plain) + "\n")


def show(result: Result, as_json: bool, text: Callable[[Result], None]) -> None:
    """Prints a result: as `text` does, or with `--json` as a document."""
    if as_json:
        emit(result)
    else:
        text(result)


def say(line: str, document: object, as_json: bool) -> None:
    """Prints a result: one line, or with `--json` a document."""
    show(document, as_json, lambda _: console.print(line))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table with right-aligned numbers. Where it is too wide, its longest columns wrap first."""
    width = console.width if console.is_terminal else max(console.width, PLAIN_COLUMNS)
    needed = [max(map(len, [name, *(str(row[place]) for row in rows)])) for place, name in enumerate(columns)]
    whole = {place for place, one in enumerate(needed) if one <= SHORT}
    left = width - sum(needed[place] + 2 for place in whole)
    if left < SHORT * (len(columns) - len(whole)):
        whole = set()
    grid = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        numeric = bool(rows) and all(str(row[place]).replace(",", "").replace(".", "").isdigit() for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=place in whole)
    for row in rows:
        grid.add_row(*(str(cell) for cell in row))
    if console.is_terminal:
        console.print(grid)
    else:
        _Console(file=console.file, width=width, highlight=False, markup=False).print(grid)


def ratio_text(ratio: Ratio | None) -> str:
    """`1.021 (95 % 1.018 to 1.024)`."""
    if ratio is None:
        return "not measured"
    how = "" if ratio.paired else ", unpaired"
    return f"{ratio.value:.3f} (95 % {ratio.low:.3f} to {ratio.high:.3f}{how})"


def print_comparison(best: Best) -> None:
    """Prints a best's energy where it was counted, and its ratios to cuBLASLt.

    Where one of cuBLASLt's own candidates is the best, says so instead of ratios, but for one that shows another ahead.
    """
    if (joules := best.winner.measurement.product_joules) is not None:
        console.print(f"  {joules:.4g} J a product")
    if best.config.family == LIBRARY:
        ratio = best.versus_first
        ahead = f", {ratio.value:.3f} times as fast as its first choice" if ratio and ratio.low > 1 else ""
        unlisted = ", which its heuristic doesn't list," if NOT_LISTED in best.winner.measurement.note else ""
        console.print(f"  cuBLASLt's own candidate{unlisted} wins here{ahead}; each of ours {LEFT_OUT}")
        if best.versus_best and best.versus_best.high < 1:
            console.print(f"  against the best of its candidates  {ratio_text(best.versus_best)}")
            console.print("  those ahead of it tie with it, or lose too much under another policy too")
        return
    console.print(f"  against cuBLASLt's first choice     {ratio_text(best.versus_first)}")
    console.print(f"  against the best of its candidates  {ratio_text(best.versus_best)}")


def best_json(best: Best) -> dict[str, Any]:
    """A best with its evidence as JSON: the table's entry, with the number of samples in place of the samples."""
    found = entry(best) | {"device": best.device, "samples": len(best.winner.measurement.samples_us)}
    return {name: value for name, value in found.items() if name not in _IN_TABLES_ONLY}


def _plain(value: Any) -> Any:  # noqa: ANN401  (any of our values)
    """What `json` encodes in place of a value that it does not know; a dataclass becomes its fields."""
    match value:
        case Problem():
            return value.document()
        case Config():
            return config_document(value)
        case datetime():
            return value.isoformat()
        case frozenset():
            return sorted(value)
        case _:
            return fields(value)
