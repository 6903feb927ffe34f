"""What nobody measured, and is slower than torch's operator, is left to torch. On the CPU, by a clock that tests wind.

`make test-torch` runs it with the CPU build of PyTorch; a GPU runs `tests/gpu/test_torch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from gemmtune.torch import kernels, proofs, timings, torchs  # noqa: E402
from gemmtune.torch.operators import operator_of  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.integration.torch.standing_in import operands, stand_ins  # noqa: E402
from tests.integration.torch.test_torch_prepared import on_the_cpu  # noqa: E402
from tests.integration.torch.test_torch_proofs import right  # noqa: E402
from workers.cuda.copies import Strides  # noqa: E402

CPU, DENSE = torch.device("cpu"), MappingProxyType[str, Strides]({})
CONFIG = family_named("sm90_wgmma").config({})
PROBLEM = Gemm.of(32, 48, 64)


class Clock:
    """Runs the arms of blocks, and says that a launch of ours took `ours_us` and one of torch's 100 µs.

    Attributes:
        blocks: launches of each, in order, by whose they were.
    """

    def __init__(self, patched: pytest.MonkeyPatch, ours_us: Callable[[int], float]) -> None:
        self.ours_us, self.blocks = ours_us, list[tuple[str, int]]()
        patched.setattr(timings, "_block_us", self.block_us)

    def block_us(self, arm: Callable[..., None], sets: Sequence[Any], count: int) -> float:
        for place in range(count):
            arm(sets[place % len(sets)])
        whose = arm.__qualname__.partition(".")[0].strip("_")
        self.blocks.append((whose, count))
        return self.ours_us(sum(name == "ours" for name, _ in self.blocks)) if whose == "ours" else 100.0


def slower(problem: Gemm = PROBLEM, launch: proofs.Launch | None = None) -> str:
    return timings.slower("key", launch or right(problem), problem, CPU, DENSE)


@pytest.mark.parametrize(("ours_us", "is_slower"), [(50.0, False), (99.5, False), (100.0, True), (102.5, True)])
def test_torch_computes_what_a_config_would_slow_down(
    monkeypatch: pytest.MonkeyPatch, ours_us: float, is_slower: bool
) -> None:
    Clock(monkeypatch, lambda _: ours_us)
    said = f"key was not measured for it, and takes {ours_us:.2f} µs here where torch's operator takes 100.00"
    assert slower() == (said if is_slower else "")


def test_one_slow_block_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, lambda block: 900.0 if block == 3 else 90.0)
    assert slower() == ""
    # Two launches tell how many make a block.
    assert clock.blocks[:2] == [("ours", 2), ("torchs", 2)]
    assert clock.blocks[2:6] == [("ours", 4), ("torchs", 4), ("torchs", 4), ("ours", 4)]
    assert len(clock.blocks) == 2 + 2 * timings.BLOCKS


@pytest.mark.parametrize("problem", [
    PROBLEM, Gemm.of(16, 24, 32, batch=3, layout="nn"), Gemm.of(32, 48, 64, epilogue="alpha+beta"),
    Gemm.of(32, 48, 64, "fp8_e4m3", epilogue="scaled+bias"), Gemm.of(32, 48, 64, "int8"),
], ids=lambda problem: problem.key)  # fmt: skip
def test_both_compute_the_product_of_the_call(monkeypatch: pytest.MonkeyPatch, problem: Gemm) -> None:
    Clock(monkeypatch, lambda _: 90.0)
    given = timings._operands(problem, CPU, DENSE)
    for arm in (timings._ours(right(problem)), timings._torchs(problem, given.expected)):
        given.c.fill_(77)
        arm(given)
        assert given.expected.difference(given.c) == ""
    assert slower(problem) == ""


def test_a_block_for_which_the_gpu_waited_is_taken_again_behind_a_longer_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    spun, queued = list[int](), list[int]()

    class Event:
        """Has happened before the block is queued unless the GPU spins for eight milliseconds."""

        def __init__(self, **_: object) -> None: ...

        def record(self) -> None: ...

        def synchronize(self) -> None: ...

        def query(self) -> bool:
            return spun[-1] < 16_000_000

        def elapsed_time(self, _: Event) -> float:
            return 0.001 * sum(queued)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(timings, "_spin", spun.append)
    given = timings._operands(PROBLEM, CPU, DENSE)
    assert timings._block_us(lambda _: queued.append(1), [given], 5) == 4.0
    assert spun == [2_000_000, 4_000_000, 8_000_000, 16_000_000]
    monkeypatch.setattr(Event, "query", lambda _: True)
    timings._block_us(lambda _: None, [given], 5)
    assert spun[-1] == 64_000_000


class Operators(TorchDispatchMode):  # type: ignore[misc]
    """Notes what torch runs inside."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if not func.is_view:
            self.ran.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("problem", [
    PROBLEM, Gemm.of(32, 48, 64, epilogue="bias+silu"), Gemm.of(32, 48, 64, "bf16,bf16,f32,f32"),
], ids=lambda problem: problem.key)  # fmt: skip
def test_torch_runs_what_a_call_would(problem: Gemm) -> None:
    given = timings._operands(problem, CPU, DENSE)
    one = given.expected
    with Operators() as timed:
        timings._torchs(problem, one)(given)
    compute = operator_of(problem, one.shape[1:], one.dtype, one.activation, CPU)
    with Operators() as called:
        compute(one.a[0], one.b[0], one.bias, None, 1.0, 0.0, None)
    assert timed.ran == called.ran != []


def test_operands_that_rotate_take_no_more_memory_where_their_lines_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    sets: list[timings.Operands] = []
    monkeypatch.setattr(timings, "_ROTATED_BYTES", 1 << 20)
    monkeypatch.setattr(timings, "paired", lambda ours, torchs, given: sets.extend(given) or ([0.9], [1.0]))
    apart = {"a": Strides(4096, 4096 * PROBLEM.m)}
    assert timings.slower("key", right(PROBLEM), PROBLEM, CPU, apart) == ""
    one = sets[0].size_bytes
    assert one > 2 * 4096 * (PROBLEM.m - 1)
    assert len(sets) > 1
    assert len(sets) * one <= (1 << 20) + one


def test_tf32_is_not_compared_with_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    # A program may allow it for one call, and a thread times the config when that is over.
    Clock(monkeypatch, lambda _: 50.0)
    assert isinstance(slower(Gemm.of(32, 48, 64, "tf32")), torchs.Passing)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert slower(Gemm.of(32, 48, 64, "tf32")) == ""
    finally:
        torch.set_float32_matmul_precision(before)


def test_where_torchs_operator_cannot_be_timed_torch_computes_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, lambda _: 50.0)

    def refused(*_: object) -> None:
        raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")

    with monkeypatch.context() as refusing:
        refusing.setattr(timings, "operator_of", lambda *_: refused)
        said = slower()
    assert said == "torch's operator can't be timed beside key, which was not measured: CUBLAS_STATUS_ALLOC_FAILED"
    assert isinstance(said, torchs.Passing)
    assert not timings.at_work()
    assert slower() == ""


def test_a_lack_of_memory_while_torch_is_timed_is_said_as_one_whatever_torch_says_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its text has how much memory is free, so that each try was logged anew."""
    Clock(monkeypatch, lambda _: 50.0)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 13.12 MiB free")

    monkeypatch.setattr(timings, "operator_of", lambda *_: full)
    with pytest.raises(torch.OutOfMemoryError):
        slower()
    assert not timings.at_work()


def test_torchs_own_operator_is_timed_whatever_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[bool] = []

    def launch(*given: Any) -> None:  # noqa: ANN401
        seen.append(timings.at_work())
        right(PROBLEM)(*given)

    Clock(monkeypatch, lambda _: 100.0)
    slower(launch=launch)
    assert all(seen)
    assert not timings.at_work()
    with stand_ins(tmp_path, monkeypatch) as found:
        a, b = operands(16, 32, 64)
        a @ b
        assert found.launched == 1
        with timings._timing():
            a @ b
        assert found.launched == 1


def test_only_what_is_right_and_unmeasured_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []
    wrong = ""

    def told(key: str, *_: object) -> str:
        timed.append(key)
        return "slow"

    monkeypatch.setattr(timings, "slower", told)
    tried = on_the_cpu(monkeypatch, lambda *_: wrong)

    def kernel(*, unmeasured: bool) -> kernels.Kernel:
        aligned = tuple((name, 16) for name in ("a", "b", "c", "source", "bias"))
        return kernels.Kernel(CONFIG, 0, None, (32, 48), torch.bfloat16, aligned, {}, {}, False, unmeasured=unmeasured)

    assert tried(kernel(unmeasured=False), PROBLEM) == ""
    assert tried(kernel(unmeasured=True), PROBLEM) == "slow"
    wrong = "planted"
    assert tried(kernel(unmeasured=True), PROBLEM) == f"{CONFIG.key} is wrong here: planted"
    assert timed == [CONFIG.key]
