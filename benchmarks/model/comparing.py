"""Comparing: blocks in one phase, torch alone beside an installed table, in alternating runs of one process.

Several blocks with weights of their own run one after another, as in a model. Of a single one an L2 of 60 MB may keep
the weights of a small product from run to run, for kernels that don't mark them as read once.
"""

from __future__ import annotations

import math
import statistics
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from benchmarks.model.attribution import Attributed, attributed
from benchmarks.model.blocks import Block, Inputs, Layers, Phase, Step
from benchmarks.model.machines import Arm, Machine, Pace, Run, alternating, gain
from gemmtune.torch import Installed, install

#: Of calls with the table as it is installed by default, and of compiled prefill with it in all calls.
MODES: Final = ("eager", "compiled", "captured", "eager=True")
#: Blocks that run one after another.
LAYERS: Final = 4
#: Largest root mean square of the results' difference, as a share of that of torch's result, that rounding explains:
#: bf16 keeps 8 bits, and each block rounds about ten times.
TOLERANCE: Final = 0.02

#: Installs a table, as `gemmtune.torch.install` with a least gain and a dispatch key.
Installing = Callable[..., Installed]
#: Graphs of one arm that are captured: where operands come to lie alone makes a percent of difference.
CAPTURES: Final = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One mode of one phase.

    Attributes:
        torch_us, ours_us: time of one block, medians of turns.
        saved: share of torch's time: median, and its interval.
        launched: products that one block gives to our kernels.
        difference: root mean square of the results' difference, as a share of torch's.
    """

    phase: str
    mode: str
    torch_us: float
    ours_us: float
    saved: tuple[float, float, float]
    launched: int
    difference: float


@dataclass(frozen=True, slots=True)
class Product:
    """What one product's kernel alone saves in the captured block.

    Attributes:
        runs: in one run of the block.
        saved: share of torch's time for the whole block.
        kernels: of one block; None in prefill, and where a graph's kernels can't be told apart.
    """

    phase: str
    problem: str
    runs: int
    torch_us: float
    saved: tuple[float, float, float]
    kernels: Attributed | None


@dataclass
class Compared:
    """Everything of one block."""

    rows: list[Row] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Setting:
    """How a block is compared.

    Attributes:
        table: of all products; `alone`: of one product each, by title, with its runs.
        pace: of captured blocks; `called_pace`: of the others.
        backend: of `torch.compile`.
    """

    machine: Machine
    install: Installing
    table: Path
    alone: Mapping[str, tuple[Path, int]]
    modes: Sequence[str]
    pace: Pace
    called_pace: Pace
    backend: str = "inductor"


def installing(min_gain: float, key: str) -> Installing:
    """Installs tables at a least gain."""
    return partial(install, min_gain=min_gain, key=key)


def compare(layers: Layers, phase: Phase, setting: Setting, into: Compared) -> None:
    """Adds a row for each mode and, for captured blocks, one for each product; a mode that fails is a line.

    `eager=True` is for large products: of decoding there is no such row.
    """
    device = setting.machine.device
    x = torch.randn(phase.batch, phase.length, layers.sizes.hidden, device=device).to(layers.dtype)
    inputs = [Inputs(layers.sizes, phase, device) for _ in layers.blocks]
    step: Step = Block.forward
    torch.compiler.reset()
    for mode in setting.modes:
        try:
            if mode == "captured":
                _captured(partial(layers, step, x, inputs), len(layers.blocks), phase, setting, into)
                continue
            if mode == "eager=True" and phase.length == 1:
                continue
            if mode == "compiled":
                # Captured later as it is: an engine captures what it compiled.
                step = torch.compile(Block.forward, dynamic=False, backend=setting.backend)
            _called(partial(layers, step, x, inputs), len(layers.blocks), phase, mode, setting, into)
        except Exception as error:  # a mode that fails must not cost the others their numbers
            traceback.print_exc()
            into.failed.append(f"{phase.name}, {mode}: {type(error).__name__}: {error}")
            print(into.failed[-1], flush=True)


def _called(run: Run, layers: int, phase: Phase, mode: str, setting: Setting, into: Compared) -> None:
    """Not captured: the arms differ in the switch alone."""
    installed = setting.install(setting.table, eager=mode == "eager=True")
    try:
        with installed.off():
            expected = run().clone()
        run()  # loads kernels
        before = installed.launched
        difference = _difference(run(), expected)
        launched = installed.launched - before
        arms = {"torch": Arm(run, installed.off), "ours": Arm(run)}
        taken = _of_one(layers, alternating(setting.machine, arms, setting.called_pace))
        saved = gain(taken["torch"], taken["ours"])
        into.rows.append(_row(phase, mode, taken, saved, launched // layers, difference))
        print(line(into.rows[-1]), flush=True)
    finally:
        installed.remove()


def _captured(run: Run, layers: int, phase: Phase, setting: Setting, into: Compared) -> None:
    """Graphs of torch alone, of the whole table, and of each product alone, replayed in turn."""
    expected = run().clone()
    arms = {("torch", turn): Arm(setting.machine.capture(run)) for turn in range(CAPTURES)}
    launched, difference = 0, 0.0
    for name, path in {"ours": setting.table, **{name: path for name, (path, _) in setting.alone.items()}}.items():
        installed = setting.install(path, eager=not setting.machine.graphs, eager_us=0.0)
        try:
            for turn in range(CAPTURES):
                before = installed.launched
                graph = setting.machine.capture(run)
                off = _difference(graph(), expected)
                arms[name, turn] = Arm(graph)
                if name == "ours":
                    launched, difference = installed.launched - before, max(difference, off)
        finally:
            installed.remove()
    graphs = alternating(setting.machine, arms, setting.pace)
    taken = _of_one(layers, _over_captures(graphs))
    saved = {name: _gain_of_graphs(graphs, taken, name) for name in taken if name != "torch"}
    into.rows.append(_row(phase, "captured", taken, saved["ours"], launched // layers, difference))
    print(line(into.rows[-1]), flush=True)
    # In prefill the power limiter's clock differs from one second to the next, and so does every kernel's time.
    theirs = setting.machine.kernels(arms["torch", 0].run) if phase.length == 1 else []
    for name in saved:
        if name != "ours":
            runs, times = setting.alone[name][1], taken["torch"]
            ours = setting.machine.kernels(arms[name, 0].run) if theirs else []
            kernels = attributed(theirs, ours).of_one(layers) if ours else None
            into.products.append(Product(phase.name, name, runs, sorted(times)[len(times) // 2], saved[name], kernels))


def _gain_of_graphs(
    graphs: Mapping[tuple[str, int], list[float]], means: Mapping[str, list[float]], name: str
) -> tuple[float, float, float]:  # fmt: skip
    """What an arm's graphs save on average, and an interval that holds those of every pair of graphs.

    Turns repeat what two graphs differ by; that another capture differs by something else, only other graphs show.
    """
    pairs = [gain(graphs["torch", one], graphs[name, other]) for one in range(CAPTURES) for other in range(CAPTURES)]
    middle, _, _ = gain(means["torch"], means[name])
    return middle, min(low for _, low, _ in pairs), max(high for _, _, high in pairs)


def _of_one(layers: int, taken: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Each turn's time for one of the blocks."""
    return {name: [us / layers for us in times] for name, times in taken.items()}


def _over_captures(taken: Mapping[tuple[str, int], list[float]]) -> dict[str, list[float]]:
    """Each turn's mean over an arm's graphs."""
    names = dict.fromkeys(name for name, _ in taken)
    return {
        name: [statistics.fmean(times) for times in zip(*(taken[name, turn] for turn in range(CAPTURES)), strict=True)]
        for name in names
    }


def _difference(found: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference, as a share of the expected one; infinite for NaN, which max() passes over."""
    wide = expected.double()
    share = float((found.double() - wide).square().mean().sqrt() / wide.square().mean().sqrt())
    return math.inf if math.isnan(share) else share


def _row(
    phase: Phase, mode: str, taken: Mapping[str, list[float]], saved: tuple[float, float, float], launched: int,
    difference: float,
) -> Row:  # fmt: skip
    theirs, ours = (sorted(taken[name])[len(taken[name]) // 2] for name in ("torch", "ours"))
    return Row(phase.name, mode, theirs, ours, saved, launched, difference)


HEADER: Final = (
    "| phase | mode | torch, µs | installed, µs | time saved | 93 % interval | products ours "
    "| RMS difference | |\n| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | --- |"
)


def line(row: Row) -> str:
    """A row of the table."""
    middle, low, high = row.saved
    right = row.difference <= TOLERANCE
    return (
        f"| {row.phase} | {row.mode} | {row.torch_us:.1f} | {row.ours_us:.1f} | {middle:+.1%} | {low:+.1%} to "
        f"{high:+.1%} | {row.launched} | {row.difference:.4f} | {'' if right else 'WRONG'} |"
    )


def product_lines(products: Sequence[Product]) -> str:
    """The table of products."""
    lines = ["| phase | product | runs | block time won, µs | of the block | 93 % interval "
             "| its kernels, µs: torch, ours | won by other kernels, µs |",
             "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: |"]  # fmt: skip
    for one in products:
        middle, low, high = one.saved
        kernels = one.kernels
        lines.append(
            f"| {one.phase} | {one.problem} | {one.runs} | {middle * one.torch_us:+.1f} | {middle:+.1%} "
            f"| {low:+.1%} to {high:+.1%} "
            + (f"| {kernels.torch_us:.1f}, {kernels.ours_us:.1f} | {kernels.others_us:+.1f} |" if kernels else "| | |")
        )
    return "\n".join(lines)
