"""scaled_gemm: a problem kind outside the packages, with one more field than `gemm`: how its operands are scaled.

It shows what a kind is made of, and that nothing else has to know of it: `join` registers it, `leave` takes it out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from space.errors import ProblemError
from space.problem import DTYPE_BYTES, Field, Operand, Problem, ProblemKind
from space.registry import register, unregister

SCALES: Final = ("per_tensor", "per_row")
_KEY: Final = re.compile(r"scaled_gemm:(\w+):([0-9]{1,10})x([0-9]{1,10})x([0-9]{1,10}):(\w+)")


@dataclass(frozen=True, slots=True)
class ScaledGemm(Problem):
    """C[M,N] = scale · A[M,K] · B[N,K]."""

    kind: ClassVar[str] = "scaled_gemm"

    m: int
    n: int
    k: int
    scale: str
    dtype: str = "fp8_e4m3"

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ProblemError(f"scale = {self.scale!r} is unknown: use one of {', '.join(SCALES)}")
        if self.dtype not in DTYPE_BYTES:
            raise ProblemError(f"dtype = {self.dtype!r} is unknown: use one of {', '.join(DTYPE_BYTES)}")

    @classmethod
    def from_key(cls, key: str) -> ScaledGemm:
        """The inverse of `key`."""
        match = _KEY.fullmatch(key)
        if match is None:
            raise ProblemError(f"key {key!r} is not a key: scaled_gemm:DTYPE:MxNxK:SCALE")
        dtype, m, n, k, scale = match.groups()
        return cls(int(m), int(n), int(k), scale, dtype)

    @property
    def key(self) -> str:
        return f"scaled_gemm:{self.dtype}:{self.shape}:{self.scale}"

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k

    @property
    def shape(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def title(self) -> str:
        return f"scaled {self.dtype} {self.shape} {self.scale}"

    @property
    def similar(self) -> tuple[str, ...]:
        return self.dtype, self.scale

    @property
    def batch(self) -> int:
        return 1

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def min_bytes(self) -> int:
        return sum(operand.size_bytes for operand in self.operands())

    def fields(self) -> dict[str, int | str]:
        return {"m": self.m, "n": self.n, "k": self.k, "scale": self.scale, "dtype": self.dtype}

    def resized(self, m: int, n: int, k: int) -> ScaledGemm:
        return replace(self, m=m, n=n, k=k)

    def class_of_alignment(self) -> ScaledGemm:
        return self.resized(1, 1, 1)

    def features(self) -> dict[str, float]:
        return {"per_row": float(self.scale == "per_row")}

    def operands(self) -> tuple[Operand, ...]:
        return (
            Operand("a", "input", self.dtype, self.m, self.k),
            Operand("b", "input", self.dtype, self.k, self.n, column_major=True),
            Operand("c", "output", "bf16", self.m, self.n),
        )


SCALED_GEMM: Final = ProblemKind(
    name="scaled_gemm",
    product="C[M,N] = scale · A·B over K",
    problem=ScaledGemm,
    fields=(
        Field("m", int, None, "Rows of A and C."),
        Field("n", int, None, "Columns of B and C."),
        Field("k", int, None, "Columns of A, rows of B."),
        Field("scale", str, None, "What one scale factor is of.", SCALES),
        Field("dtype", str, "fp8_e4m3", "Of A and B."),
    ),
    shape=("m", "n", "k"),
    from_fields=ScaledGemm,
    from_key=ScaledGemm.from_key,
    baselines=(),
)


def join() -> None:
    """Registers the kind."""
    register(SCALED_GEMM, __name__)


def leave() -> None:
    """Takes it out again."""
    unregister(SCALED_GEMM)
