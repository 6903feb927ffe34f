"""Options of an export beside its table and format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: The measured program of a table's entry, or why there is none.
Program = Callable[[Mapping[str, Any]], bytes | str]

#: A table's entry as a plan, which launches it without knowing configs (`gemmtune.hpp`), or the library's algorithm as
#: text (`gemmtune/cublaslt.hpp`); empty for a library's entry that names no more than a rank.
Plan = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What a caller asks of an exporter.

    Attributes:
        name: file name that the caller asked for.
        gpus: device ordinals that get a file of their own, where a consumer reads one each.
        torch: PyTorch's version, as in `2.14.1`, where a consumer compares it.
        program, plan: find programs and plans, where a format ships them.
    """

    name: str
    gpus: int = 1
    torch: str = ""
    program: Program | None = None
    plan: Plan | None = None
