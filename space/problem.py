"""The problem: one GEMM, frozen, with a key that is stable for ever."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from space.errors import ProblemError

#: Bytes of one element. tf32 travels and is stored as 32-bit words.
DTYPE_BYTES: Final[dict[str, int]] = {
    "bf16": 2, "fp16": 2, "tf32": 4, "f32": 4, "s32": 4,
    "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1, "uint8": 1,
}  # fmt: skip

#: What A may be, and what B and C may be beside it.
PARTNERS: Final[dict[str, tuple[str, ...]]] = {
    "bf16": ("bf16",), "fp16": ("fp16",), "tf32": ("tf32",),
    "fp8_e4m3": ("fp8_e4m3", "fp8_e5m2"), "fp8_e5m2": ("fp8_e4m3", "fp8_e5m2"),
    "int8": ("int8", "uint8"), "uint8": ("int8", "uint8"),
}  # fmt: skip
OUTPUTS: Final = ("f32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "s32", "int8")

#: How products are summed. The tensor core adds fp8 products with about 14 bits of mantissa (`f32`, the
#: class that inference engines call fast accumulation); `f32_promoted` adds every 128 of K in true f32.
ACCUMULATORS: Final = ("f32", "f32_promoted", "s32")

#: What one word on the command line stands for: dtype of A, B, C and of the accumulator.
#: `fp8_e5m2` is A e5m2 x B e4m3, because no library that we compare with has e5m2 x e5m2.
DTYPES: Final[dict[str, tuple[str, str, str, str]]] = {
    "bf16": ("bf16", "bf16", "bf16", "f32"),
    "fp16": ("fp16", "fp16", "fp16", "f32"),
    "tf32": ("tf32", "tf32", "f32", "f32"),
    "fp8_e4m3": ("fp8_e4m3", "fp8_e4m3", "bf16", "f32"),
    "fp8_e5m2": ("fp8_e5m2", "fp8_e4m3", "bf16", "f32"),
    "fp8_e4m3_e5m2": ("fp8_e4m3", "fp8_e5m2", "bf16", "f32"),
    "fp8_e4m3_promoted": ("fp8_e4m3", "fp8_e4m3", "bf16", "f32_promoted"),
    "fp8_e5m2_promoted": ("fp8_e5m2", "fp8_e4m3", "bf16", "f32_promoted"),
    "int8": ("int8", "int8", "s32", "s32"),
    "uint8": ("uint8", "uint8", "s32", "s32"),
}

LAYOUTS: Final = ("nt", "nn", "tn", "tt")
ACTIVATIONS: Final = ("relu", "gelu", "silu")
#: Parts of an epilogue, in the order in which they are applied and written: `alpha+bias+gelu`.
EPILOGUE_PARTS: Final = ("alpha", "beta", "bias", *ACTIVATIONS)

#: TMA extents and our kernels' loop counters are 32-bit.
MAX_EXTENT: Final = 2**31 - 1

#: Neither digits of other scripts nor numbers without end are extents.
_NUMBER: Final = "[0-9]{1,20}"
_SHAPE: Final = re.compile(rf"(-?{_NUMBER})x(-?{_NUMBER})x(-?{_NUMBER})")
_KEY: Final = re.compile(
    rf"gemm:(\w+),(\w+),(\w+),(\w+):(\w\w):({_NUMBER})x({_NUMBER})x({_NUMBER}):b({_NUMBER}):([\w+]+)"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """C[M,N] = A · B with f32 or s32 accumulation.

    Attributes:
        m, n, k: extents, 1 … 2^31 - 1.
        dtype_a, dtype_b: a key of `PARTNERS` and one of its partners.
        dtype_c: one of `OUTPUTS`; s32 and int8 only behind an s32 accumulator.
        dtype_acc: one of `ACCUMULATORS`; s32 for whole numbers, `f32_promoted` for fp8 only.
        layout: row-major letters. `nt`: A[M,K], B[N,K]; `nn`: A[M,K], B[K,N];
            `tn`: A[K,M], B[K,N]; `tt`: A[K,M], B[N,K]. C is always row-major [M,N].
        batch: number of independent products of this shape.
        epilogue: what is fused behind the product: `none`, or parts joined by `+`:
            act(alpha · A·B + beta · C + bias[N]); alpha and beta are f32, bias has C's dtype,
            or f32 where C is 8-bit or s32; gelu is x·Φ(x), which its form with tanh approximates well enough.

    Raises:
        ProblemError: a field is outside its domain.
    """

    m: int
    n: int
    k: int
    dtype_a: str = "bf16"
    dtype_b: str = "bf16"
    dtype_c: str = "bf16"
    dtype_acc: str = "f32"
    layout: str = "nt"
    batch: int = 1
    epilogue: str = "none"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_EXTENT:
                raise ProblemError(
                    f"{name} = {value!r} is not a GEMM extent: it must be 1 to {MAX_EXTENT:,}; "
                    f"give a positive whole number, as in 4096x4096x4096"
                )
        _one_of("dtype_a", self.dtype_a, tuple(PARTNERS))
        _one_of(f"dtype_b beside {self.dtype_a}", self.dtype_b, PARTNERS[self.dtype_a])
        whole = self.dtype_a in ("int8", "uint8")
        accumulators = ("s32",) if whole else ACCUMULATORS[: 2 if self.dtype_a.startswith("fp8") else 1]
        _one_of(f"dtype_acc of {self.dtype_a}", self.dtype_acc, accumulators)
        _one_of(f"dtype_c of {self.dtype_a}", self.dtype_c, OUTPUTS if whole else OUTPUTS[:5])
        _one_of("layout", self.layout, LAYOUTS)
        _check_epilogue(self.epilogue)

    @classmethod
    def of(
        cls, m: int, n: int, k: int, dtype: str = "bf16", layout: str = "nt", batch: int = 1, epilogue: str = "none"
    ) -> Problem:
        """The problem that one dtype word names (see `DTYPES`), or four dtypes joined by commas: A,B,C,ACC."""
        if dtype.count(",") == 3:
            a, b, c, acc = dtype.split(",")
        else:
            _one_of("dtype", dtype, tuple(DTYPES))
            a, b, c, acc = DTYPES[dtype]
        return cls(m, n, k, a, b, c, acc, layout, batch, epilogue)

    @classmethod
    def parse(
        cls, shape: str, dtype: str = "bf16", layout: str = "nt", batch: int = 1, epilogue: str = "none"
    ) -> Problem:
        """A problem from `MxNxK` text and a dtype word.

        Raises:
            ProblemError: the text is not three whole numbers joined by `x`, or a field is out of domain.
        """
        match = _SHAPE.fullmatch(shape.strip().lower())
        if match is None:
            raise ProblemError(f"shape {shape!r} is not MxNxK: write three whole numbers, as in 4096x4096x4096")
        m, n, k = (int(part) for part in match.groups())
        return cls.of(m, n, k, dtype, layout, batch, epilogue)

    @classmethod
    def from_key(cls, key: str) -> Problem:
        """The problem that `key` names; the inverse of `Problem.key`.

        Raises:
            ProblemError: `key` was not made by `Problem.key`.
        """
        match = _KEY.fullmatch(key)
        if match is None:
            raise ProblemError(f"key {key!r} is not a problem key: gemm:A,B,C,ACC:LAYOUT:MxNxK:bBATCH:EPILOGUE")
        a, b, c, acc, layout, m, n, k, batch, epilogue = match.groups()
        return cls(int(m), int(n), int(k), a, b, c, acc, layout, int(batch), epilogue)

    @property
    def key(self) -> str:
        """Canonical text; equal for equal problems, and never changed once published."""
        dtypes = f"{self.dtype_a},{self.dtype_b},{self.dtype_c},{self.dtype_acc}"
        return f"gemm:{dtypes}:{self.layout}:{self.shape}:b{self.batch}:{self.epilogue}"

    @property
    def shape(self) -> str:
        """`MxNxK`."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def dtype(self) -> str:
        """The dtype word of `DTYPES`, or the four dtypes joined by commas where no word names them."""
        dtypes = (self.dtype_a, self.dtype_b, self.dtype_c, self.dtype_acc)
        return next((word for word, four in DTYPES.items() if four == dtypes), ",".join(dtypes))

    @property
    def epilogue_parts(self) -> frozenset[str]:
        """The parts of the epilogue; empty for `none`."""
        return frozenset(self.epilogue.split("+")) - {"none"}

    @property
    def dtype_bias(self) -> str:
        """dtype of the bias vector, where the epilogue has one."""
        return self.dtype_c if self.dtype_c in ("f32", "bf16", "fp16") else "f32"

    @property
    def numerics(self) -> str:
        """`promoted` when fp8 products are summed in true f32 every 128 of K, else `fast`."""
        return "promoted" if self.dtype_acc == "f32_promoted" else "fast"

    @property
    def flops(self) -> int:
        """Multiplications and additions: 2·M·N·K·batch."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def min_bytes(self) -> int:
        """Device-memory bytes that no kernel can avoid: each operand read once, C written once."""
        a = self.m * self.k * DTYPE_BYTES[self.dtype_a]
        b = self.n * self.k * DTYPE_BYTES[self.dtype_b]
        c = self.m * self.n * DTYPE_BYTES[self.dtype_c] * (2 if "beta" in self.epilogue_parts else 1)
        return (a + b + c) * self.batch

    def tflops(self, time_us: float) -> float:
        """TFLOP/s when one product takes `time_us` microseconds."""
        return self.flops / time_us / 1e6


def _check_epilogue(epilogue: object) -> None:
    parts = str(epilogue).split("+")
    places = [EPILOGUE_PARTS.index(part) for part in parts if part in EPILOGUE_PARTS]
    in_order = len(places) == len(parts) and places == sorted(set(places))
    if epilogue != "none" and not (in_order and sum(part in ACTIVATIONS for part in parts) <= 1):
        raise ProblemError(
            f"epilogue = {epilogue!r} is unknown: use none, or parts in this order joined by +: "
            f"alpha, beta, bias, and one of {', '.join(ACTIVATIONS)}"
        )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ProblemError(f"{name} = {value!r} is unknown: use one of {', '.join(allowed)}")
