"""Calls that torch computes: for good, or until they are prepared anew."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from gemmtune.torch.operators import Compute
from workers.cuda.copies import Strides


@dataclass(frozen=True)
class Absent:
    """A call that torch computes.

    Attributes:
        why: the reason, as one sentence.
        shape, dtype: of C.
        compute: torch's own operator.
        strides: of operands whose lines are apart.
        pending: whether a later call of its kind may have a kernel.
    """

    why: str
    device: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    compute: Compute
    strides: Mapping[str, Strides] = field(default_factory=dict)
    pending: bool = False

    def launch(
        self, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None = None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """Computes C, which is `out` if given."""
        return self.compute(a, b, bias, source, alpha, beta, out, scales)

    def lapse(self) -> bool:
        """Has the next call of its kind prepared anew if the time has come; whether it has."""
        return False

    def writes(self, out: Tensor) -> bool:
        """Whether `out` can hold C: a plain, contiguous tensor of C's shape and dtype on this device."""
        return holds(out, self.shape, self.dtype, self.device)


#: What lacked memory is tried again after this time: looking for memory makes torch give back what it keeps.
MEMORY_SECONDS: Final = 60.0
#: What fails again and again is tried again after twice as long each time, up to this.
LONGEST_SECONDS: Final = 3_600.0


class Passing(str):
    """Why torch has to compute for now: what could not be answered, or not be proved, may be soon.

    Attributes:
        again_seconds: after which the same kind of call is prepared anew.
    """

    again_seconds: float

    def __new__(cls, why: str, again_seconds: float = 1.0) -> Passing:
        made = super().__new__(cls, why)
        made.again_seconds = again_seconds
        return made

    def after(self, times: int) -> Passing:
        """The same where it was said this many times before: asked again after twice as long for each of them."""
        # A larger power has no float.
        return Passing(self, min(self.again_seconds * 2.0 ** min(times, 64), LONGEST_SECONDS))


@dataclass(frozen=True)
class ForNow(Absent):
    """A call that torch computes until it is prepared anew.

    Attributes:
        until: when, by the monotonic clock.
        forget: has the next call of this kind prepared anew.
    """

    pending: bool = True
    until: float = math.inf
    forget: Callable[[Absent], None] = lambda _: None

    def launch(
        self, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None = None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """Computes C, which is `out` if given; the next call asks again if the time has come."""
        self.lapse()
        return self.compute(a, b, bias, source, alpha, beta, out, scales)

    def lapse(self) -> bool:
        """Has the next call of its kind prepared anew if the time has come; whether it has."""
        if time.monotonic() < self.until:
            return False
        self.forget(self)
        return True


def holds(out: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: int) -> bool:
    """Whether `out` is a plain, contiguous tensor of this shape and dtype on this device, without a gradient."""
    return bool(
        type(out) is Tensor and out.is_cuda and out.get_device() == device and out.dtype is dtype
        and out.shape == shape and out.is_contiguous() and not out.requires_grad
    )  # fmt: skip
