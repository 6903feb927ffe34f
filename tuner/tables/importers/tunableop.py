"""PyTorch TunableOp's CSV files: the products that a program asked its BLAS for, each once, and tuned results.

`tuner.tables.exporters.tunableop` writes the same words; the format is that of torch's ATen/cuda/tunable headers.
"""

from __future__ import annotations

import re
from typing import Final

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from tuner.tables.importers.products import APART, DTYPES
from tuner.tables.importers.source import Asked, Source
from tuner.tables.shapes import Shapes, Tally

READS: Final = "PyTorch TunableOp's list of untuned products (PYTORCH_TUNABLEOP_RECORD_UNTUNED=1) or its results"
#: Our layout by TunableOp's letters, which name B first.
LAYOUTS: Final = {"TN": "nt", "NN": "nn", "NT": "tn", "TT": "tt"}
#: Words may be those of C++, as in `c10::complex<float>`.
_OPERATION: Final = re.compile(r"(Gemm|GemmAndBias|GemmStridedBatched|ScaledGemm)TunableOp_([\w:<>]+)_([NT]{2})")
_EXTENT: Final = "([0-9]{1,10})"
#: The first torchs with TunableOp wrote no leading dimensions.
_PARAMETERS: Final = re.compile(
    rf"([nt]{{2}})_{_EXTENT}_{_EXTENT}_{_EXTENT}(?:_B_{_EXTENT})?(?:_ld_{_EXTENT}_{_EXTENT}_{_EXTENT}(_.*)?)?"
)
#: Each word ends where the next one is named; without atomic groups a hostile row takes minutes.
_SCALED: Final = re.compile(
    r"_a_(?>(\w+?)_b_)(?>(\w+?)_c_)(?>(\w+?)_as_)(?>\w+?_bs_)(?>\w+?_ast_)([0-9])_bst_([0-9])_dscale_[01]_fast_([01])"
    r"_bias_(\w+)"
)
#: What older torchs write of a scaled product: whether both scales are of rows, and the bias.
_SCALED_BEFORE: Final = re.compile(r"_rw_[01]_bias_\w+")
_UNSAID: Final = (
    "8-bit floats in rows of torch 2.13 or older, which do not say how such products are scaled and summed: record "
    "with a newer one"
)
#: torch 2.15 writes one behind that of each product with a dynamic extent.
_ANY: Final = "rows that hold for any extent: the products that they were tuned on have rows of their own"
_ONCE: Final = "TunableOp lists each product once: its counts say nothing of how often each runs"


def recognizes(source: Source) -> bool:
    """Whether the first line is a row of TunableOp, or one of the lines that validate its results."""
    first = source.head.partition("\n")[0]
    return first.startswith("Validator,") or bool(_OPERATION.match(first.partition(",")[0]))


def read(source: Source, asked: Asked) -> Shapes:
    """The products of all rows.

    Raises:
        ProblemError: a line has another form.
    """
    tally = Tally()
    tally.note(_ONCE)
    leading = False
    for number, line in source.lines():
        if not line.strip() or line.startswith("Validator,"):
            continue
        place = f"{source.path}, line {number}"
        operation, _, rest = line.partition(",")
        parameters = rest.partition(",")[0]
        kind, shape = _OPERATION.fullmatch(operation), _PARAMETERS.fullmatch(parameters.replace("*", "1"))
        if kind is None or shape is None or not _agree(kind, shape):
            raise ProblemError(f"{place}: {line[:120]!r} is not a row of TunableOp: operation,parameters")
        if "*" in parameters:
            tally.leave_out(_ANY)
            continue
        # A program that ends while it writes leaves a part of a row, whose K may lack digits.
        if leading and shape[6] is None:
            raise ProblemError(
                f"{place}: {line[:120]!r} lacks the leading dimensions that rows before it have: it was cut off, or is "
                f"of an older PyTorch; leave it out"
            )
        leading = shape[6] is not None
        _count(tally, kind, shape, asked, place)
    return tally.shapes()


def _count(tally: Tally, kind: re.Match[str], shape: re.Match[str], asked: Asked, place: str) -> None:
    operator, words, letters = kind.groups()
    n, m, k, batch = (int(text or 1) for text in shape.groups()[1:5])
    if min(m, n, k, batch) < 1:
        tally.leave_out("products without elements")
        return
    told = tuple(map(int, shape.groups()[5:8])) if shape[6] else ()
    a, b = list(LAYOUTS[letters])
    if batch > 1 and m == 1 < n and told[2:] == (1,):
        # C of a batch with N = 1 lies along columns too: torch asks BLAS for the product as it is, with A first.
        m, n, a, b = n, 1, "n" if letters[0] == "T" else "t", "t"
        told = (k, told[0], 1)
    # Of a vector as well by the letters that torch wrote.
    apart = bool(told) and told != _leading(a, b, m, n, k)
    layout = _layout(a, b, m, n, k)
    if operator == "ScaledGemm":
        scaled = _SCALED.fullmatch(shape[9] or "")
        if not shape[9] or _SCALED_BEFORE.fullmatch(shape[9]):
            tally.leave_out(_UNSAID)
            return
        if scaled is None:
            raise ProblemError(f"{place}: {shape[0][:120]!r} does not say how the product is scaled")
        found = _scaled_dtypes(scaled)
        scales = "scaled" if scaled[4] == "0" else "scaled_rowwise"
        epilogue = scales if scaled[7] in ("None", "none") else f"{scales}+bias"
    else:
        found = _dtypes(words, asked.tf32)
        epilogue = "bias" if operator == "GemmAndBias" else "none"
    if isinstance(found, str):
        tally.leave_out(found)
        return
    try:
        problem = Gemm(m, n, k, *found, layout=layout, batch=batch, epilogue=epilogue)
    except ProblemError as error:
        tally.leave_out(f"products that gemmtune has no kernels for: {error}")
        return
    tally.add(problem, 1, place)
    if apart:
        tally.note(APART)


def _layout(a: str, b: str, m: int, n: int, k: int) -> str:
    """Our layout. Both letters describe the memory of a vector, which has the one that `gemmtune.torch` reads."""
    if 1 in (m, k):
        a = "t" if k == 1 < m else "n"
    if 1 in (k, n):
        b = "t" if n == 1 < k else "n"
    return a + b


def _agree(kind: re.Match[str], shape: re.Match[str]) -> bool:
    """Whether both parts of a row say the same letters, and a batch only where the operation has one."""
    return kind[3].lower() == shape[1] and (kind[1] == "GemmStridedBatched") == (shape[5] is not None)


def leading_dimensions(problem: Gemm) -> tuple[int, int, int]:
    """Leading dimensions of dense B, A and C, as TunableOp orders them."""
    return _leading(problem.layout[0], problem.layout[1], problem.m, problem.n, problem.k)


def _leading(a: str, b: str, m: int, n: int, k: int) -> tuple[int, int, int]:
    return k if b == "t" else n, k if a == "n" else m, n


def _dtypes(word: str, tf32: bool) -> tuple[str, str, str, str] | str:
    dtype = DTYPES.get(word)
    if dtype == "f32":
        if not tf32:
            return "f32 products in full precision: say --tf32 if the program allows tf32"
        dtype = "tf32"
    if dtype not in ("bf16", "fp16", "tf32"):
        return f"{word} products: gemmtune has no kernels for them"
    return dtype, dtype, "f32" if dtype == "tf32" else dtype, "f32"


def _scaled_dtypes(scaled: re.Match[str]) -> tuple[str, str, str, str] | str:
    second, first, output, scale_a, scale_b, fast, _ = scaled.groups()
    if (scale_a, scale_b) not in (("0", "0"), ("1", "1")):
        return "8-bit floats with a scale for each block: gemmtune's kernels have one for all, or one for each row"
    found = [DTYPES.get(word) for word in (first, second, output)]
    if None in found:
        return f"{first} × {second} → {output} products: gemmtune has no kernels for them"
    return str(found[0]), str(found[1]), str(found[2]), "f32" if fast == "1" else "f32_promoted"
