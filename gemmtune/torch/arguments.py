"""Arguments, checked before torch's dispatcher sees them: it answers with the schema of an operator."""

from __future__ import annotations

import math
from numbers import Real
from typing import Final

import torch
from torch import Tensor
from torch.compiler import is_compiling

from gemmtune.torch.operands import EIGHT_BIT_FLOATS, EIGHT_BIT_INTEGERS, Refused
from space.kinds.gemm import ACTIVATIONS

_ACTIVATIONS: Final = ("none", *ACTIVATIONS)


def check_tensors(**given: object) -> None:
    """Checks that arguments are tensors, or None where they may be left out.

    Raises:
        Refused: one is something else.
    """
    for name, value in given.items():
        if not isinstance(value, Tensor) and (value is not None or name in ("a", "b")):
            raise Refused(f"{name} is of type {type(value).__name__}: give a torch.Tensor")


def check_dense(**given: Tensor | None) -> None:
    """Checks that tensors have elements at strides.

    Raises:
        Refused: one is sparse, nested or in a format of a library.
    """
    for name, value in given.items():
        if value is None:
            continue
        if value.is_nested:
            raise Refused(f"{name} is a nested tensor: give a dense one, such as torch.nested.to_padded_tensor makes")
        if value.layout is not torch.strided:
            raise Refused(f"{name} has the layout {value.layout}: give a dense tensor, {name}.to_dense()")


def check_options(a: Tensor, activation: object, promoted: object) -> None:
    """Checks the words of the epilogue and of the sums.

    Raises:
        Refused: a word is unknown, or A has no partial sums to promote.
    """
    if activation not in _ACTIVATIONS:
        raise Refused(f"activation {activation!r} is unknown: use {', '.join(_ACTIVATIONS)}")
    if promoted not in (None, False, True):
        raise Refused(f"promoted is {promoted!r}: give True or False")
    # Of integers it says nothing, and does no harm: they are summed exactly.
    if promoted and a.dtype not in (*EIGHT_BIT_FLOATS, *EIGHT_BIT_INTEGERS):
        raise Refused(f"promoted=True is for 8-bit floats, and a is {a.dtype}, whose sums are in f32 anyway: omit it")


def check_factors(graded: bool, **factors: object) -> None:
    """Checks that alpha and beta are numbers; tensors where torch computes, which differentiates them too.

    Raises:
        Refused: one is something else.
    """
    for name, factor in factors.items():
        if isinstance(factor, Tensor):
            if not graded:
                # Each would be a kind of its own, and its gradient would be lost.
                raise Refused(f"{name} is a tensor, and kernels take a number: give {name}.item()")
        # A compiled function's numbers may be symbols, which the operator checks.
        elif not isinstance(factor, int | float) and not (is_compiling() or isinstance(factor, Real)):
            raise Refused(f"{name} is {factor!r}: give a number")


def check_numbers(**given: object) -> None:
    """Checks that arguments are numbers: no gain exceeds one that isn't, and every product would be left to torch.

    Raises:
        ValueError: one is something else.
    """
    for name, value in given.items():
        if not isinstance(value, Real) or math.isnan(value):
            raise ValueError(f"{name} = {value!r} is no number: give one, or leave it out")
