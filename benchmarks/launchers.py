"""What the benchmarks of launchers share: a row for each problem within a budget of time, and their operands."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import torch

from benchmarks.published import add_out
from gemmtune.torch.expected import Expected
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy


class Row(Protocol):
    """One problem's results."""

    @property
    def good(self) -> bool:
        """Whether they are right, and within the bound of time."""


Item = TypeVar("Item")
Found = TypeVar("Found", bound=Row)


def options_of(about: str | None, seconds: float) -> argparse.ArgumentParser:
    """The options of a benchmark that begins no problem after some seconds and may publish its rows."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=seconds, help="begin no problem after this time")
    add_out(options)
    return options


def rows_of(
    header: str, items: Iterable[tuple[Gemm, Item]], row_of: Callable[[Gemm, Item], Found], until: float
) -> tuple[list[Found], list[str]]:
    """Prints a row of each problem at once; returns the rows, and why other problems have none.

    Args:
        until: by `time.monotonic`.
    """
    rows, skipped = [], []
    print(header, flush=True)
    for problem, item in items:
        if time.monotonic() > until:
            skipped.append(f"{problem.title}: no time was left")
            continue
        try:
            rows.append(row_of(problem, item))
            print(rows[-1], flush=True)
        except Exception as error:  # one product that fails is a line, not the end
            skipped.append(f"{problem.title}: {type(error).__name__}: {error}")
            print(skipped[-1], flush=True)
    return rows, skipped


def poisoned(expected: Expected) -> torch.Tensor:
    """C before a launch: NaN in every float format."""
    size_bytes = expected.elements * expected.dtype.itemsize
    held = torch.full((size_bytes,), 0xFF, dtype=torch.uint8, device=expected.device)
    return held.view(expected.dtype).view(expected.shape)


def copy_of(expected: Expected, c: torch.Tensor) -> Copy:
    """Addresses of the operands, as launchers take them."""
    source, bias = (0 if each is None else each.data_ptr() for each in (expected.source, expected.bias))
    scales = [each.data_ptr() for each in expected.scales or ()]
    return Copy(
        expected.a.data_ptr(), expected.b.data_ptr(), c.data_ptr(), source, bias, expected.alpha, expected.beta, *scales
    )
