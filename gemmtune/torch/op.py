"""`gemm`, registered with torch: one opaque operator under `torch.compile`, one launch in CUDA graphs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import torch
from torch import Tensor, is_grad_enabled
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling
from torch.nn import Parameter

from gemmtune.torch import kernels
from gemmtune.torch.arguments import check_dense, check_factors, check_options, check_tensors
from gemmtune.torch.calls import tf32
from gemmtune.torch.composed import composed
from gemmtune.torch.kernels import prepared
from gemmtune.torch.operands import (
    OUTPUT_OF,
    Refused,
    check_composed,
    check_output,
    output_dtype,
    output_shape,
    overlapping,
    problem_of,
    scaling_of,
    separate,
    strides_of,
)
from gemmtune.torch.operators import operator_of
from gemmtune.torch.private import modes, tracing, transformed
from gemmtune.torch.sources import CHOSEN

_ARGUMENTS: Final = (
    "Tensor a, Tensor b, Tensor? bias, Tensor? source, float alpha, float beta, str activation, "
    "ScalarType? out_dtype, bool promoted"
)
_SCALES: Final = "Tensor? scale_a=None, Tensor? scale_b=None"
_LIBRARY: Final = torch.library.Library("gemmtune", "DEF")
#: The reason why torch computes f32 products by default.
_EXACT: Final = "kernels multiply f32 as tf32, which torch.set_float32_matmul_precision('high') allows"
_PLAIN: Final = (Tensor, Parameter)


def gemm(
    a: Tensor, b: Tensor, *, bias: Tensor | None = None, activation: str = "none", alpha: float = 1.0,
    source: Tensor | None = None, beta: float = 1.0, out_dtype: torch.dtype | None = None, promoted: bool = False,
    scale_a: Tensor | None = None, scale_b: Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """C = act(alpha · A·B + beta · source + bias), computed by the best known kernel.

    The kernels have no backward pass: if a gradient is needed, torch's own operators compute C.

    Args:
        a: [..., M, K], or [batch, M, K] if b has three dimensions; dense rows or dense columns.
        b: [K, N] or [batch, K, N]; `weight.t()` of a Linear's [N, K] needs no copy.
        bias: [N], of C's dtype, or f32 if C is 8-bit or int32.
        activation: `none`, `relu`, `gelu` or `silu`.
        source: the tensor that beta multiplies, with C's shape and dtype.
        out_dtype: dtype of C. Default: dtype of a; bf16 for 8-bit floats, int32 for integers.
        promoted: add partial sums of 8-bit floats in full f32 after every 128 elements of K.
        scale_a, scale_b: what A·B of 8-bit floats is multiplied by, f32 on the GPU, in place of alpha and source: one
            number each, or M for a's rows and N for b's columns.
        out: receives C in its own dtype; must not share memory with an operand.

    Raises:
        Refused: no kernel accepts these operands; the message gives the reason. Nothing was launched.
    """
    # Skip the dispatcher for plain tensors: it would only call back here, and costs as much as the launch.
    compiling = is_compiling()
    direct = (
        not compiling and type(a) in _PLAIN and type(b) in _PLAIN and not modes() and not tracing()
        and (bias is source is scale_a is scale_b is None or _all_plain(bias, source, scale_a, scale_b))
    )  # fmt: skip
    if not direct or (out is not None and not isinstance(out, Tensor)):
        check_tensors(a=a, b=b, bias=bias, source=source, scale_a=scale_a, scale_b=scale_b, out=out)
    # Compiled functions transform too, and the operator that they call has no derivative: torch would take 0 for it.
    graded = (is_grad_enabled() and _wants_gradient(a, b, bias, source, scale_a, scale_b, out)) or transformed()
    if direct and not graded:
        dtype = out_dtype if out is None else out.dtype
        try:
            call = prepared(_kind(a, b, bias, source, alpha, activation, dtype, promoted, scale_a, scale_b))
        except (RuntimeError, TypeError):
            call = None  # of no kind, such as a tensor without strides: the checks below say why
        # This kind of call was checked when it was prepared; a wrong `out` is reported below.
        if call is not None and (
            out is None
            or (out_dtype in (None, dtype) and call.writes(out)
                and separate(out, call.strides, a, b, bias, source, scale_a, scale_b))
        ):  # fmt: skip
            if out is not None:
                increment_version(out)
            try:
                return call.launch(a, b, bias, source, alpha, beta, out, _both(scale_a, scale_b))
            except TypeError:
                # Factors are looked at only now: of a call that is right, even that would take time.
                check_factors(graded, alpha=alpha, beta=beta)
                raise
            except torch.OutOfMemoryError:
                return _without_scratch(call, a, b, bias, source, alpha, beta, out, _both(scale_a, scale_b))
    check_dense(a=a, b=b, bias=bias, source=source, scale_a=scale_a, scale_b=scale_b, out=out)
    check_options(a, activation, promoted)
    check_factors(graded, alpha=alpha, beta=beta)
    dtype = output_dtype(a, out_dtype)
    if out is not None and out_dtype is not None and out.dtype != out_dtype:
        raise Refused(f"out is {out.dtype}, out_dtype {out_dtype}: omit out_dtype")
    if graded:
        if out is not None:
            raise Refused("out has no gradient: call under torch.no_grad(), outside function transforms, or omit out")
        check_composed(a, b, bias, source, dtype)
        scaling_of(a, b, scale_a, scale_b, source, alpha)
        return composed(a, b, bias, source, alpha, beta, activation, dtype, _both(scale_a, scale_b))
    if out is not None:
        scales = scale_a, scale_b
        torch.ops.gemmtune.gemm_out.default(a, b, bias, source, alpha, beta, activation, promoted, out, *scales)
        return out
    if direct and a.is_cuda:
        return _on_gpu(a, b, bias, source, alpha, beta, activation, dtype, promoted, scale_a, scale_b)
    made: Tensor = torch.ops.gemmtune.gemm.default(
        a, b, bias, source, alpha, beta, activation, dtype, promoted, scale_a, scale_b
    )
    return made


def _wants_gradient(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, scale_a: Tensor | None, scale_b: Tensor | None,
    out: Tensor | None,
) -> bool:  # fmt: skip
    return bool(
        a.requires_grad or b.requires_grad or (bias is not None and bias.requires_grad)
        or (source is not None and source.requires_grad) or (scale_a is not None and scale_a.requires_grad)
        or (scale_b is not None and scale_b.requires_grad)
        or (out is not None and out.requires_grad)  # torch would go on to differentiate what C replaced
    )  # fmt: skip


def _all_plain(*others: Tensor | None) -> bool:
    """Whether all are torch's own: of others, the address may be none."""
    return all(each is None or type(each) in _PLAIN for each in others)


def _both(scale_a: Tensor | None, scale_b: Tensor | None) -> tuple[Tensor, Tensor] | None:
    return None if scale_a is None or scale_b is None else (scale_a, scale_b)


def _on_gpu(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    out_dtype: torch.dtype | None, promoted: bool, scale_a: Tensor | None = None, scale_b: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    key = _kind(a, b, bias, source, alpha, activation, out_dtype, promoted, scale_a, scale_b)
    call = prepared(key)
    if call is None:
        dtype, device = output_dtype(a, out_dtype), a.get_device()
        scaling = scaling_of(a, b, scale_a, scale_b, source, alpha)
        if not a.numel() or not b.numel():
            return _of_nothing(a, b, bias, source, alpha, beta, activation, dtype, _both(scale_a, scale_b), out)
        problem = problem_of(a, b, bias, source, alpha, activation, dtype, promoted, scaling)
        forbidden = _EXACT if a.dtype is torch.float32 and not tf32() else ""
        with torch.cuda.device(device):
            call = kernels.prepare(
                key, problem, device, output_shape(a, b), dtype, activation, forbidden, strides=strides_of(a, b)
            )
    try:
        return call.launch(a, b, bias, source, alpha, beta, out, _both(scale_a, scale_b))
    except torch.OutOfMemoryError:
        return _without_scratch(call, a, b, bias, source, alpha, beta, out, _both(scale_a, scale_b))


def _without_scratch(
    call: kernels.Kernel | kernels.Absent, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None,
    alpha: float, beta: float, out: Tensor | None, scales: tuple[Tensor, Tensor] | None,
) -> Tensor:  # fmt: skip
    """C by torch's own operator, where a kernel found no memory for what it passes between its launches.

    Raises:
        torch.OutOfMemoryError: it was torch's operator that found none.
    """
    if isinstance(call, kernels.Absent) or call.compute is None:
        raise  # again, what the caller is handling
    return call.compute(a, b, bias, source, alpha, beta, out, scales)


def _kind(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, activation: str,
    out_dtype: torch.dtype | None, promoted: bool, scale_a: Tensor | None, scale_b: Tensor | None,
) -> Hashable:  # fmt: skip
    """Key of a call's kind: everything that decides which kernel computes it and whether it is legal."""
    dtype = a.dtype
    kind = (
        a.shape, a.stride(), dtype, a.device, b.shape, b.stride(), b.dtype, b.device, out_dtype or OUTPUT_OF.get(dtype),
        activation, promoted, alpha == 1.0, CHOSEN.generation,
    )  # fmt: skip
    if bias is source is scale_a is scale_b is None and dtype is not torch.float32:
        return kind
    return kind, _key(bias), _key(source), _key(scale_a), _key(scale_b), tf32()


def _key(tensor: Tensor | None) -> object:
    return tensor if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def _on_cpu(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    out_dtype: torch.dtype | None, promoted: bool, scale_a: Tensor | None = None, scale_b: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    dtype, scaling = out_dtype or output_dtype(a, None), scaling_of(a, b, scale_a, scale_b, source, alpha)
    if not a.numel() or not b.numel():
        return _of_nothing(a, b, bias, source, alpha, beta, activation, dtype, _both(scale_a, scale_b), out)
    problem = problem_of(a, b, bias, source, alpha, activation, dtype, promoted, scaling)
    kernels.absent(problem, f"its operands are on {a.device}")
    compute = operator_of(problem, output_shape(a, b), dtype, activation, a.device)
    return compute(a, b, bias, source, alpha, beta, out, _both(scale_a, scale_b))


def _of_nothing(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    dtype: torch.dtype, scales: tuple[Tensor, Tensor] | None, out: Tensor | None,
) -> Tensor:  # fmt: skip
    """C of an empty A or B, as torch has it: without elements, or without anything to add up."""
    check_composed(a, b, bias, source, dtype)
    made = a.new_empty(output_shape(a, b), dtype=dtype)
    if made.numel():
        made = composed(a, b, bias, source, alpha, beta, activation, dtype, scales)
    return made if out is None else out.copy_(made)


def _meta(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    out_dtype: torch.dtype | None, promoted: bool, scale_a: Tensor | None = None, scale_b: Tensor | None = None,
) -> Tensor:  # fmt: skip
    dtype = output_dtype(a, out_dtype)
    check_composed(a, b, bias, source, dtype)
    scaling_of(a, b, scale_a, scale_b, source, alpha)
    return a.new_empty(output_shape(a, b), dtype=dtype)


def _out(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    promoted: bool, out: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None,
) -> None:  # fmt: skip
    check_output(out, output_shape(a, b), output_dtype(a, out.dtype), a.device)
    inputs = ("a", a), ("b", b), ("bias", bias), ("source", source), ("scale_a", scale_a), ("scale_b", scale_b)
    if shared := overlapping(out, inputs):
        raise Refused(f"out shares memory with {shared}, which is read while C is written: give another tensor")
    compute = _on_gpu if a.is_cuda else _on_cpu
    compute(a, b, bias, source, alpha, beta, activation, out.dtype, promoted, scale_a, scale_b, out)


def _meta_out(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    promoted: bool, out: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None,
) -> None:  # fmt: skip
    dtype = output_dtype(a, out.dtype)
    check_output(out, output_shape(a, b), dtype, a.device)
    check_composed(a, b, bias, source, dtype)
    scaling_of(a, b, scale_a, scale_b, source, alpha)


_LIBRARY.define(f"gemm({_ARGUMENTS}, {_SCALES}) -> Tensor", tags=(torch.Tag.needs_fixed_stride_order,))
_LIBRARY.impl("gemm", _on_gpu, "CUDA")
_LIBRARY.impl("gemm", _on_cpu, "CPU")
torch.library.register_fake("gemmtune::gemm", _meta, lib=_LIBRARY)
_LIBRARY.define(
    f"gemm_out({_ARGUMENTS.replace('ScalarType? out_dtype, ', '')}, Tensor(a!) out, {_SCALES}) -> ()",
    tags=(torch.Tag.needs_fixed_stride_order,),
)
_LIBRARY.impl("gemm_out", _out, "CUDA")
_LIBRARY.impl("gemm_out", _out, "CPU")
torch.library.register_fake("gemmtune::gemm_out", _meta_out, lib=_LIBRARY)
