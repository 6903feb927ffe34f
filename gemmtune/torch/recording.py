"""Recording: the matrix products of a running program, with counts, as a list that `gemmtune campaign` takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from gemmtune.named import path_of
from gemmtune.torch.calls import tf32
from gemmtune.torch.operands import Refused, output_dtype, problem_of, scaling_of, strides_of
from gemmtune.torch.overrides import as_outside, is_composed
from space.errors import ProblemError
from tuner.files import check_exportable, export_file
from tuner.tables.importers.products import (
    ADDING,
    APART,
    FACTORS,
    GROUPED,
    NO_ELEMENTS,
    OPERATORS,
    OTHERS,
    PLAIN_F32,
    Array,
    count_product,
)
from tuner.tables.shapes import Shapes, Tally, as_csv

#: Operators that multiply several times inside; a profiler's trace tells the single products.
_INSIDE: Final = frozenset({"addbmm", "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "_trilinear"})
#: Place of the argument of `_scaled_mm` that says whether 8-bit floats are summed fast.
_FAST: Final = 7
#: Operators that are decomposed, but for nested tensors.
_WHOLE: Final = frozenset({"linear", "matmul"})
#: In place of an option of the command line, which a program has not.
_PLAIN: Final = "f32 products in full precision: torch.set_float32_matmul_precision('high') allows tf32"


class Recording:
    """The products recorded so far."""

    def __init__(self) -> None:
        self._tally = Tally()

    @property
    def shapes(self) -> Shapes:
        """Problems with counts, and the products that gemmtune does not tune."""
        found = self._tally.shapes()
        return replace(found, left_out={_PLAIN if why == PLAIN_F32 else why: n for why, n in found.left_out.items()})

    def leave_out(self, reason: str) -> None:
        """Counts one call that is not listed."""
        self._tally.leave_out(reason)

    def note(self, operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Counts one call of an operator."""
        if operator in GROUPED:
            self._tally.leave_out("grouped products: gemmtune tunes no experts yet")
        if operator == "_foreach_mm":
            # Below it a trace has these products, and a mode nothing.
            for a, b in zip(*args[:2], strict=False):
                self.note("mm", (a, b), {})
        if operator in OTHERS or operator in _INSIDE:
            self._tally.leave_out(f"products of {operator}, which gemmtune does not read")
        if operator in OPERATORS:
            arrays = [_array(value) for value in args]
            said = next((value for value in args if isinstance(value, torch.dtype)), kwargs.get("out_dtype"))
            output, fast = str(said or getattr(kwargs.get("out"), "dtype", "") or ""), True
            if operator == "_scaled_mm":
                output = output or str(args[0].dtype)
                arrays += [None] * (5 - len(arrays))
                arrays[4] = arrays[4] or _array(kwargs.get("bias"))
                fast = bool(args[_FAST] if len(args) > _FAST else kwargs.get("use_fast_accum", False))
            factors = (kwargs.get("beta", 1), kwargs.get("alpha", 1)) if operator in ADDING else FACTORS
            try:
                count_product(self._tally, operator, arrays, output, "the program", tf32(), fast=fast, factors=factors)
            except ProblemError as error:
                # The program must go on.
                self._tally.leave_out(str(error))

    def note_gemm(
        self, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        activation: str, promoted: bool, out_dtype: torch.dtype | None = None, out: Tensor | None = None,
        scale_a: Tensor | None = None, scale_b: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Counts one call of our own operator."""
        if not a.numel() or not b.numel():
            return self._tally.leave_out(NO_ELEMENTS)
        if a.dtype is torch.float32 and not tf32():
            return self._tally.leave_out(PLAIN_F32)
        try:
            dtype = output_dtype(a, out_dtype if out is None else out.dtype)
            scaling = scaling_of(a, b, scale_a, scale_b, source, alpha)
            problem = problem_of(a, b, bias, source, alpha, activation, dtype, promoted, scaling)
            self._tally.add(problem, 1, "the program")
        except (Refused, ProblemError) as error:
            return self._tally.leave_out(str(error))
        if strides_of(a, b):
            self._tally.note(APART)


class _Mode(TorchDispatchMode):  # type: ignore[misc]
    #: Otherwise torch raises where the program calls one.
    supports_higher_order_operators = True

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording
        self._inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if isinstance(func, HigherOrderOperator):
            self._recording.leave_out(f"what runs inside of {func.name()}, which gemmtune does not see")
            return func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.namespace == "aten" and func._can_decompose() and not _nested(args):
            # Without autograd, which inference mode and its tensors lack, `linear` and `matmul` arrive whole.
            return self._decomposed(func, args, kwargs or {})
        if func.namespace == "gemmtune":
            names = (argument.name for argument in func._schema.arguments)
            self._recording.note_gemm(**dict(zip(names, args, strict=False)), **(kwargs or {}))
        elif name in _WHOLE:
            self._recording.leave_out("products of nested tensors, which gemmtune does not see")
        else:
            self._recording.note(name, args, kwargs or {})
        return as_outside(func, args, func(*args, **(kwargs or {})), self._inside)

    def _decomposed(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        outer = self._inside
        # Of what others return, as `chunk`, torch makes views by itself.
        self._inside = outer or is_composed(func)
        try:
            with self:
                return func.decompose(*args, **kwargs)
        finally:
            self._inside = outer


class _Eager:
    """Compiled functions run eagerly, in all threads, while anything is recorded.

    In a mode torch would run them eagerly too, but then never compiled again, and refuse those with `fullgraph=True`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._stance: Any = None

    def __enter__(self) -> None:
        # Counted: what one thread leaves, another may still be in.
        with self._lock:
            if not self._inside:
                self._stance = torch.compiler.set_stance("force_eager")
                self._stance.__enter__()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stance.__exit__(None, None, None)


_EAGER: Final = _Eager()


@contextmanager
def record(path: str | Path) -> Iterator[Recording]:
    """Records the products that run inside, and writes them as CSV at the end.

    Products inside replayed CUDA graphs and of other threads are not seen, but those of a backward pass are. Compiled
    functions run eagerly meanwhile, in all threads.

    Args:
        path: replaced if it exists; left alone if the block fails.

    Raises:
        ValueError: `path` is no path.
        ExportError: the file can't be written; before anything runs, where that shows by then.
    """
    recording, out = Recording(), path_of(path, "path", "the name of the list to write, as in shapes.csv")
    check_exportable(out)
    with _EAGER, _Mode(recording):
        yield recording
    export_file(out, as_csv(list(recording.shapes.counts.items())).encode())


def _nested(args: tuple[Any, ...]) -> bool:
    """Whether one argument is a nested tensor, which has kernels of its own for what others decompose."""
    return any(isinstance(each, Tensor) and each.is_nested for each in args)


def _array(value: object) -> Array | None:
    if not isinstance(value, Tensor) or value.is_nested or value.layout is not torch.strided:
        return None
    return Array(tuple(value.shape), tuple(value.stride()), str(value.dtype).removeprefix("torch."))


__all__: Final = ["Recording", "record"]
