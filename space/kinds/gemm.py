"""gemm: one product C[M,N] = A·B or a batch of them, with what may be fused behind it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from space.errors import ProblemError
from space.problem import DTYPE_BYTES, MAX_EXTENT, Field, Operand, Problem, ProblemKind
from space.spellings import hint

#: Dtypes of A, and those that B may have with each.
PARTNERS: Final[dict[str, tuple[str, ...]]] = {
    "bf16": ("bf16",), "fp16": ("fp16",), "tf32": ("tf32",),
    "fp8_e4m3": ("fp8_e4m3", "fp8_e5m2"), "fp8_e5m2": ("fp8_e4m3", "fp8_e5m2"),
    "int8": ("int8", "uint8"), "uint8": ("int8", "uint8"),
}  # fmt: skip
OUTPUTS: Final = ("f32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "s32", "int8")

#: How products are summed. The tensor core adds fp8 products with about 14 bits of mantissa (`f32`, the
#: class that inference engines call fast accumulation); `f32_promoted` adds every 128 of K in true f32. `fp16` rounds
#: the sum to f16 after every instruction: GeForce cards do that twice as fast as f32.
ACCUMULATORS: Final = ("f32", "f32_promoted", "fp16", "s32")
#: Accumulators by dtype of A (PTX ISA, mma: only f16 and fp8 operands have f16 sums).
SUMS: Final[dict[str, tuple[str, ...]]] = {
    "bf16": ("f32",), "fp16": ("f32", "fp16"), "tf32": ("f32",),
    "fp8_e4m3": ("f32", "f32_promoted", "fp16"), "fp8_e5m2": ("f32", "f32_promoted", "fp16"),
    "int8": ("s32",), "uint8": ("s32",),
}  # fmt: skip

#: Dtypes of A, B, C and of the accumulator, by the word on the command line.
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
    "fp16_acc16": ("fp16", "fp16", "fp16", "fp16"),
    "fp8_e4m3_acc16": ("fp8_e4m3", "fp8_e4m3", "fp16", "fp16"),
    "fp8_e5m2_acc16": ("fp8_e5m2", "fp8_e4m3", "fp16", "fp16"),
    "int8": ("int8", "int8", "s32", "s32"),
    "uint8": ("uint8", "uint8", "s32", "s32"),
}

LAYOUTS: Final = ("nt", "nn", "tn", "tt")
ACTIVATIONS: Final = ("relu", "gelu", "silu")
#: How A and B are scaled by f32 numbers on the device: one for each operand, or one for each row of A and column of B.
SCALES: Final = ("scaled", "scaled_rowwise")
#: Parts of an epilogue, in the order in which they are applied and written: `alpha+bias+gelu`.
EPILOGUE_PARTS: Final = (*SCALES, "alpha", "beta", "bias", *ACTIVATIONS)

#: Neither digits of other scripts nor numbers without end are extents, and a key has one spelling.
_NUMBER: Final = "0|[1-9][0-9]{0,19}"
_KEY: Final = re.compile(
    rf"gemm:(\w+),(\w+),(\w+),(\w+):(\w\w):({_NUMBER})x({_NUMBER})x({_NUMBER}):b({_NUMBER}):([\w+]+)"
)


@dataclass(frozen=True, slots=True)
class Gemm(Problem):
    """C[M,N] = A · B with f32, f16 or s32 accumulation.

    Attributes:
        m, n, k: extents, 1 … 2^31 - 1.
        dtype_a, dtype_b: a key of `PARTNERS` and one of its partners.
        dtype_c: one of `OUTPUTS`; s32 and int8 only behind an s32 accumulator.
        dtype_acc: one of `ACCUMULATORS`, as `SUMS` allows.
        layout: row-major letters. `nt`: A[M,K], B[N,K]; `nn`: A[M,K], B[K,N];
            `tn`: A[K,M], B[K,N]; `tt`: A[K,M], B[N,K]. C is always row-major [M,N].
        batch: number of independent products of this shape.
        epilogue: what is fused behind the product: `none`, or parts joined by `+`:
            act(alpha · A·B + beta · C + bias[N]); alpha and beta are f32, bias has C's dtype,
            or f32 where C is 8-bit or s32; gelu is x·Φ(x), which its form with tanh approximates well enough.
            A single product of 8-bit floats may instead have act(scale_a · scale_b · A·B + bias[N]) with f32 scales on
            the device: `scaled` has one for A and one for B, `scaled_rowwise` has scale_a[M] and scale_b[N].

    Raises:
        ProblemError: a field is outside its domain.
    """

    kind: ClassVar[str] = "gemm"

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
                    f"{name} = {value!r:.80} is not a GEMM extent: it must be 1 to {MAX_EXTENT:,}; "
                    f"give a positive whole number, as in 4096x4096x4096"
                )
        _one_of("dtype_a", self.dtype_a, tuple(PARTNERS))
        _one_of(f"dtype_b beside {self.dtype_a}", self.dtype_b, PARTNERS[self.dtype_a])
        whole = self.dtype_a in ("int8", "uint8")
        _one_of(f"dtype_acc of {self.dtype_a}", self.dtype_acc, SUMS[self.dtype_a])
        _one_of(f"dtype_c of {self.dtype_a}", self.dtype_c, OUTPUTS if whole else OUTPUTS[:5])
        _one_of("layout", self.layout, LAYOUTS)
        _check_epilogue(self.epilogue)
        if self.scales and (self.batch > 1 or not self.dtype_a.startswith("fp8")):
            raise ProblemError(
                f"epilogue = {self.epilogue!r} needs 8-bit floats and batch = 1, but this is {self.dtype_a} with "
                f"batch = {self.batch}: use alpha"
            )

    @classmethod
    def of(
        cls, m: int, n: int, k: int, dtype: str = "bf16", layout: str = "nt", batch: int = 1, epilogue: str = "none"
    ) -> Gemm:
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
    ) -> Gemm:
        """A problem from `MxNxK` text and a dtype word.

        Raises:
            ProblemError: the text is not three whole numbers joined by `x`, or a field is out of domain.
        """
        return cls.of(**GEMM.parse_shape(shape), dtype=dtype, layout=layout, batch=batch, epilogue=epilogue)

    @classmethod
    def from_key(cls, key: str) -> Gemm:
        """The problem that `key` names; the inverse of `key`.

        Raises:
            ProblemError: `key` is not one that `key` returns.
        """
        match = _KEY.fullmatch(key)
        if match is None:
            raise ProblemError(
                f"key {key!r:.120} is not a problem key: write gemm:A,B,C,ACC:LAYOUT:MxNxK:bBATCH:EPILOGUE"
            )
        a, b, c, acc, layout, m, n, k, batch, epilogue = match.groups()
        return cls(int(m), int(n), int(k), a, b, c, acc, layout, int(batch), epilogue)

    @property
    def key(self) -> str:
        """Canonical text; equal for equal problems, and never changed once published."""
        dtypes = f"{self.dtype_a},{self.dtype_b},{self.dtype_c},{self.dtype_acc}"
        return f"gemm:{dtypes}:{self.layout}:{self.shape}:b{self.batch}:{self.epilogue}"

    @property
    def extents(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.m, self.n, self.k

    @property
    def shape(self) -> str:
        """`MxNxK`."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def title(self) -> str:
        """The problem as messages name it: `bf16 nt 4096x4096x4096`, with ` ×8` for a batch and its epilogue."""
        epilogue = f" {self.epilogue}" if self.epilogue != "none" else ""
        return f"{self.dtype} {self.layout} {self.size}{epilogue}"

    @property
    def similar(self) -> tuple[str, ...]:
        """Dtypes, layout and epilogue: problems that share them learn from each other."""
        return self.dtype, self.layout, self.epilogue

    @property
    def dtype(self) -> str:
        """The dtype word of `DTYPES`, or the four dtypes joined by commas if no word names them."""
        dtypes = (self.dtype_a, self.dtype_b, self.dtype_c, self.dtype_acc)
        return next((word for word, four in DTYPES.items() if four == dtypes), ",".join(dtypes))

    @property
    def epilogue_parts(self) -> frozenset[str]:
        """The parts of the epilogue; empty for `none`."""
        return frozenset(self.epilogue.split("+")) - {"none"}

    @property
    def scales(self) -> str:
        """The part of the epilogue that is one of `SCALES`; empty without."""
        return next((part for part in SCALES if part in self.epilogue_parts), "")

    @property
    def dtype_bias(self) -> str:
        """dtype of the bias vector, if the epilogue has one."""
        return self.dtype_c if self.dtype_c in ("f32", "bf16", "fp16") else "f32"

    @property
    def numerics(self) -> str:
        """`promoted` if fp8 products are summed in true f32 every 128 of K, else `fast`."""
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

    def fields(self) -> dict[str, int | str]:
        """The values of `GEMM.fields`, as a command line, a URL and JSON spell them."""
        return {
            "m": self.m, "n": self.n, "k": self.k, "dtype": self.dtype, "layout": self.layout, "batch": self.batch,
            "epilogue": self.epilogue,
        }  # fmt: skip

    def resized(self, m: int, n: int, k: int) -> Gemm:
        """The same product with other extents."""
        return replace(self, m=m, n=n, k=k)

    def class_of_alignment(self) -> Gemm:
        """The problem that stands for all whose kernels have the same constants.

        A kernel looks at dtypes, layout and epilogue, at what the extents are multiples of (up to 16) and at
        whether there is a batch, never at an extent itself: one cubin serves every shape.
        """
        m, n, k = (math.gcd(extent, 16) for extent in self.extents)
        return replace(self, m=m, n=n, k=k, batch=min(self.batch, 2))

    def features(self) -> dict[str, float]:
        """Numbers that predict times, besides extents, bytes and operations; logarithms are to base 2."""
        bytes_a, bytes_c = DTYPE_BYTES[self.dtype_a], DTYPE_BYTES[self.dtype_c]
        return {
            "bytes_a": float(bytes_a),
            "bytes_c": float(bytes_c),
            "aligned_m": _alignment(self.m * bytes_a),
            "aligned_k": _alignment(self.k * bytes_a),
            "aligned_n": _alignment(self.n * bytes_c),
            "a_by_k": float(self.layout[0] == "n"),
            "b_by_k": float(self.layout[1] == "t"),
            "promoted": float(self.numerics == "promoted"),
            "epilogue_parts": float(len(self.epilogue_parts & set(EPILOGUE_PARTS))),
            "reads_c": float("beta" in self.epilogue_parts),
        }

    def operands(self) -> tuple[Operand, ...]:
        """A, B, C, and what the epilogue reads: `source` is C before the product, `bias` a row of N, scales are f32."""
        a = Operand("a", "input", self.dtype_a, self.m, self.k, self.batch, column_major=self.layout[0] == "t")
        b = Operand("b", "input", self.dtype_b, self.k, self.n, self.batch, column_major=self.layout[1] == "t")
        c = Operand("c", "output", self.dtype_c, self.m, self.n, self.batch)
        found = [a, b, c]
        if "beta" in self.epilogue_parts:
            found.append(Operand("source", "source", self.dtype_c, self.m, self.n, self.batch))
        if "bias" in self.epilogue_parts:
            found.append(Operand("bias", "bias", self.dtype_bias, 1, self.n, 1))
        if self.scales:
            rows, columns = (self.m, self.n) if self.scales == "scaled_rowwise" else (1, 1)
            found.append(Operand("scale_a", "scale", "f32", rows, 1))
            found.append(Operand("scale_b", "scale", "f32", 1, columns))
        return tuple(found)


def _alignment(pitch_bytes: int) -> float:
    """log2 of the largest power of two, up to 16, that divides a row's bytes."""
    return math.log2(math.gcd(pitch_bytes, 16))


def _check_epilogue(epilogue: object) -> None:
    parts = str(epilogue).split("+")
    places = [EPILOGUE_PARTS.index(part) for part in parts if part in EPILOGUE_PARTS]
    in_order = len(places) == len(parts) and places == sorted(set(places))
    rivals = ACTIVATIONS, (*SCALES, "alpha"), (*SCALES, "beta")
    alone = all(sum(part in some for part in parts) <= 1 for some in rivals)
    if epilogue != "none" and not (in_order and alone):
        raise ProblemError(
            f"epilogue = {epilogue!r:.80} is unknown: use none, or parts in this order joined by +: "
            f"alpha, beta, bias, and one of {', '.join(ACTIVATIONS)}; {' or '.join(SCALES)} replaces alpha and beta"
        )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ProblemError(
            f"{name} = {value!r:.80} is unknown: use one of {', '.join(allowed)}{hint(str(value), allowed)}"
        )


_JOINED: Final = {word: ",".join(four) for word, four in DTYPES.items()}


def _quick_key(
    m: int | str, n: int | str, k: int | str, dtype: str = "bf16", layout: str = "nt", batch: int | str = 1,
    epilogue: str = "none", kind: str = "gemm",
) -> str:  # fmt: skip
    dtypes = _JOINED.get(dtype, dtype)
    return f"{kind}:{dtypes}:{layout}:{m}x{n}x{k}:b{batch}:{epilogue}"


GEMM: Final = ProblemKind(
    name="gemm",
    product="C[M,N] = A·B over K",
    problem=Gemm,
    fields=(
        Field("m", int, None, "Rows of A and C."),
        Field("n", int, None, "Columns of B and C."),
        Field("k", int, None, "Columns of A, rows of B."),
        Field("dtype", str, "bf16", "Dtype of A and B; those of C and the accumulator follow from it.", tuple(DTYPES)),
        Field("layout", str, "nt", "nt: A[M,K], B[N,K]; nn: A[M,K], B[K,N]; tn: A[K,M], B[K,N]; tt: A[K,M], B[N,K].",
              LAYOUTS),
        Field("batch", int, 1, "Independent products of this shape."),
        Field("epilogue", str, "none",
              "none; or alpha, beta, bias, an activation, in this order, joined by +; for 8-bit floats also scaled or "
              "scaled_rowwise in place of alpha and beta."),
    ),
    shape=("m", "n", "k"),
    from_fields=Gemm.of,
    from_key=Gemm.from_key,
    baselines=("cublaslt",),
    quick_key=_quick_key,
)  # fmt: skip
