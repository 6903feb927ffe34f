"""Members of the `Config` struct of our kernels that follow from a problem's epilogue."""

from __future__ import annotations

from space.kinds.gemm import ACTIVATIONS, Gemm
from space.knobs import KnobValue


def epilogue_constants(problem: Gemm) -> dict[str, KnobValue]:
    """0 or 1 for each of alpha, beta and bias, and the name of the activation or `none`."""
    parts = problem.epilogue_parts
    flags = {part: int(part in parts) for part in ("alpha", "beta", "bias")}
    return flags | {"activation": next((part for part in ACTIVATIONS if part in parts), "none")}
