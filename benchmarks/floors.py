"""How far what is served is from the least time that moving a product's bytes takes, or multiplying them.

python -m benchmarks.floors benchmarks/problems/dev.json benchmarks/stores/h200_few_rows benchmarks/stores/h200_now
    --out FILE
python -m benchmarks.floors --bound arithmetic --dtype bf16 --dtype fp16 benchmarks/problems/dev.json
    benchmarks/stores/h200_halves --out FILE

Products whose bytes take longer than their arithmetic, or those whose arithmetic takes longer; odd ones aside. The
floor of memory is a kernel that reads A and B once, writes as many bytes as C has, and does nothing else; that of
arithmetic a kernel on Hopper whose warps issue as many wgmma, on operands that stay in shared memory, and do nothing
else. Torch's product, what is served and the floor are timed in one run, in the regimes of `benchmarks.deployed`.
Ratios are torch's time over the arm's: no kernel gains more than the floor does. Where power sets the clock, one that
moves what it multiplies gains much less.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.command import as_command, gpu_of_torch, needing_torch

with needing_torch():
    import torch

from benchmarks.deployed_measuring import Planted, as_seen, ours, sets_of, theirs, unlike
from benchmarks.deployed_table import REGIMES, mean
from benchmarks.deployed_timing import Arm, Energy, launches_of, times
from benchmarks.kernels.floor import SOURCE
from benchmarks.kernels.wgmma_rate import COLUMNS, rate_source
from benchmarks.named import named_problems
from benchmarks.published import add_out, publish
from benchmarks.restored import stores_in
from gemmtune.torch import configure
from space.devices import DeviceProfile, find_profile
from space.instructions import wgmma
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from space.rank import may_reach_power_limit, roofline_us
from tuner.evidence.records import Best
from workers.build import Build, compile_source
from workers.cuda.device import open_device
from workers.cuda.driver import Arguments, Borrowed, Launch, Module
from workers.cuda.families.arguments import EVICT_FIRST, EVICT_NORMAL
from workers.measurement import DeviceFacts

T = TypeVar("T")
#: Threads of a block of `move_bytes`; how many blocks a multiprocessor gets, and how L2 keeps what is read: the fastest
#: of the four ways.
THREADS: Final = 512
BLOCKS: Final = (1, 2)
POLICIES: Final = {"kept": EVICT_NORMAL, "streamed": EVICT_FIRST}
#: Warpgroups of a block of `wgmma_rate`, and the bytes of K that each multiplies in a step.
WARPGROUPS, STEP_BYTES = 2, 128
#: The ratios of a row.
RATIOS: Final = tuple((arm, regime) for arm in ("served", "floor") for regime in REGIMES)


class Range(ctypes.Structure):
    """`Range` of floor/entry.cuh."""

    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_longlong))

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Range:
        """All bytes of a dense tensor."""
        return cls(tensor.data_ptr(), tensor.numel() * tensor.element_size())


@dataclass(frozen=True, slots=True)
class Seen:
    """One problem: times by arm; `floor` has the least of each regime."""

    name: str
    problem: Gemm
    us: Mapping[str, Mapping[str, float]]

    def ratio(self, arm: str, regime: str) -> float:
        """torch's time over the arm's."""
        return self.us["torch"][regime] / self.us[arm][regime]


@cache
def gpu() -> DeviceFacts:
    """The GPU that torch uses, made current once."""
    return open_device(0)


@cache
def moving() -> dict[str, Arm]:
    """The kernel that only moves bytes, by its blocks on a multiprocessor and its policy."""
    function = compiled(SOURCE.render(), "move_bytes")

    def arm(blocks: int, policy: int) -> Arm:
        launch = Launch(function, THREADS)
        launch.set_grid(blocks * gpu().sm_count)

        def moved(each: Any) -> None:  # noqa: ANN401
            stream = Borrowed(torch.cuda.current_stream().cuda_stream)
            launch(stream, Arguments(*(Range.of(tensor) for tensor in each[:3]), ctypes.c_uint64(policy)))

        return Arm(moved)

    return {
        f"{blocks} a multiprocessor, {word}": arm(blocks, policy)
        for blocks in BLOCKS for word, policy in POLICIES.items()
    }  # fmt: skip


def multiplying(problem: Gemm) -> dict[str, Arm]:
    """The kernel that only multiplies: as often as the problem does, rounded down to whole steps of every warpgroup."""
    blocks, threads = gpu().sm_count, WARPGROUPS * wgmma.WARPGROUP_THREADS
    launch = Launch(compiled(rate_source(problem), "wgmma_rate"), threads)
    launch.set_grid(blocks)
    each = wgmma.M * COLUMNS * STEP_BYTES // DTYPE_BYTES[problem.dtype_a]
    steps = max(problem.flops // 2 // (each * WARPGROUPS * blocks), 1)
    words = torch.empty(blocks * threads, device="cuda", dtype=torch.int32)

    def multiplied(operands: Any) -> None:  # noqa: ANN401
        stream = Borrowed(torch.cuda.current_stream().cuda_stream)
        read = max(operands[:2], key=torch.Tensor.numel)
        addresses = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (read, words))
        launch(stream, Arguments(*addresses, ctypes.c_int(steps)))

    return {"multiplying": Arm(multiplied)}


@cache
def compiled(text: str, entry: str) -> Any:  # noqa: ANN401
    """A kernel of this device."""
    built = compile_source(text, gpu().arch, None)
    if not isinstance(built, Build):
        raise SystemExit(f"{entry} doesn't compile: {built.reason}")
    return Module(built.cubin).function(entry)


def bound_by_memory(problem: Gemm, profile: DeviceProfile) -> bool:
    """Whether reading and writing takes longer than the arithmetic, each at the profile's rate."""
    return roofline_us(problem, profile) > problem.flops / profile.peak_tflops(problem.dtype) / 1e6


@dataclass(frozen=True, slots=True)
class Bound:
    """What bounds a product's time.

    Attributes:
        by_memory: or by arithmetic.
        unit, work: how much of it a product takes.
        floor: kernels that do this much and nothing else.
    """

    by_memory: bool
    unit: str
    work: Callable[[Gemm], float]
    floor: Callable[[Gemm], Mapping[str, Arm]]

    def holds(self, problem: Gemm, profile: DeviceProfile) -> bool:
        """Whether it bounds the problem on a card."""
        return bound_by_memory(problem, profile) == self.by_memory


BOUNDS: Final = {
    "memory": Bound(True, "MB", lambda problem: problem.min_bytes / 1e6, lambda _: moving()),
    "arithmetic": Bound(False, "GFLOP", lambda problem: problem.flops / 1e9, multiplying),
}


def seen(bound: Bound, energy: Energy, name: str, problem: Gemm, best: Best, expected_us: float) -> Seen:
    """Times one problem beside the kernels of its floor."""
    floor = bound.floor(problem)
    profile = find_profile(torch.cuda.get_device_name())
    settles = profile is not None and may_reach_power_limit(problem, profile)
    served = Arm(ours, partial(configure, Planted(best.config, best.winner.provenance.cublaslt), trusted=["measured"]))
    arms = {"torch": Arm(theirs(problem)), "served": served, **floor}
    timed = times(arms, sets_of(problem, launches_of(expected_us)), expected_us, energy, settles=settles)
    least = {regime: min(timed[way].us[regime] for way in floor) for regime in REGIMES}
    return Seen(name, problem, {"torch": timed["torch"].us, "served": timed["served"].us, "floor": least})


def measured(
    problems: Path, folders: Sequence[Path], wanted: Callable[[Gemm, DeviceProfile], bool],
    timed: Callable[[str, Gemm, Best, float], T],
) -> Iterator[T]:  # fmt: skip
    """What `timed` says of each problem that is wanted.

    Args:
        folders: with stores; a problem's best is that of the first store that has one.
        timed: takes a problem's name, the problem, its best, and about how many microseconds it takes.
    """
    device = torch.cuda.get_device_name()
    profile = find_profile(device)
    if profile is None:
        raise SystemExit(f"{device} has no profile: what bounds a product is not known")
    left = {
        name: as_seen(problem) for name, group, problem in named_problems(problems)
        if group != "odd" and not unlike(problem) and wanted(problem, profile)
    }  # fmt: skip
    for store in chain.from_iterable(map(stores_in, folders)):
        for name, problem in list(left.items()):
            if (best := store.best(problem, device)) is None:
                continue
            del left[name]
            try:
                yield timed(name, problem, best, 2.0 + roofline_us(problem, profile))
            except RuntimeError as error:  # torch multiplies no such operands
                print(f"{name}: {error}", flush=True)
            configure()
            torch.cuda.empty_cache()


def line(one: Seen, work: float) -> str:
    """The problem's row; `work` is what bounds it."""
    cells = [f"{one.ratio(arm, regime):.3f}" for arm, regime in RATIOS]
    return (
        f"| {one.name} {one.problem.dtype} {one.problem.shape} | {work:.1f} | "
        f"{one.us['torch']['alone']:.2f} | {one.us['served']['alone']:.2f} | {one.us['floor']['alone']:.2f} | "
        + " | ".join(cells) + " |"
    )  # fmt: skip


def means(title: str, found: Sequence[Seen]) -> str:
    """Geometric means of some rows."""
    cells = [f"{mean([one.ratio(arm, regime) for one in found]):.3f}" for arm, regime in RATIOS]
    return f"| {title} ({len(found)}) | | | | | " + " | ".join(cells) + " |"


def main() -> int:
    """Prints a row per problem, then means."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", type=Path)
    options.add_argument("stores", type=Path, nargs="+", help="folders of backups with the bests")
    options.add_argument("--bound", choices=tuple(BOUNDS), default="memory", help="by what (default: memory)")
    options.add_argument("--dtype", action="append", help="only problems of this, given once for each (default: all)")
    add_out(options)
    given = options.parse_args()
    gpu_of_torch()
    bound = BOUNDS[given.bound]

    def wanted(problem: Gemm, profile: DeviceProfile) -> bool:
        return (not given.dtype or problem.dtype in given.dtype) and bound.holds(problem, profile)

    names = " | ".join(f"{arm}, {regime}" for arm, regime in RATIOS)
    first = f"| problem | {bound.unit} | torch alone, µs | served | floor | {names} |"
    lines = [first, "| --- " * (5 + len(RATIOS)) + "|"]
    print(*lines, sep="\n", flush=True)
    rows = []
    for one in measured(given.problems, given.stores, wanted, partial(seen, bound, Energy())):
        rows.append(one)
        lines.append(line(one, bound.work(one.problem)))
        print(lines[-1], flush=True)
    sixteen = [one for one in rows if one.problem.dtype in ("bf16", "fp16")]
    lines += [means(title, found) for title, found in (("16-bit", sixteen), ("all", rows)) if found]
    print(*lines[-2:], sep="\n")
    publish("floors", given.out, "\n".join(lines), read=[given.problems, *given.stores])
    return 0


if __name__ == "__main__":
    as_command(main)
