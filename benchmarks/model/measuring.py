"""The half of `benchmarks.model` that needs torch: records, tunes, exports and compares blocks."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import torch

from benchmarks.command import gpu_of_torch
from benchmarks.model import parts, tuning
from benchmarks.model.blocks import BLOCKS, TINY, Block, Inputs, Layers, Phase
from benchmarks.model.comparing import (
    CAPTURES,
    HEADER,
    LAYERS,
    MODES,
    TOLERANCE,
    Compared,
    Installing,
    Setting,
    compare,
    installing,
    line,
    product_lines,
)
from benchmarks.model.machines import Arm, Cpu, Cuda, Machine, Pace, alternating, host_us
from benchmarks.published import command_of, facts_of, facts_table, publish
from gemmtune.torch import record
from space.kind import problem_from_key
from tuner.tables.exporters.guard import Guarded
from tuner.tables.shapes import Shapes

PREFILL, DECODE, CONTEXT = 4096, (1, 16, 64), 1024
#: Extents of a CPU's run, which only shows that everything works.
TINY_PREFILL, TINY_CONTEXT = 32, 8
#: Prefill is bound by power: a turn must outlast the clock that the arm before leaves, and then a swing of the limiter
#: (workers/cuda/regimes.py). What is called waits for the host, whose other work makes some turns twice as long: many
#: short turns say more than a few long ones.
PREFILL_PACE, PREFILL_CALLED = (Pace(turns, 0.25, 0.85, first_seconds=4.0) for turns in (5, 9))
DECODE_PACE, DECODE_CALLED = Pace(9, 0.02, 0.05), Pace(75, 0.005, 0.02)
TINY_PACE: Final = Pace(2, 0.0, 0.001)
#: Extents of a product that no table has, and how many of them a graph holds.
PASSED, IN_A_GRAPH = (8, 64, 64), 50
#: Turns in which such calls are timed without and with a table.
HOST_TURNS = 7


def measure(given: argparse.Namespace) -> int:
    """Prints and keeps the tables of the blocks that the part of `--json` lacks."""
    if given.device == "cuda":
        gpu_of_torch()
    part = parts.Part.read(given.json) if given.json and given.json.exists() else parts.Part()
    # A store that is resumed is an input; one that this command made is not.
    made = command_of("model") in part.commands
    read = [given.db] if given.db and given.db.exists() and not made else []
    if given.json:
        part.begin(command_of("model"), facts_of(facts_table("model", read)))
    machine: Machine = Cpu() if given.device == "cpu" else Cuda()
    torch.manual_seed(1)
    asked = given.blocks.split(",") if given.blocks else BLOCKS
    for name in [each for each in asked if each not in part.blocks]:
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
            part.blocks[name] = run(name, given, machine, Path(folder))
        if given.json:
            given.json.write_text(part.text())
    print(part.paragraphs())
    publish("model", given.out, part.paragraphs(), read=read)
    return int("WRONG |" in part.paragraphs())


def run(name: str, given: argparse.Namespace, machine: Machine, folder: Path) -> str:
    """Records, tunes, exports and compares one block; returns its tables."""
    tiny, clock = machine.device == "cpu", _Clock()
    phases, layers = phases_of(tiny), Layers.of((TINY if tiny else BLOCKS)[name], LAYERS, machine.device)
    recorded = recorded_shapes(layers.blocks[0], phases, machine, folder)
    keys = {problem.key for shapes in recorded for problem in shapes.counts}
    clock.say(f"recorded {len(keys)} products of {name}")
    plan = tuning.Plan(given.db or folder / "tuned.db", given.tune_devices.split(","), given.tune_seconds,
                       given.candidates, given.screening_seconds, given.turns)  # fmt: skip
    done = tuning.tuned(recorded, model_of(machine), plan)
    clock.say(f"tuned {done.count} products in {done.seconds:.0f} s")
    table = tuning.exported(plan.db, done.device, keys, given.min_gain)
    whole, install = tuning.written(table, folder / "table.json"), installing(given.min_gain, machine.key)
    made, modes = Compared(), given.modes.split(",") if given.modes else MODES
    for phase, shapes in zip(phases, recorded, strict=True):
        paces = (DECODE_PACE, DECODE_CALLED) if phase.length == 1 else (PREFILL_PACE, PREFILL_CALLED)
        setting = Setting(machine, install, whole, alone_of(table, shapes, folder), modes,
                          *((TINY_PACE, TINY_PACE) if tiny else paces),
                          "aot_eager" if tiny else "inductor")  # fmt: skip
        compare(layers, phase, setting, made)
        clock.say(f"compared {name}, {phase.name}")
    rows = "\n".join([HEADER, *map(line, made.rows), *made.failed])
    passed = passed_on(machine, partial(install, whole))
    clock.say("measured the cost of calls that are passed on")
    return "\n\n".join([f"## {name}", about(machine, table, done, given), rows, product_lines(made.products), passed])


def phases_of(tiny: bool) -> list[Phase]:
    """What runs through a block."""
    prefill, context = (TINY_PREFILL, TINY_CONTEXT) if tiny else (PREFILL, CONTEXT)
    return [Phase(1, prefill), *(Phase(batch, 1, context) for batch in DECODE)]


def model_of(machine: Machine) -> str:
    """The GPU model; that of the recordings without a GPU."""
    return torch.cuda.get_device_name() if machine.device == "cuda" else "NVIDIA H200"


def recorded_shapes(block: Block, phases: Sequence[Phase], machine: Machine, folder: Path) -> list[Shapes]:
    """The products of one run in each phase."""
    found = []
    for phase in phases:
        x = torch.zeros(phase.batch, phase.length, block.sizes.hidden, device=machine.device)
        with record(folder / "shapes.csv") as recording:
            block(x.to(block.qkv.dtype), Inputs(block.sizes, phase, machine.device))
        found.append(recording.shapes)
    return found


def alone_of(table: Guarded, shapes: Shapes, folder: Path) -> Mapping[str, tuple[Path, int]]:
    """A table of each product of a block that the table has, with its runs, by title."""
    found = {}
    for place, entry in enumerate(table.entries):
        problem = problem_from_key(entry["problem"]["key"])
        if problem in shapes.counts:
            path = tuning.written(table, folder / f"alone{place}.json", [problem.key])
            title = f"{problem.title}, {entry['config']['family']}"
            found[title] = path, shapes.counts[problem]
    return found


def about(machine: Machine, table: Guarded, done: tuning.Tuned, given: argparse.Namespace) -> str:
    """What was tuned, and what the guard left to the library."""
    device = f"{model_of(machine)}, torch {torch.__version__}"
    known = f"the store had {done.known} more; " if done.known else ""
    lines = [
        f"{device}. Times are those of one of {LAYERS} blocks, medians of turns. {done.count} products were tuned in "
        f"{done.seconds:.0f} s on {given.tune_devices}, up to {given.candidates} candidates each; {known}"
        f"{len(table.entries)} leave with a gain surely above {given.min_gain:g}. Decoding attends to {CONTEXT} tokens."
        f" An interval of captured blocks holds those of every pair of {CAPTURES} graphs an arm. WRONG: the results "
        f"differ by more than {TOLERANCE:g}."
    ]
    lines += [f"- left to the library {count} ×: {reason}" for reason, count in table.left_out.items()]
    lines += [f"- not tuned: {title}: {reason}" for title, reason in done.skipped.items()]
    return "\n".join(lines)


def passed_on(machine: Machine, install: Installing) -> str:
    """The host's time of a product that no table has, without and with an installed table, and its time in a graph."""
    m, n, k = PASSED
    dtype = torch.bfloat16
    a, b = torch.randn(m, k, device=machine.device).to(dtype), torch.randn(k, n, device=machine.device).to(dtype)
    out = torch.empty(m, n, device=machine.device, dtype=dtype)
    call = partial(torch.mm, a, b, out=out)

    def several() -> None:
        for _ in range(IN_A_GRAPH):
            call()

    call()
    graph = machine.capture(several)
    taken: dict[bool | None, list[float]] = {None: [], False: [], True: []}
    # In turn: what else the host does makes a second slower at times.
    for _ in range(HOST_TURNS):
        taken[None].append(host_us(machine, call))
        for eager in (False, True):
            installed = install(eager=eager)
            try:
                taken[eager].append(host_us(machine, call))
                with_table = machine.capture(several)
            finally:
                installed.remove()
    plain, passed, at_once = map(statistics.median, taken.values())
    turns = alternating(machine, {"torch": Arm(graph), "ours": Arm(with_table)}, DECODE_PACE)
    theirs, mine = (sorted(turns[name])[len(turns[name]) // 2] / IN_A_GRAPH for name in ("torch", "ours"))
    return (
        f"A product that the table does not have takes {plain:.2f} µs of the host without a table, "
        f"{passed:.2f} µs with it ({passed - plain:+.2f} µs), and {at_once:.2f} µs with `eager=True` "
        f"({at_once - plain:+.2f} µs); in a graph {theirs:.3f} µs without and {mine:.3f} µs with it."
    )


class _Clock:
    """Says how long each step took."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def say(self, what: str) -> None:
        """Prints a step and its seconds."""
        now = time.monotonic()
        print(f"[{now - self._last:5.1f} s] {what}", flush=True)
        self._last = now
