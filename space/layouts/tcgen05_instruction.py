"""The 32-bit instruction descriptor of `tcgen05.mma`: shapes, dtypes and major modes that no compiler checks.

The descriptor is a register, so an impossible value assembles and is undefined behaviour on the GPU. This module
refuses it, by the rows of `space.instructions.tcgen05`. The descriptor does not hold the CTA group: only those rows say
whether M and N suit it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from space.errors import LayoutError
from space.instructions.operand import Major
from space.instructions.tcgen05 import TCGEN05
from space.layouts.bitfields import Field, pack, unpack
from space.layouts.fragments.scale_factors import VECTORS

SOURCE: Final = "PTX ISA 9.0 §9.7.16.4.2, Instruction Descriptor"

_OPERANDS: Final = (
    Field("negate_a", 13, 13, "1 multiplies by -1"),
    Field("negate_b", 14, 14, "1 multiplies by -1"),
    Field("transpose_a", 15, 15, "0 K-major, 1 M-major"),
    Field("transpose_b", 16, 16, "0 K-major, 1 N-major"),
    Field("n", 17, 22, "N / 8"),
)
#: Kinds without block scaling.
PLAIN_FIELDS: Final = (
    Field("sparsity_selector", 0, 1), Field("sparse", 2, 2, "1 sparse A"), Field("saturate", 3, 3, "integers only"),
    Field("format_d", 4, 5, "0 f16, 1 f32, 2 s32"), Field("format_a", 7, 9), Field("format_b", 10, 12), *_OPERANDS,
    Field("m", 24, 28, "M / 16"), Field("max_shift", 30, 31, "0, 8, 16, 32 as 0 to 3; .ws only"),
)  # fmt: skip
_SCALED: Final = (
    Field("scale_format", 23, 23, "0 ue4m3, 1 ue8m0"), Field("m", 27, 28, "M / 128"),
    Field("sf_id_a", 29, 30, "byte of the word"),
)  # fmt: skip
MXF8F6F4_FIELDS: Final = (
    Field("sparse", 2, 2, "1 sparse A"), Field("sf_id_b", 4, 5, "byte of the word"), Field("format_a", 7, 9),
    Field("format_b", 10, 12), *_OPERANDS, *_SCALED,
)  # fmt: skip
MXF4_FIELDS: Final = (
    Field("sparse", 2, 2, "1 sparse A"), Field("sf_id_b", 4, 5, "byte of the word"), Field("format_a", 7, 9),
    Field("format_b", 10, 11), *(each for each in _OPERANDS if "transpose" not in each.name), *_SCALED,
    Field("k96", 31, 31, "0 K = 64, 1 K = 96"),
)  # fmt: skip

_F8F6F4: Final = {"fp8_e4m3": 0, "fp8_e5m2": 1, "fp6_e2m3": 3, "fp6_e3m2": 4, "fp4_e2m1": 5}


@dataclass(frozen=True, slots=True)
class Kind:
    """Fields and codes of one `.kind`.

    Attributes:
        fields: bit fields of the descriptor.
        inputs, outputs: codes by dtype; no outputs if D is always f32 and not encoded.
        scales: codes by dtype of the scale factors; empty without block scaling.
    """

    fields: tuple[Field, ...]
    inputs: dict[str, int]
    outputs: dict[str, int]
    scales: dict[str, int]


KINDS: Final[dict[str, Kind]] = {
    "f16": Kind(PLAIN_FIELDS, {"fp16": 0, "bf16": 1}, {"fp16": 0, "f32": 1}, {}),
    "tf32": Kind(PLAIN_FIELDS, {"tf32": 2}, {"f32": 1}, {}),
    "f8f6f4": Kind(PLAIN_FIELDS, _F8F6F4, {"fp16": 0, "f32": 1}, {}),
    "i8": Kind(PLAIN_FIELDS, {"uint8": 0, "int8": 1}, {"s32": 2}, {}),
    "mxf8f6f4": Kind(MXF8F6F4_FIELDS, _F8F6F4, {}, {"ue8m0": 1}),
    "mxf4": Kind(MXF4_FIELDS, {"fp4_e2m1": 1}, {}, {"ue8m0": 1}),
    "mxf4nvf4": Kind(MXF4_FIELDS, {"fp4_e2m1": 1}, {}, {"ue4m3": 0, "ue8m0": 1}),
}
_SHIFTS: Final = (0, 8, 16, 32)
#: Fields of one bit, and fields of numbers, that a descriptor holds as they are.
_FLAGS: Final = ("negate_a", "negate_b", "saturate", "sparse", "k96")
_NUMBERS: Final = ("sparsity_selector", "sf_id_a", "sf_id_b")


@dataclass(frozen=True, slots=True)
class Tcgen05Instruction:
    """One instruction's descriptor.

    Attributes:
        kind: one of `KINDS`, as in `.kind::f16`.
        m, n: extents of D, both blocks of a pair together.
        dtype_a, dtype_b, dtype_d: dtypes of the operands.
        major_a, major_b: `k`, or `mn` if M or N is contiguous.
        negate_a, negate_b: multiply the operand by -1; not for integers.
        saturate: clamp s32 instead of wrapping.
        sparse, sparsity_selector: A is 2:4 sparse.
        max_shift: maximum shift of B in `.ws` instructions: 0, 8, 16 or 32.
        scale_dtype: dtype of the scale factors; empty without block scaling.
        sf_id_a, sf_id_b: byte of the word at which the scale factors start.
        k96: K of 96 instead of 64, for packed fp4.
    """

    kind: str
    m: int
    n: int
    dtype_a: str
    dtype_b: str
    dtype_d: str = "f32"
    major_a: Major = "k"
    major_b: Major = "k"
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False
    sparse: bool = False
    sparsity_selector: int = 0
    max_shift: int = 0
    scale_dtype: str = ""
    sf_id_a: int = 0
    sf_id_b: int = 0
    k96: bool = False

    def encode(self) -> int:
        """The 32 bits.

        Raises:
            LayoutError: the kind has no such instruction, or its descriptor no such field.
        """
        facts = kind_named(self.kind)
        self._check_shape(facts)
        self._check_flags(facts)
        return pack(facts.fields, self._values(facts))

    @classmethod
    def decode(cls, word: int, kind: str) -> Tcgen05Instruction:
        """The descriptor in 32 bits, whose meaning depends on the kind.

        Raises:
            LayoutError: the bits are not a descriptor of that kind.
        """
        facts = kind_named(kind)
        fields = unpack(facts.fields, word, 32, f"instruction descriptor of kind::{kind}")
        majors: tuple[Major, Major] = ("k", "mn")
        plain: dict[str, Any] = {name: fields.get(name, 0) for name in _NUMBERS}
        plain |= {name: bool(fields.get(name, 0)) for name in _FLAGS}
        made = cls(
            kind, fields["m"] * _m_step(facts), fields["n"] * 8,
            _dtype(facts.inputs, fields["format_a"], "format_a", kind),
            _dtype(facts.inputs, fields["format_b"], "format_b", kind),
            _dtype(facts.outputs, fields["format_d"], "format_d", kind) if facts.outputs else "f32",
            majors[fields.get("transpose_a", 0)], majors[fields.get("transpose_b", 0)],
            max_shift=_SHIFTS[fields.get("max_shift", 0)],
            scale_dtype=_dtype(facts.scales, fields["scale_format"], "scale_format", kind) if facts.scales else "",
            **plain,
        )  # fmt: skip
        # Refuses the values that encode refuses.
        made.encode()
        return made

    def _values(self, facts: Kind) -> dict[str, int]:
        """Value of every field that some kind has."""
        return {name: int(getattr(self, name)) for name in (*_FLAGS, *_NUMBERS)} | {
            "format_a": facts.inputs[self.dtype_a], "format_b": facts.inputs[self.dtype_b],
            "format_d": facts.outputs.get(self.dtype_d, 0), "scale_format": facts.scales.get(self.scale_dtype, 0),
            "transpose_a": int(self.major_a == "mn"), "transpose_b": int(self.major_b == "mn"),
            "m": self.m // _m_step(facts), "n": self.n // 8, "max_shift": _SHIFTS.index(self.max_shift),
        }  # fmt: skip

    def _check_shape(self, facts: Kind) -> None:
        beside = f"with kind::{self.kind}"
        _check_known("dtype_a", self.dtype_a, facts.inputs, beside)
        _check_known("dtype_b", self.dtype_b, facts.inputs, beside)
        inputs = (self.kind, self.dtype_a, self.dtype_b)
        typed = [row for row in TCGEN05 if (row.kind, row.dtype_a, row.dtype_b) == inputs]
        rows = [row for row in typed if row.dtype_acc == self.dtype_d]
        _check_known("dtype_d", self.dtype_d, sorted({row.dtype_acc for row in typed}),
                     f"{beside} of {self.dtype_a} and {self.dtype_b}",
                     "no instruction multiplies these dtypes")  # fmt: skip
        _check_known("m", self.m, sorted({m for row in rows for m in row.m}), beside)
        _check_known("major_a", self.major_a, rows[0].majors, beside)
        _check_known("major_b", self.major_b, rows[0].majors, beside)
        widths = sorted({n for row in rows for n in row.n_of(self.m, major_b=self.major_b)})
        _check_known("n", self.n, widths, f"{beside}, m = {self.m} and a {self.major_b}-major B")

    def _check_flags(self, facts: Kind) -> None:
        names, beside = {field.name for field in facts.fields}, f"with kind::{self.kind}"
        for name in ("saturate", "k96", "max_shift", "sparsity_selector"):
            value = getattr(self, name)
            if value and (name not in names or (name == "saturate" and self.kind != "i8")):
                raise LayoutError(f"{name} = {value} {beside}, which has no such field: leave it out")
        if self.kind == "i8" and (self.negate_a or self.negate_b):
            raise LayoutError("kind::i8 cannot negate an operand: leave out negate_a and negate_b")
        if self.sparsity_selector and not self.sparse:
            raise LayoutError(f"sparsity_selector = {self.sparsity_selector} of a dense A: leave it out, or set sparse")
        _check_known("max_shift", self.max_shift, _SHIFTS, beside)
        if facts.scales or self.scale_dtype:
            _check_known("scale_dtype", self.scale_dtype, facts.scales, beside, "it has no block scaling; leave it out")
        vectors = {row.scale_vec for row in TCGEN05 if (row.kind, row.scale_dtype) == (self.kind, self.scale_dtype)}
        starts = sorted({start for count in vectors - {0} for start in VECTORS[f"{count}X"][1]}) or [0]
        scaled = f"{beside} and {self.scale_dtype} scales" if self.scale_dtype else beside
        _check_known("sf_id_a", self.sf_id_a, starts, scaled)
        _check_known("sf_id_b", self.sf_id_b, starts, scaled)


def _check_known(name: str, value: object, known: Collection[object], beside: str, none: str = "") -> None:
    if value not in known:
        words = [str(each) for each in known]
        use = f"use {' or '.join(words)}" if len(words) < 3 else f"use one of {', '.join(words)}"
        raise LayoutError(f"{name} = {value!r} {beside}: {use if words else none}")


def kind_named(name: str) -> Kind:
    """The fields and codes of a kind.

    Raises:
        LayoutError: there is no such kind.
    """
    if name not in KINDS:
        raise LayoutError(f"kind {name!r} is unknown: use one of {', '.join(KINDS)}")
    return KINDS[name]


def _m_step(facts: Kind) -> int:
    return 128 if facts.scales else 16


def _dtype(codes: dict[str, int], code: int, field: str, kind: str) -> str:
    for dtype, known in codes.items():
        if known == code:
            return dtype
    raise LayoutError(
        f"{field} {code} is unused in kind::{kind}: codes are "
        f"{', '.join(f'{known} ({dtype})' for dtype, known in codes.items())}"
    )
