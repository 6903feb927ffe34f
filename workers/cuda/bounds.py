"""Bounds: how far a correct C may be from the exact one, by dtype and K. Derived here, not guessed; no GPU needed.

Three errors add up: sums are kept in fewer bits than they need, the epilogue is computed in f32, and the result is
rounded to C's dtype. Whole numbers have none of them: integer results are compared exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from space.kinds.gemm import Gemm

#: Bits of the fraction that a product keeps when it is aligned to the largest term of its step. H100: at least
#: two beyond f32's for 16-bit operands (Li et al., "FTTN", 2024), 13 for fp8 (DeepSeek-V3, 2024, §3.5.2).
_PRODUCT_BITS: Final = {"bf16": 24, "fp16": 24, "tf32": 24, "fp8_e4m3": 13, "fp8_e5m2": 13}
#: Bits of the fraction that a running sum keeps from step to step.
_SUM_BITS: Final = {"bf16": 23, "fp16": 23, "tf32": 23, "fp8_e4m3": 13, "fp8_e5m2": 13}
#: Products that one step adds; half of what is reported for this GPU, so that more roundings are allowed for.
_STEP_K: Final = {"bf16": 8, "fp16": 8, "tf32": 4, "fp8_e4m3": 16, "fp8_e5m2": 16}
#: f16 sums: the running sum is rounded to nearest once a step (Fasi et al., "Numerical behavior of NVIDIA tensor
#: cores", 2021), to 11 bits.
_HALF_ROUNDING: Final = 2.0**-11
_HALF_STEP_K: Final = 4
#: Sums of products of -1, 0 and 1, of variance 4/9, stay below 2^11, which f16 holds exactly, up to this K.
MOST_EXACT_HALF_K: Final = 2**17
#: fp8 products between two promotions to f32.
PROMOTION_K: Final = 128
_F32_ROUNDING: Final = 2.0**-23
#: How often the exponent of a running sum grows at most, counting again after it has shrunk.
_MAX_GROWTHS: Final = 24
#: No sum and no error leaves this many standard deviations: 2^40 elements exceed it with a chance of 1e-3.
_SIGMAS: Final = 8.0
#: Two things that are each within `_SIGMAS` together: the product of both is largest where they are equally rare.
_JOINT_SIGMAS: Final = _SIGMAS**2 / 2
#: A product of two normal numbers stays below this.
_LARGEST_PRODUCT: Final = 16.0
#: Operands of tf32 hold further bits, below half of tf32's last place, and a kernel may multiply them: the deviation of
#: a product by them, as a share of it, has this root mean square.
_TF32_DEVIATION: Final = 1.08 * 2.0**-11
#: Each f32 operation of an epilogue is off by 2^-24 of a term; no term passes through more than four.
_EPILOGUE_SHARE: Final = 2.0**-22
#: An activation may use tanh.approx.f32, off by 2^-11 (PTX ISA, tanh) and halved where it enters; and gelu may be the
#: form with tanh, as cuBLASLt fuses it, which is off by 1.8e-4 of the argument at most.
_ACTIVATION_SHARE: Final = 2.0**-11


@dataclass(frozen=True, slots=True)
class Format:
    """The errors of rounding to a dtype.

    Attributes:
        rounding: largest error to nearest, as a share of the value: 2^-p for p significant bits.
        smallest: largest error where values are subnormal, or whole.
        most, least: range.
        saturates: whether values beyond the range become its ends; they become infinite otherwise.
    """

    rounding: float
    smallest: float
    most: float
    least: float
    saturates: bool


def _float(significant: int, smallest_exponent: int, most: float, saturates: bool = False) -> Format:
    return Format(2.0**-significant, 2.0 ** (smallest_exponent - 1), most, -most, saturates)


#: fp8 conversions of the hardware saturate (PTX ISA, cvt: .satfinite is required for them).
FORMATS: Final[dict[str, Format]] = {
    "f32": _float(24, -149, (2 - 2.0**-23) * 2.0**127),
    "bf16": _float(8, -133, (2 - 2.0**-7) * 2.0**127),
    "fp16": _float(11, -24, 65_504.0),
    "fp8_e4m3": _float(4, -9, 448.0, saturates=True),
    "fp8_e5m2": _float(3, -16, 57_344.0, saturates=True),
    "int8": Format(0.0, 0.5, 127.0, -128.0, True),
    "s32": Format(0.0, 0.5, 2.0**31 - 1, -(2.0**31), True),
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Shares that `Finish` of workers/kernels/verify/reference.cuh takes; an element of C may be off by

    rounding·|C| + smallest + accumulation·|alpha|·‖a_i‖·‖b_j‖ + epilogue·(|terms|) + activation·|argument|
    """

    accumulation: float
    epilogue: float
    activation: float
    rounding: float
    smallest: float


def bounds_of(problem: Gemm, exact_sums: bool = False) -> Bounds:
    """The bounds of one problem.

    Args:
        exact_sums: the operands are such that no sum needs rounding (see `accumulation_share`).
    """
    whole = problem.dtype_acc == "s32"
    plain = not problem.epilogue_parts
    form = FORMATS[problem.dtype_c]
    if whole and plain and problem.dtype_c in ("s32", "int8"):
        return Bounds(0.0, 0.0, 0.0, 0.0, 0.0)
    accumulation = 0.0 if whole or exact_sums else accumulation_share(problem)
    return Bounds(
        accumulation,
        0.0 if plain and not whole else _EPILOGUE_SHARE,
        _ACTIVATION_SHARE if problem.epilogue_parts & {"gelu", "silu"} else 0.0,
        form.rounding,
        form.smallest,
    )


def accumulation_share(problem: Gemm) -> float:
    """Bound on the error of one sum, as a share of ‖a_i‖·‖b_j‖.

    Products of operands are exact, but for tf32, whose operands are f32 in memory: random bits below half of tf32's
    last place change each operand by up to 2^-11 of it, and a sum, if a kernel multiplies them, by 8·1.08·2^-11·√K.
    Operands have independent entries of mean zero, so that the sum of k products has a standard deviation of √k times
    that of one; let that of one be 1, then ‖a_i‖·‖b_j‖ is K. The tensor core aligns the products of a step and the
    running sum to the largest among them, cuts off what is below their last bit, and keeps the sum:

    * The running sum loses at most 2^-s of itself a step, always towards zero, so that the losses add up:
      K/step · 2^-s · 8·√K.
    * A product loses at most 2^-p of the largest term, to either side: the losses of K products have a standard
      deviation of at most √(K/3) · 2^-p · largest. Largest is the running sum, or a product while sums are small.
      The sum being t deviations large and the loss u of them, with t² + u² ≤ 8², gives 32·√K·√(K/3)·2^-p; a
      large product gives 8·16·√(K/3)·2^-p.

    Promoted fp8 runs that way for 128 products at a time: the second kind of loss then sees sums of 128, and f32
    adds the K/128 parts, which loses as the first kind does with s = 23.

    The bound for fp8 without promotion grows as K does, the sums as √K: a K slice that is left out hides in it from
    about K = 30,000 on. That class is verified a second time on operands of -1, 0 and 1, whose sums are whole
    numbers below 2^13 up to K = 2^20: kept exactly even in 13 bits, so that only rounding to C is allowed for.

    f16 sums lose at most 2^-11 of themselves a step, to either side, so that the losses of K/step steps have a
    standard deviation of at most √(K/step) · 2^-11 of the largest sum: 32·√K·√(K/step)·2^-11 by the same argument. This
    bound grows as K does too, and the class is verified a second time in the same way: f16 keeps whole numbers
    below 2^11. No sum of such operands overflows before K = 2^25, where eight deviations reach 65,504.

    fp8 keeps its sum aligned with 13 bits as well, but a sum that is a multiple of the last bit loses nothing until
    its exponent grows: two dozen such steps are allowed for. f32 promotions are counted one by one.
    """
    dtype, k = problem.dtype_a, problem.k
    product, kept = 2.0 ** -_PRODUCT_BITS[dtype], 2.0 ** -_SUM_BITS[dtype]
    run = min(k, PROMOTION_K) if problem.numerics == "promoted" else k
    products = product * math.sqrt(k / 3) * (_JOINT_SIGMAS * math.sqrt(run) + _SIGMAS * _LARGEST_PRODUCT)
    if problem.dtype_acc == "fp16":
        sums = _HALF_ROUNDING * _JOINT_SIGMAS * math.sqrt(k) * math.sqrt(math.ceil(k / _HALF_STEP_K) + 1)
    elif not dtype.startswith("fp8"):
        sums = (math.ceil(k / _STEP_K[dtype]) + 1) * kept * _SIGMAS * math.sqrt(k)
    else:
        # Losses of runs that are promoted one by one have random signs.
        steps = min(math.ceil(run / _STEP_K[dtype]) + 1, _MAX_GROWTHS)
        sums = (steps * kept + math.ceil(k / run) * _F32_ROUNDING) * _SIGMAS * math.sqrt(k)
    beyond = _SIGMAS * _TF32_DEVIATION * math.sqrt(k) if dtype == "tf32" else 0.0
    return (products + sums + beyond) / k
