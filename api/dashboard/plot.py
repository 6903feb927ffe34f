"""Layout of a dot plot of speed-ups and slow-downs with their intervals; the template draws it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tuner.evidence.records import Ratio

_WIDTH: Final = 960
#: Margins left of the dots, for labels, and right of them.
_LEFT: Final = 260
_RIGHT: Final = 20
_ROW: Final = 14
_TOP: Final = 24
_STEPS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Dot:
    """One problem: the ratio at `x`, its interval from `low` to `high`, in pixels.

    Attributes:
        side: whether the interval lies above 1, lies below 1, or contains 1.
    """

    label: str
    x: float
    low: float
    high: float
    y: float
    side: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot for the template.

    Attributes:
        left: x at which the labels end.
        ticks: (x, text) of the logarithmic scale.
        one: x of the ratio 1.
        mean: geometric mean of the ratios.
    """

    width: int
    height: int
    left: int
    dots: list[Dot]
    ticks: list[tuple[float, str]]
    one: float
    mean: float


def plot(ratios: Sequence[tuple[str, Ratio]]) -> Plot | None:
    """The plot of labelled ratios, largest first; None without ratios."""
    if not ratios:
        return None
    ordered = sorted(ratios, key=lambda entry: -entry[1].value)
    least = min(1.0, *(ratio.low for _, ratio in ordered))
    most = max(1.0, *(ratio.high for _, ratio in ordered))
    low, high = math.log(max(least, 1e-3) / 1.03), math.log(most * 1.03)

    def x(value: float) -> float:
        return round(_LEFT + (math.log(max(value, 1e-3)) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT), 1)

    dots = [
        Dot(label, x(ratio.value), x(ratio.low), x(ratio.high), _TOP + _ROW * place + _ROW / 2, _side(ratio))
        for place, (label, ratio) in enumerate(ordered)
    ]
    ticks = [(x(step), f"{step:g}") for step in _STEPS if low <= math.log(step) <= high]
    mean = math.exp(sum(math.log(max(ratio.value, 1e-3)) for _, ratio in ordered) / len(ordered))
    return Plot(_WIDTH, _TOP + _ROW * len(ordered) + 8, _LEFT, dots, ticks, x(1.0), mean)


def _side(ratio: Ratio) -> str:
    if ratio.low > 1:
        return "gain"
    return "loss" if ratio.high < 1 else "even"
