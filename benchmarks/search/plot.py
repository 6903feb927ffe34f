"""Plots the runs: ours as thick blue curves, rivals coloured by origin, with one legend for both panels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.command import WrongInput
from benchmarks.search.report import SHOWN, WITHIN, Curves, Floats

#: (first word of a strategy's name, colours of those that share it, dashes, width).
STYLES: Final = (
    ("guided", ("#08306b", "#2171b5", "#6baed6"), "-", 2.6),
    ("learned", ("#2171b5", "#6baed6"), ":", 1.6),
    ("analytic", ("#9ecae1",), ":", 1.6),
    ("random", ("#888888",), "-", 1.2),
    ("Kernel", ("#00441b", "#238b45", "#66c2a4", "#7a9a01", "#b5cf6b"), "-.", 1.3),
    ("nvMatmulHeuristics", ("#7a0177",), "-", 1.3),
    ("DeepGEMM's", ("#dd3497",), "-", 1.3),
)
#: Lower end of the axis; curves may start below it.
LOWEST: Final = 0.5
#: Every curve is visible from this measurement on.
WHOLE_FROM: Final = 4


def check_plot(path: Path) -> None:
    """Checks that a plot can be written there: what fails at the end would fail after hours of runs.

    Raises:
        WrongInput: its folder or matplotlib isn't there.
    """
    if not path.parent.is_dir():
        raise WrongInput(f"--plot {path}: {path.parent} is no folder: name a file in one")
    if find_spec("matplotlib") is None:
        raise WrongInput(f"--plot {path} needs matplotlib, which is not here: install the extra `bench`")


def plot(curves: Mapping[str, Curves], path: Path, title: str) -> None:
    """Writes the curves of the geometric mean and of the 5th percentile."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(15, 6.2), layout="constrained")
    for axes, what in zip(panels, ("geometric mean", "5th percentile"), strict=True):
        shown = {name: each.mean if what == "geometric mean" else each.low for name, each in curves.items()}
        _draw(axes, shown)
        axes.set_title(f"{what} over problems and seeds")
    panels[0].set_ylabel("share of the fastest recorded candidate")
    figure.suptitle(title)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9, handlelength=3.2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw(axes: Any, shown: Mapping[str, Floats]) -> None:  # noqa: ANN401  (an untyped library's)
    used: dict[str, int] = {}
    for name, shares in shown.items():
        word, colours, dashes, width = next(style for style in STYLES if name.startswith(style[0]))
        colour = colours[used.setdefault(word, 0) % len(colours)]
        used[word] += 1
        # A best changes only with a measurement, so curves are steps; ours are on top.
        axes.plot(
            range(1, len(shares) + 1), shares, label=name, color=colour, linestyle=dashes, linewidth=width,
            drawstyle="steps-post", zorder=3 if word == "guided" else 2,
        )  # fmt: skip
    lowest = min(float(shares[min(WHOLE_FROM, len(shares)) - 1]) for shares in shown.values())
    most = max(map(len, shown.values()))
    axes.axhline(WITHIN, color="#444444", linewidth=0.8, linestyle=(0, (1, 3)), zorder=1)
    axes.set_xscale("log", base=2)
    ticks = [count for count in SHOWN if count <= most and count.bit_count() == 1]
    axes.set_xticks(ticks, [str(count) for count in ticks])
    axes.set_xlim(1, most)
    axes.set_ylim(max(math.floor(lowest * 20) / 20, LOWEST), 1.003)
    axes.set_xlabel("candidates measured")
    axes.grid(alpha=0.3)
