"""Timings: a config that nobody measured for a problem is timed beside torch's operator before a user's call runs it.

Both run in blocks that alternate, on operands that rotate through more memory than L2 holds, as where a program reads
other weights in between. Each launch is behind a small kernel, as under `chain`: a config with programmatic dependent
launch would overlap with its own copies. Blocks are queued while the GPU still spins: the host's time doesn't count.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from gemmtune.torch.calls import tf32
from gemmtune.torch.expected import Expected
from gemmtune.torch.operators import operator_of
from gemmtune.torch.private import torchs
from gemmtune.torch.torchs import Passing
from space.kinds.gemm import Gemm
from workers.cuda.copies import Strides

#: Blocks of each, and what one lasts at least, unless that takes more than the most launches.
BLOCKS: Final = 7
_BLOCK_US: Final = 300.0
_MOST_LAUNCHES: Final = 50
#: Operands rotate through this much memory.
_ROTATED_BYTES: Final = 256 << 20
#: Elements of what the small kernels add to.
_SMALL: Final = 4_096
#: A millisecond of the fastest clock, in which the host queues a block; and the most that is tried where it needs more.
_SPIN_CYCLES, _MOST_SPIN_CYCLES = 2_000_000, 64_000_000
#: What could not be compared is tried again after this time.
_AGAIN_SECONDS: Final = 60.0
#: Keeps the GPU busy for a number of cycles. A torch without it counts the host's time too.
_spin: Final = torchs("_cuda_sleep", lambda cycles: None)

_THREAD: Final = threading.local()


@dataclass
class Operands:
    """Of launches, and the C of the last one."""

    expected: Expected
    c: Tensor

    @property
    def size_bytes(self) -> int:
        """With what lies between lines that are apart."""
        one = self.expected
        held = one.a, one.b, one.bias, one.source, self.c
        return sum(each.untyped_storage().nbytes() for each in held if each is not None)


def at_work() -> bool:
    """Whether this thread is timing: torch's operator has to be torch's own meanwhile, whatever is installed."""
    return getattr(_THREAD, "timing", False)


def slower(
    key: str, launch: Callable[..., object], problem: Gemm, device: torch.device, strides: Mapping[str, Strides]
) -> str:
    """Why torch's operator has to compute a problem, as one sentence; empty where a launch is faster.

    `Passing` where torch may not multiply as in the call any more, or raises. The current stream must not be capturing.

    Args:
        key: of the config that is launched.
        launch: as in `proofs.difference`.
        strides: of operands whose lines are apart.

    Raises:
        torch.OutOfMemoryError: too little memory is free.
    """
    first = _operands(problem, device, strides)
    others = min(_MOST_LAUNCHES - 1, _ROTATED_BYTES // first.size_bytes)
    sets = [first, *(_operands(problem, device, strides) for _ in range(others))]
    try:
        with _timing():
            ours_us, torchs_us = paired(_ours(launch), _torchs(problem, first.expected), sets)
    except torch.OutOfMemoryError:
        raise  # a RuntimeError as well, whose text differs each time
    except (RuntimeError, ValueError) as error:  # if torch refuses the call too, its caller sees that
        return Passing(f"torch's operator can't be timed beside {key}, which was not measured: {error}", _AGAIN_SECONDS)
    if problem.dtype_a == "tf32" and not tf32():
        # The call that is waited for in the background was made when it was allowed.
        return Passing("torch multiplies f32 in full by now, and tf32 is not compared with that", _AGAIN_SECONDS)
    ratio = statistics.median(ours / torchs for ours, torchs in zip(ours_us, torchs_us, strict=True))
    if ratio < 1.0:
        return ""
    return (f"{key} was not measured for it, and takes {statistics.median(ours_us):.2f} µs here where torch's operator "
            f"takes {statistics.median(torchs_us):.2f}")  # fmt: skip


def paired(
    ours: Callable[[Operands], None], torchs: Callable[[Operands], None], sets: Sequence[Operands]
) -> tuple[list[float], list[float]]:
    """Microseconds of one launch and the small kernel before it in each block, of both arms. Block i of one is taken
    beside block i of the other.
    """
    arms = ours, torchs
    for arm in arms:  # the first launch of a kernel loads it
        arm(sets[0])
    counts = [_launches(_block_us(arm, sets, 2)) for arm in arms]
    taken: tuple[list[float], list[float]] = [], []
    for number in range(BLOCKS):
        for place in (0, 1) if number % 2 == 0 else (1, 0):
            taken[place].append(_block_us(arms[place], sets, counts[place]))
    return taken


def _launches(launch_us: float) -> int:
    return max(2, min(_MOST_LAUNCHES, int(_BLOCK_US / launch_us) + 1))


def _block_us(arm: Callable[[Operands], None], sets: Sequence[Operands], count: int) -> float:
    """Microseconds of one of `count` launches and its small kernel; the launches take the sets in turn."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    small = torch.zeros(_SMALL, device=sets[0].c.device)
    cycles = _SPIN_CYCLES
    while True:
        _spin(cycles)
        begin.record()
        for place in range(count):
            small.add_(1.0)
            arm(sets[place % len(sets)])
        end.record()
        late = begin.query()  # the GPU may have waited for the host
        end.synchronize()
        if not late or cycles >= _MOST_SPIN_CYCLES:
            return float(begin.elapsed_time(end)) * 1e3 / count
        cycles *= 2


def _operands(problem: Gemm, device: torch.device, strides: Mapping[str, Strides]) -> Operands:
    made = Expected(problem, device, strides)
    return Operands(made, torch.empty(made.shape, dtype=made.dtype, device=device))


def _ours(launch: Callable[..., object]) -> Callable[[Operands], None]:
    def run(given: Operands) -> None:
        launch(*given.expected.arguments(given.c))

    return run


def _torchs(problem: Gemm, like: Expected) -> Callable[[Operands], None]:
    """Torch's operator: on matrices where the problem is no batch, which torch multiplies by other kernels."""
    alone = problem.batch == 1
    shape = like.shape[1:] if alone else like.shape
    compute = operator_of(problem, shape, like.dtype, like.activation, like.device)

    def run(given: Operands) -> None:
        one = given.expected
        a, b, source = (each[0] if alone and each is not None else each for each in (one.a, one.b, one.source))
        # What several operators compute would be copied into a C that is given, as no call without `out` has it.
        given.c = compute(a, b, one.bias, source, one.alpha, one.beta, None, one.scales).view(one.shape)

    return run


@contextmanager
def _timing() -> Iterator[None]:
    _THREAD.timing = True
    try:
        yield
    finally:
        _THREAD.timing = False
