"""CUTLASS's list of problems: JSON for CUTLASS_LIBRARY_HEURISTICS_PROBLEMS_FILE."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from space.errors import ProblemError
from space.kinds.gemm import SUMS, Gemm
from tuner.tables.importers.source import Asked, Source
from tuner.tables.shapes import Shapes, Tally

READS: Final = 'CUTLASS\'s problems as JSON, with "layout": "tnt" and "dtype_a"'
_MOST_CHARACTERS: Final = 64 << 20
_LAYOUT: Final = re.compile(r'"layout"\s*:\s*"[nt]{3}"')
_LETTERS: Final = re.compile("[nt]{3}")
_DTYPES: Final = {
    "f16": "fp16", "bf16": "bf16", "f32": "f32", "tf32": "tf32", "e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2", "s8": "int8",
    "u8": "uint8", "s32": "s32",
}  # fmt: skip


def recognizes(source: Source) -> bool:
    """Whether the file is a JSON list whose layouts have three letters."""
    return source.head.lstrip().startswith("[") and bool(_LAYOUT.search(source.head))


def read(source: Source, asked: Asked) -> Shapes:
    """The problems of all entries.

    Raises:
        ProblemError: the file is not JSON of this form, or an entry is invalid.
    """
    tally, where = Tally(), str(source.path)
    entries = source.document(_MOST_CHARACTERS)
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries], 1):
        place = f"{where}, entry {number}"
        if not isinstance(entry, dict):
            raise ProblemError(f"{place} is not an object with m, n, k, layout and dtype_a")
        try:
            found = _problem(entry, asked.tf32)
        except KeyError as error:
            raise ProblemError(f"{place} has no {error.args[0]}") from error
        except (ProblemError, TypeError, ValueError) as error:
            raise ProblemError(f"{place}: {error}") from error
        if isinstance(found, str):
            tally.leave_out(found)
        else:
            tally.add(found, 1, place)
    return tally.shapes()


def _problem(entry: Mapping[str, Any], tf32: bool) -> Gemm | str:
    """An entry as a problem. Its letters are BLAS's: `t` has dense rows, `n` dense columns."""
    layout = str(entry["layout"])
    if not _LETTERS.fullmatch(layout):
        raise ProblemError(f"layout = {layout[:80]!r} is not three letters n or t, as in tnt")
    a, b, c = list(layout)
    m, n = entry["m"], entry["n"]
    # CUTLASS takes them in capitals too.
    words = [str(entry[name]).lower() for name in ("dtype_a", "dtype_b", "dtype_d")]
    dtypes = [_DTYPES.get(word, "") for word in words]
    if dtypes[:2] == ["f32", "f32"] and not tf32:
        return "f32 products in full precision: say --tf32 if the program allows tf32"
    first, second, output = ("tf32" if each == "f32" and place < 2 else each for place, each in enumerate(dtypes))
    if not (first and second and output):
        return f"{' × '.join(words[:2])} → {words[2]} products: gemmtune has no kernels for them"
    letters = ("n" if a == "t" else "t") + ("n" if b == "t" else "t")
    if c == "n":
        # C with dense columns is the transposed product with dense rows.
        m, n, first, second = n, m, second, first
        letters = ("n" if b == "n" else "t") + ("n" if a == "n" else "t")
    eight = first.startswith("fp8")
    summed = str(entry.get("dtype_acc") or ("s32" if first in ("int8", "uint8") else "f32")).lower()
    total = _DTYPES.get(summed, "")
    if total not in SUMS.get(first, ()):
        return f"{' × '.join(words[:2])} products summed in {summed}: gemmtune has no kernels for them"
    if eight and total == "f32" and entry.get("use_fast_acc") is False:
        total = "f32_promoted"
    added = str(entry.get("dtype_c") or words[2]).lower()
    if entry.get("beta") and added != words[2]:
        return f"products that add a matrix of {added} to a result in {words[2]}: gemmtune has no kernels for them"
    parts = {"alpha": entry.get("alpha", 1) != 1, "beta": entry.get("beta")}
    epilogue = "+".join(part for part, has in parts.items() if has) or "none"
    return Gemm(m, n, entry["k"], first, second, output, total, letters, entry.get("batch_count", 1), epilogue)
