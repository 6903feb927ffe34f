"""Overrides: which of torch's products our kernels may compute, and how all others reach torch's own.

A call through Python costs the host microseconds, whoever computes it, so there are two ways in: a mode of one thread,
for the time of a capture, and Python kernels in torch's dispatcher, for all calls.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakMethod

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from space.kinds.gemm import Gemm
from space.problem import Problem

log = logging.getLogger("gemmtune.torch")

#: Overloads that are overridden.
OVERLOADS: Final = ("mm", "mm.out", "addmm", "addmm.out", "bmm", "bmm.out", "_scaled_mm", "_scaled_mm.out")
#: The same as torch's objects, and the place of A among their arguments.
_OPERATORS: Final = {
    getattr(getattr(torch.ops.aten, name), form or "default"): (each, int(name == "addmm"))
    for each in OVERLOADS for name, _, form in [each.partition(".")]
}  # fmt: skip
#: Operators that products are part of; without autograd they arrive whole.
_WHOLE: Final = frozenset({
    torch.ops.aten.linear.default, torch.ops.aten.matmul.default, torch.ops.aten.matmul.out,
    torch.ops.aten.einsum.default, torch.ops.aten.tensordot.default,
})  # fmt: skip
_PLAIN: Final = (Tensor, Parameter)
#: Whether compiled functions run as they are inside of a mode; older versions of torch run or compile them anew.
MODES: Final = hasattr(TorchDispatchMode, "ignore_compile_internals") and hasattr(
    torch._C._dynamo.guards, "set_is_in_mode_without_ignore_compile_internals"
)

#: What was registered, for good: a thread on its way into a Python kernel, which waits for the interpreter, has no
#: reference to it, and torch frees it when another thread removes it.
_KEPT: Final[list[Any]] = []

#: Shapes of B by those of A.
Shapes = Mapping[tuple[int, ...], frozenset[tuple[int, ...]]]
#: The product for a call of an overload; None if torch has to compute it.
Computed = Callable[[str, tuple[Any, ...], dict[str, Any]], Tensor | None]


@dataclass(frozen=True)
class Overridden:
    """The overridden operators.

    Attributes:
        key: dispatch key of the kernels that our kernels replace.
        matrices, batches: shapes that `computed` is asked for.
    """

    key: str
    overloads: frozenset[str]
    matrices: Shapes
    batches: Shapes
    computed: Computed

    def shapes(self, overload: str) -> Shapes:
        """Those of an overload's operands."""
        return self.batches if overload.startswith("bmm") else self.matrices


def shapes_of(problems: Iterable[Problem], *, batches: bool) -> Shapes:
    """Shapes of A and B, as matrices or as batches, in the products of a table."""
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for each in problems:
        if isinstance(each, Gemm) and (batches or each.batch == 1):
            batch = (each.batch,) if batches else ()
            found.setdefault((*batch, each.m, each.k), set()).add((*batch, each.k, each.n))
    return {shape: frozenset(others) for shape, others in found.items()}


class Capturing(TorchDispatchMode):  # type: ignore[misc]
    """Runs the products of one thread on our kernels, below autograd, in compiled functions too."""

    #: torch passes them to the mode, which passes them on.
    supports_higher_order_operators = True

    def __init__(self, overridden: Overridden) -> None:
        super().__init__()
        self._overridden = overridden
        self._inside = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: what is compiled stays compiled inside of the mode."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if func in _WHOLE and _all_plain((*args, *kwargs.values()), self._overridden.key):
            outer, self._inside = self._inside, True
            try:
                with self:
                    return func.decompose(*args, **kwargs)
            finally:
                self._inside = outer
        overload, place = _OPERATORS.get(func, ("", 0))
        if overload in self._overridden.overloads and _all_plain((*args, *kwargs.values()), self._overridden.key):
            a, b = args[place : place + 2]
            if b.shape in self._overridden.shapes(overload).get(a.shape, ()):
                found = self._overridden.computed(overload, args, kwargs)
                if found is not None:
                    return found
        return as_outside(func, args, func(*args, **kwargs), self._inside)


def weakly(computed: Computed) -> Computed:
    """A method that keeps no table, which is large: for kernels that are kept. Without its table torch computes."""
    method = WeakMethod(computed)

    def asked(overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        found = method()
        return None if found is None else found(overload, args, kwargs)

    return asked


def as_outside(func: Any, args: Sequence[Any], made: Any, inside: bool) -> Any:  # noqa: ANN401
    """What an operator made in a mode, in inference: its view requires a gradient as outside of modes.

    `matmul` decides by that whether a linear layer's batch is one matrix, or a batch of them.

    Args:
        inside: whether the mode runs it as a part of another operator.
    """
    of = args[0] if args else None
    # Of what is not composed, torch makes views by itself, once the mode has returned it.
    if (
        isinstance(of, Tensor) and of.requires_grad and getattr(func, "is_view", False)
        and func is not torch.ops.aten.detach.default and (inside or is_composed(func))
    ):  # fmt: skip
        for each in made if isinstance(made, list | tuple) else (made,):
            # `contiguous` and its like return a copy at times, which is no view.
            if _is_plain(each) and _is_plain(of) and torch._C._is_alias_of(each, of):
                each.requires_grad_()
    return made


def is_composed(func: Any) -> bool:  # noqa: ANN401
    """Whether an operator only calls others: torch makes no view of what it returns."""
    return not func.has_kernel_for_dispatch_key(torch._C.DispatchKey.ADInplaceOrView)


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_nested


def _all_plain(values: Iterable[object], key: str) -> bool:
    """Whether all tensors are torch's own, strided, on devices of a key, as the key's kernels expect."""
    return all(
        _is_plain(each) and each.device.type == key.lower()
        for value in values for each in (value if isinstance(value, list | tuple) else (value,))
        if isinstance(each, Tensor)
    )  # fmt: skip


def register(overridden: Overridden) -> Any:  # noqa: ANN401
    """Overrides torch's kernels for calls of all threads, until `_destroy` of the library that it returns; none of them
    where it fails.

    Raises:
        RuntimeError: another library overrides these operators, in versions of torch that allow only one; the others
            put our kernels before its own.
        ValueError: torch does not have the dispatch key.
    """
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings(), ExitStack() as failing:
        failing.callback(library._destroy)
        # torch warns of the override, which is intended.
        warnings.simplefilter("ignore")
        for overload in sorted(overridden.overloads):
            try:
                original = torch.library.get_kernel(f"aten::{overload}", overridden.key)
            except RuntimeError as error:
                log.info("aten::%s is not overridden: %s", overload, error)
                continue
            kernel = _override(overload, original.call_boxed, overridden.shapes(overload), overridden.computed)
            library.impl(overload, kernel, overridden.key, with_keyset=True)
            _KEPT.append(torch.library.get_kernel(f"aten::{overload}", overridden.key))
        failing.pop_all()
    return library


def _override(
    overload: str, original: Callable[..., Tensor], shapes: Shapes, computed: Computed
) -> Callable[..., Tensor]:
    """The Python kernel of an overload. It passes most calls on, so its own time counts."""

    def product(keyset: Any, a: Tensor, b: Tensor) -> Tensor:  # noqa: ANN401
        if a.shape in shapes and b.shape in shapes[a.shape]:
            found = computed(overload, (a, b), {})
            if found is not None:
                return found
        return original(keyset, a, b)

    def product_out(keyset: Any, a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:  # noqa: ANN401
        if a.shape in shapes and b.shape in shapes[a.shape]:
            found = computed(overload, (a, b), {"out": out})
            if found is not None:
                return found
        return original(keyset, a, b, out=out)

    def added(keyset: Any, source: Tensor, a: Tensor, b: Tensor, **kwargs: Any) -> Tensor:  # noqa: ANN401
        if a.shape in shapes and b.shape in shapes[a.shape]:
            found = computed(overload, (source, a, b), kwargs)
            if found is not None:
                return found
        return original(keyset, source, a, b, **kwargs)

    def scaled(keyset: Any, a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ANN401
        if a.shape in shapes and b.shape in shapes[a.shape]:
            found = computed(overload, (a, b, *args), kwargs)
            if found is not None:
                return found
        return original(keyset, a, b, *args, **kwargs)

    if overload.startswith("_scaled_mm"):
        return scaled
    if overload.startswith("addmm"):
        return added
    return product_out if overload.endswith(".out") else product
