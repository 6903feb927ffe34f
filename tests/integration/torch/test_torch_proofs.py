"""What nobody measured is verified before it runs: right results pass, every kind of wrong ones does not. On the CPU.

`make test-torch` runs it with the CPU build of PyTorch; a GPU runs `tests/gpu/test_torch.py`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import configure, kernels, proofs, torchs  # noqa: E402
from gemmtune.torch.composed import composed  # noqa: E402
from gemmtune.torch.operators import DTYPES  # noqa: E402
from gemmtune.torch.sources import Found  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from space.registry import family_named  # noqa: E402
from workers.cuda.copies import Strides  # noqa: E402

CPU = torch.device("cpu")
CONFIG = family_named("sm90_wgmma").config({})
Tensor = torch.Tensor
Spoil = Callable[[Tensor], object]


def right(problem: Gemm, spoil: Spoil = lambda c: None) -> proofs.Launch:
    """A launch that computes C with torch, rounding once, and then spoils it."""
    activation = next((part for part in ("relu", "gelu", "silu") if part in problem.epilogue_parts), "none")

    def launch(
        a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float, c: Tensor,
        scales: tuple[Tensor, Tensor] | None = None,
    ) -> None:  # fmt: skip
        if a.is_floating_point():
            a, b = a.float(), b.float()
        if scales is not None:
            a, b = a * scales[0], b * scales[1]
        c.copy_(composed(a, b, bias, source, alpha, beta, activation, DTYPES[problem.dtype_c]))
        spoil(c)

    return launch


PROBLEMS = [
    Gemm.of(65, 48, 100),
    *(Gemm.of(33, 40, 64, layout=layout) for layout in ("nn", "tn", "tt")),
    Gemm.of(16, 24, 32, batch=3),
    *(Gemm.of(32, 48, 128, dtype) for dtype in ("fp16", "tf32", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3_promoted")),
    Gemm.of(32, 48, 64, "int8"),
    Gemm.of(32, 48, 64, "uint8,uint8,s32,s32"),
    Gemm.of(32, 48, 64, "int8,int8,int8,s32"),
    Gemm.of(32, 48, 64, "int8,int8,bf16,s32", epilogue="alpha+bias+relu"),
    Gemm.of(32, 48, 64, "bf16,bf16,f32,f32"),
    Gemm.of(32, 48, 64, "fp8_e4m3,fp8_e4m3,fp8_e4m3,f32", epilogue="alpha"),
    Gemm.of(32, 48, 64, "fp8_e4m3", epilogue="scaled+bias"),
    Gemm.of(32, 48, 64, "fp8_e4m3,fp8_e5m2,f32,f32", epilogue="scaled_rowwise+bias"),
    *(Gemm.of(32, 48, 64, epilogue=f"alpha+beta+bias+{activation}") for activation in ("relu", "gelu", "silu")),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key)
def test_right_results_pass_and_one_wrong_element_does_not(problem: Gemm) -> None:
    assert proofs.difference(right(problem), problem, CPU) == ""

    def flip(c: Tensor) -> None:
        c.view(-1)[17:18].copy_(torch.tensor([3 if problem.dtype_c in ("s32", "int8") else 40]))

    assert "C[0, 0, 17] is" in proofs.difference(right(problem, flip), problem, CPU)


@pytest.mark.parametrize("problem", [Gemm.of(33, 40, 64, layout="nt"), Gemm.of(16, 24, 32, "fp16", "tn", 3)], ids=str)
def test_a_kernel_that_reads_between_lines_is_wrong(problem: Gemm) -> None:
    strides = {"a": Strides(96, 96 * 64), "b": Strides(128, 128 * 64)}
    seen: list[tuple[int, ...]] = []

    def launch(a: Tensor, b: Tensor, *rest: Any) -> None:  # noqa: ANN401
        seen.append(max(a.stride()[-2:]))
        right(problem)(a, b, *rest)

    assert proofs.difference(launch, problem, CPU, strides) == ""
    assert seen == [96, 96]

    def dense(a: Tensor, b: Tensor, *rest: Any) -> None:  # noqa: ANN401
        right(problem)(a.as_strided(a.shape, a.contiguous().stride()), b, *rest)

    assert "elements are off" in proofs.difference(dense, problem, CPU, strides)


def test_what_is_not_written_or_is_nan_or_infinite_is_wrong() -> None:
    problem = Gemm.of(32, 48, 64)
    for value in (math.nan, math.inf, 0.0):
        spoiled = right(problem, lambda c, value=value: c[0, 31].fill_(value))  # type: ignore[misc]
        assert "elements are off" in proofs.difference(spoiled, problem, CPU)

    # The last row keeps what was in C before.
    def launch(*given: Any) -> None:  # noqa: ANN401
        before = given[-1].clone()
        right(problem)(*given)
        given[-1][0, 31] = before[0, 31]

    assert "48 of 1,536 elements are off, C[0, 31, 0]" in proofs.difference(launch, problem, CPU)


def test_right_once_and_wrong_then_is_wrong() -> None:
    problem, calls = Gemm.of(32, 48, 64), []

    def spoil(c: Tensor) -> None:
        calls.append(c)
        if len(calls) == 2:
            c[0, 5, 5] += 10

    assert "1 of 1,536 elements are off, C[0, 5, 5]" in proofs.difference(right(problem, spoil), problem, CPU)


def test_a_slice_of_k_that_is_left_out_is_wrong() -> None:
    problem = Gemm.of(32, 48, 4096)

    def launch(a: Tensor, b: Tensor, *rest: Any) -> None:  # noqa: ANN401
        rest[-1].copy_(a[..., :4064] @ b[:, :4064])

    assert "elements are off" in proofs.difference(launch, problem, CPU)


@pytest.mark.parametrize("beyond", [-1, 32 * 48])
def test_a_byte_written_beyond_c_is_wrong(beyond: int) -> None:
    problem = Gemm.of(32, 48, 64)

    def spoil(c: Tensor) -> None:
        around = c.as_strided((1,), (1,), c.storage_offset() + beyond)
        around.fill_(1.0)

    assert proofs.difference(right(problem, spoil), problem, CPU) == "it writes beyond C"


def test_large_products_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmtune.torch import expected

    monkeypatch.setattr(expected, "_SIDES", (8, 16))
    problem = Gemm.of(50, 37, 64, batch=2, epilogue="beta+bias")
    assert proofs.difference(right(problem), problem, CPU) == ""

    def spoil(c: Tensor) -> None:
        c[1, 49, 36] = 100

    assert "C[1, 49, 36] is 100" in proofs.difference(right(problem, spoil), problem, CPU)


class Prepared:
    """What `kernels.prepare` sees: kernels that are loaded but not proved, and a GPU that is none."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.said, self.asked, self.capturing, self.build = "", 0, False, "first"
        self.begun, self.go_on = threading.Event(), threading.Event()
        patched.setattr(kernels, "_PREPARED", {})
        patched.setattr(kernels, "_LOGGED", set())
        patched.setattr(proofs, "_FOUND", {})
        patched.setattr(proofs, "_tried", self.tried)
        patched.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        patched.setattr(kernels, "_looked_up", lambda *_: self.kernel())

    def kernel(self, proved: bool = False) -> kernels.Kernel:
        aligned = (("a", 16), ("b", 16), ("c", 16), ("source", 2), ("bias", 2))
        call = SimpleNamespace(scratch={})
        return kernels.Kernel(CONFIG, 0, call, (64, 64), torch.bfloat16, aligned, {}, {}, proved, build=self.build)

    def tried(self, kernel: kernels.Kernel, problem: Gemm) -> str:
        self.asked += 1
        self.begun.set()
        assert self.go_on.wait(10)
        return self.said

    def prepare(self, key: str = "kind") -> kernels.Kernel | kernels.Absent:
        return kernels.prepare(key, Gemm.of(64, 64, 64), 0, (64, 64), torch.bfloat16, "none")


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prepared]:
    made = Prepared(monkeypatch)
    yield made
    made.go_on.set()
    proofs.BACKGROUND.submit(lambda: None).result()
    configure()


def test_the_first_call_waits_for_the_proof_which_is_remembered(prepared: Prepared) -> None:
    prepared.go_on.set()
    for key in ("kind", "kind", "configured again"):
        assert isinstance(prepared.prepare(key), kernels.Kernel)
    assert prepared.asked == 1


def test_another_program_of_a_proved_config_is_proved_too(prepared: Prepared) -> None:
    prepared.go_on.set()
    assert isinstance(prepared.prepare(), kernels.Kernel)
    prepared.build, prepared.said = "second", "planted"
    assert isinstance(prepared.prepare("from another bundle"), kernels.Absent)
    assert prepared.asked == 2


def test_a_config_that_fails_is_never_launched_and_said_once(
    prepared: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    prepared.said = f"{CONFIG.key} is wrong here: planted"
    prepared.go_on.set()
    with caplog.at_level(logging.WARNING, "gemmtune.torch"):
        for key in ("kind", "kind", "configured again"):
            assert isinstance(prepared.prepare(key), kernels.Absent)
    assert [line.getMessage() for line in caplog.records] == [
        f"bf16 nt 64x64x64 is computed by torch: {CONFIG.key} is wrong here: planted"
    ]
    assert prepared.asked == 1


@pytest.mark.parametrize("said", ["", "planted"])
def test_in_the_background_torch_computes_until_it_is_proved(prepared: Prepared, said: str) -> None:
    configure(verify="background")
    prepared.said = said
    first = prepared.prepare()
    assert isinstance(first, kernels.Absent)
    assert "being verified" in first.why
    assert first.pending
    a, b = torch.ones(64, 64, dtype=torch.bfloat16), torch.ones(64, 64, dtype=torch.bfloat16)
    assert torch.equal(first.launch(a, b, None, None, 1.0, 1.0), a @ b)
    assert prepared.begun.wait(10)
    assert prepared.prepare() is first
    prepared.go_on.set()
    proofs.BACKGROUND.submit(lambda: None).result()
    settled = prepared.prepare()
    assert isinstance(settled, kernels.Absent if said else kernels.Kernel)
    assert not getattr(settled, "pending", False)
    # Another kind of call with the same config and problem need not wait.
    assert type(prepared.prepare("another")) is type(settled)
    assert prepared.asked == 1


def test_what_is_proved_waits_for_no_other_proof(prepared: Prepared) -> None:
    prepared.go_on.set()
    assert isinstance(prepared.prepare(), kernels.Kernel)
    prepared.go_on.clear()
    prepared.begun.clear()
    configure(verify="background")
    prepared.build = "second"
    assert isinstance(prepared.prepare("of another program"), kernels.Absent)
    assert prepared.begun.wait(10)
    prepared.build, began = "first", time.monotonic()
    assert isinstance(prepared.prepare("configured again"), kernels.Kernel)
    assert time.monotonic() - began < 5


def test_a_proof_that_breaks_in_the_background_is_a_failure(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(kernel: kernels.Kernel, problem: Gemm) -> str:
        raise RuntimeError("planted")

    monkeypatch.setattr(proofs, "_tried", broken)
    configure(verify="background")
    prepared.prepare()
    proofs.BACKGROUND.submit(lambda: None).result()
    assert isinstance(prepared.prepare(), kernels.Absent)
    assert "can't be verified here: planted" in caplog.text


def test_nothing_is_proved_while_a_graph_is_captured(prepared: Prepared) -> None:
    prepared.capturing = True
    assert isinstance(prepared.prepare(), kernels.Absent)
    prepared.capturing = False
    prepared.go_on.set()
    assert isinstance(prepared.prepare(), kernels.Kernel)


def test_what_was_measured_is_launched_at_once(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_looked_up", lambda *_: prepared.kernel(proved=True))
    assert isinstance(prepared.prepare(), kernels.Kernel)
    assert prepared.asked == 0


def test_the_oldest_kinds_are_forgotten_beyond_the_most_that_are_kept(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "MOST_KINDS", 2)
    prepared.go_on.set()
    first = prepared.prepare("first")
    second, third = prepared.prepare("second"), prepared.prepare("third")
    assert kernels.everything() == [second, third]
    assert prepared.prepare("second") is second
    # It is prepared anew, and was proved before.
    assert prepared.prepare("first") is not first
    assert (len(kernels.everything()), prepared.asked) == (2, 1)


def test_a_line_is_logged_once_while_few_are(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "MOST_KINDS", 2)
    for why in ("one", "one", "another", "third", "third"):
        kernels.absent(Gemm.of(64, 64, 64), why)
    assert [each.message.rpartition(" ")[2] for each in caplog.records] == ["one", "another", "third"]
    assert len(kernels._LOGGED) == 1


@pytest.mark.parametrize("for_now", [True, False])
def test_a_source_that_could_not_answer_is_asked_again_after_a_second(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, for_now: bool
) -> None:
    why, now, asked = "slow down", 100.0, 0

    def looked_up(*_: object) -> str:
        nonlocal asked
        asked += 1
        return torchs.Passing(why) if for_now else why

    for module in (kernels, torchs):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(kernels, "_looked_up", looked_up)
    a, b = torch.ones(64, 64, dtype=torch.bfloat16), torch.ones(64, 64, dtype=torch.bfloat16)

    def call() -> None:
        found = kernels.prepared("kind") or prepared.prepare()
        assert isinstance(found, kernels.Absent)
        assert found.why == "slow down"
        assert torch.equal(found.launch(a, b, None, None, 1.0, 1.0), a @ b)

    for after, expected in ((0.0, 1), (0.9, 1), (0.2, 1), (0.0, 2), (0.5, 2)):
        now += after
        call()
        assert asked == (expected if for_now else 1)
    now += 1
    call()
    monkeypatch.setattr(kernels, "_looked_up", lambda *_: prepared.kernel(proved=True))
    assert isinstance(prepared.prepare(), kernels.Kernel if for_now else kernels.Absent)


def test_what_a_source_finds_for_now_is_not_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    about = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, L2_cache_size=60 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: about)
    monkeypatch.setattr(kernels, "power_limits_w", lambda _: (700.0, 700.0))
    for for_now in (True, False):
        source = SimpleNamespace(find=lambda *_, for_now=for_now: Found(None, "slow down", for_now=for_now))
        why = kernels._looked_up(Gemm.of(64, 64, 64), 0, (64, 64), torch.bfloat16, source, {})
        assert why == "slow down"
        assert isinstance(why, torchs.Passing) == for_now


def test_another_word_for_when_is_refused() -> None:
    with pytest.raises(ValueError, match="verify = 'never' is unknown: use first_call or background"):
        configure(verify="never")
