"""What the `Config` struct of every kernel of ours takes from a problem's epilogue."""

from __future__ import annotations

from space.knobs import KnobValue
from space.problem import ACTIVATIONS, Problem


def epilogue_constants(problem: Problem) -> dict[str, KnobValue]:
    """Which parts there are, 0 or 1 each, and the activation's name or `none`."""
    parts = problem.epilogue_parts
    flags = {part: int(part in parts) for part in ("alpha", "beta", "bias")}
    return flags | {"activation": next((part for part in ACTIVATIONS if part in parts), "none")}
