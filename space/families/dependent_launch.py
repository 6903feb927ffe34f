"""Programmatic dependent launch: which problems are short enough for it to be worth trying, in any family."""

from __future__ import annotations

from typing import Final

from space.problem import Problem

#: Some thirty microseconds of memory, and a hundred of 16-bit products, on a Hopper GPU.
SHORT_BYTES, SHORT_FLOPS = 128_000_000, 64_000_000_000
#: What setting up beside the end of the kernel before saves.
SAVES_US: Final = 0.5
SENTENCE: Final = "programmatic dependent launch only for short products"
WHY: Final = (
    "it hides half a microsecond of setting up at most, behind a kernel that lets it; among copies of itself each does"
)


def is_short(problem: Problem) -> bool:
    """Whether half a microsecond is a share of a product's time that can be measured."""
    return problem.min_bytes <= SHORT_BYTES and problem.flops <= SHORT_FLOPS
