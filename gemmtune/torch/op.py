"""`gemm`, registered with torch: under `torch.compile` it is one opaque operator, in graphs it is a launch."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_compiling
from torch.nn import Parameter

from gemmtune.torch import kernels
from gemmtune.torch.composed import composed
from gemmtune.torch.kernels import Kernel, prepared
from gemmtune.torch.operands import (
    OUTPUT_OF,
    Refused,
    apart,
    check_devices,
    check_output,
    output_dtype,
    output_shape,
    overlapping,
    problem_of,
)
from gemmtune.torch.private import modes
from gemmtune.torch.sources import CHOSEN
from space.kinds.gemm import ACTIVATIONS

_ARGUMENTS: Final = (
    "Tensor a, Tensor b, Tensor? bias, Tensor? source, float alpha, float beta, str activation, "
    "ScalarType? out_dtype, bool promoted"
)
_ACTIVATIONS: Final = ("none", *ACTIVATIONS)
_LIBRARY: Final = torch.library.Library("gemmtune", "DEF")
#: Why f32 operands are left to torch unless it was told otherwise.
_EXACT: Final = "kernels multiply f32 as tf32, which torch.set_float32_matmul_precision('high') allows"
_PLAIN: Final = (Tensor, Parameter)


def gemm(
    a: Tensor, b: Tensor, *, bias: Tensor | None = None, activation: str = "none", alpha: float = 1.0,
    source: Tensor | None = None, beta: float = 1.0, out_dtype: torch.dtype | None = None, promoted: bool = False,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """C = act(alpha · A·B + beta · source + bias), by the best kernel known.

    Not differentiable: where gradients are asked for, torch's own operators compute.

    Args:
        a: [..., M, K], or [batch, M, K] where b has three dimensions; rows or columns dense.
        b: [K, N] or [batch, K, N]; `weight.t()` of a Linear's [N, K] is taken as it lies.
        bias: [N], of C's dtype, or f32 where C is 8-bit or int32.
        activation: `none`, `relu`, `gelu` or `silu`.
        source: like C; what beta multiplies.
        out_dtype: of C; by default that of a, bf16 behind 8-bit floats, int32 behind integers.
        promoted: 8-bit floats are summed in true f32 every 128 of K.
        out: C is written here, in its dtype; it shares no memory with what is read.

    Raises:
        Refused: operands that no kernel takes as they lie, with the reason; nothing was launched.
    """
    # The dispatcher would only bring plain tensors back here, and takes as long as the launch.
    direct = not is_compiling() and type(a) in _PLAIN and type(b) in _PLAIN and not modes()
    graded = is_grad_enabled() and _wants_gradient(a, b, bias, source)
    if direct and not graded:
        dtype = out_dtype if out is None else out.dtype
        kernel = prepared(_kind(a, b, bias, source, alpha, activation, dtype, promoted))
        # Calls of this kind were checked when it was prepared; what is wrong with `out` is said below.
        if type(kernel) is Kernel:
            if out is None or (
                out_dtype in (None, dtype) and kernel.writes(out) and apart(out, a, b, bias, source)
            ):  # fmt: skip
                return kernel.launch(a, b, bias, source, alpha, beta, out)
        elif kernel is not None and out is None:
            return composed(a, b, bias, source, alpha, beta, activation, output_dtype(a, out_dtype))
    if activation not in _ACTIVATIONS:
        raise Refused(f"activation {activation!r} is unknown: use {', '.join(_ACTIVATIONS)}")
    dtype = output_dtype(a, out_dtype)
    if out is not None and out_dtype is not None and out.dtype != out_dtype:
        raise Refused(f"out is {out.dtype}, out_dtype {out_dtype}: leave out_dtype away")
    if graded:
        if out is not None:
            raise Refused("out has no gradient: call under torch.no_grad(), or leave out away")
        return composed(a, b, bias, source, alpha, beta, activation, dtype)
    if out is not None:
        torch.ops.gemmtune.gemm_out.default(a, b, bias, source, alpha, beta, activation, promoted, out)
        return out
    if direct and a.is_cuda:
        return _on_gpu(a, b, bias, source, alpha, beta, activation, dtype, promoted)
    made: Tensor = torch.ops.gemmtune.gemm.default(a, b, bias, source, alpha, beta, activation, dtype, promoted)
    return made


def _wants_gradient(a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None) -> bool:
    return bool(
        a.requires_grad or b.requires_grad or (bias is not None and bias.requires_grad)
        or (source is not None and source.requires_grad)
    )  # fmt: skip


def _on_gpu(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    out_dtype: torch.dtype | None, promoted: bool, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    key = _kind(a, b, bias, source, alpha, activation, out_dtype, promoted)
    kernel = prepared(key)
    if kernel is None:
        dtype, device = output_dtype(a, out_dtype), a.get_device()
        problem = problem_of(a, b, bias, source, alpha, activation, dtype, promoted)
        forbidden = _EXACT if a.dtype is torch.float32 and not _tf32() else ""
        with torch.cuda.device(device):
            kernel = kernels.prepare(key, problem, device, output_shape(a, b), dtype, forbidden)
    if isinstance(kernel, kernels.Absent):
        made = composed(a, b, bias, source, alpha, beta, activation, output_dtype(a, out_dtype))
        return made if out is None else out.copy_(made)
    return kernel.launch(a, b, bias, source, alpha, beta, out)


def _kind(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, activation: str,
    out_dtype: torch.dtype | None, promoted: bool,
) -> Hashable:  # fmt: skip
    """All that decides which kernel computes a call, and whether it may: what differs in this is checked anew."""
    dtype = a.dtype
    kind = (
        a.shape, a.stride(), dtype, a.device, b.shape, b.stride(), b.dtype, b.device, out_dtype or OUTPUT_OF.get(dtype),
        activation, promoted, alpha == 1.0, CHOSEN.generation,
    )  # fmt: skip
    if bias is None and source is None and dtype is not torch.float32:
        return kind
    return kind, _key(bias), _key(source), _tf32()


def _key(tensor: Tensor | None) -> object:
    return tensor if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def _tf32() -> bool:
    """Whether the user allows f32 to be multiplied with the 10 bits of tf32."""
    return bool(torch.get_float32_matmul_precision() != "highest")


def _on_cpu(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    out_dtype: torch.dtype | None, promoted: bool,
) -> Tensor:  # fmt: skip
    dtype = out_dtype or output_dtype(a, None)
    problem = problem_of(a, b, bias, source, alpha, activation, dtype, promoted)
    kernels.absent(problem, f"its operands are on {a.device}")
    return composed(a, b, bias, source, alpha, beta, activation, dtype)


def _meta(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    out_dtype: torch.dtype | None, promoted: bool,
) -> Tensor:  # fmt: skip
    check_devices(a, b, bias, source)
    return a.new_empty(output_shape(a, b), dtype=output_dtype(a, out_dtype))


def _out(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    promoted: bool, out: Tensor,
) -> None:  # fmt: skip
    check_output(out, output_shape(a, b), output_dtype(a, out.dtype), a.device)
    if shared := overlapping(out, (("a", a), ("b", b), ("bias", bias), ("source", source))):
        raise Refused(f"out shares memory with {shared}, which is read while C is written: give another one")
    if a.is_cuda:
        _on_gpu(a, b, bias, source, alpha, beta, activation, out.dtype, promoted, out)
    else:
        out.copy_(_on_cpu(a, b, bias, source, alpha, beta, activation, out.dtype, promoted))


def _meta_out(
    a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, activation: str,
    promoted: bool, out: Tensor,
) -> None:  # fmt: skip
    check_output(out, output_shape(a, b), output_dtype(a, out.dtype), a.device)


_LIBRARY.define(f"gemm({_ARGUMENTS}) -> Tensor", tags=(torch.Tag.needs_fixed_stride_order,))
_LIBRARY.impl("gemm", _on_gpu, "CUDA")
_LIBRARY.impl("gemm", _on_cpu, "CPU")
torch.library.register_fake("gemmtune::gemm", _meta, lib=_LIBRARY)
_LIBRARY.define(
    f"gemm_out({_ARGUMENTS.replace('ScalarType? out_dtype, ', '')}, Tensor(a!) out) -> ()",
    tags=(torch.Tag.needs_fixed_stride_order,),
)
_LIBRARY.impl("gemm_out", _out, "CUDA")
_LIBRARY.impl("gemm_out", _out, "CPU")
torch.library.register_fake("gemmtune::gemm_out", _meta_out, lib=_LIBRARY)
