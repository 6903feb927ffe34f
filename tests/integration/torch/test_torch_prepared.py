"""When `gemmtune.torch` proves what it prepares, and what it remembers of that. On the CPU.

`make test-torch` runs it with the CPU build of PyTorch; a GPU runs `tests/gpu/test_torch.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Literal

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import configure, kernels, proofs, streams, torchs  # noqa: E402
from gemmtune.torch.sources import Found  # noqa: E402
from space.devices import profile_named  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from workers.cuda import calls  # noqa: E402
from workers.cuda.driver import CudaError  # noqa: E402

CONFIG = family_named("sm90_wgmma").config({})
TRIED = proofs._tried


class Prepared:
    """What `kernels.prepare` sees: kernels that are loaded but not proved, and a GPU that is none."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.said, self.asked, self.capturing, self.build = "", 0, False, "first"
        self.begun, self.go_on = threading.Event(), threading.Event()
        patched.setattr(kernels, "_PREPARED", {})
        patched.setattr(kernels, "_LOGGED", set())
        patched.setattr(proofs, "_FOUND", {})
        patched.setattr(proofs, "_PASSED", {})
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


def test_a_kernel_is_loaded_while_another_thread_captures(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[str] = []

    @contextmanager
    def unhindered() -> Iterator[None]:
        modes.append("relaxed")
        yield
        modes.append("before")

    def looked_up(*_: object) -> kernels.Kernel:
        modes.append("loaded")
        return prepared.kernel(proved=True)

    monkeypatch.setattr(streams, "unhindered", unhindered)
    monkeypatch.setattr(kernels, "_looked_up", looked_up)
    assert isinstance(prepared.prepare(), kernels.Kernel)
    assert modes == ["relaxed", "loaded", "before"]


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


def test_a_thread_that_outlives_the_main_one_verifies_at_once(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(settle: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    configure(verify="background")
    with monkeypatch.context() as patched:
        patched.setattr(proofs.BACKGROUND, "submit", refused)
        prepared.go_on.set()
        assert isinstance(prepared.prepare(), kernels.Kernel)


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


@pytest.mark.parametrize("verify", ["first_call", "background"])
def test_a_proof_that_lacked_memory_is_tried_again_after_a_minute(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, verify: Literal["first_call", "background"]
) -> None:
    now, full, tried = 100.0, True, 0

    def difference(*_: object) -> str:
        nonlocal tried
        tried += 1
        if full:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return ""

    for module in (kernels, torchs):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(proofs, "_tried", on_the_cpu(monkeypatch, difference))
    configure(verify=verify)
    a, b = torch.ones(64, 64, dtype=torch.bfloat16), torch.ones(64, 64, dtype=torch.bfloat16)

    def call() -> kernels.Kernel | kernels.Absent:
        prepared.prepare()
        proofs.BACKGROUND.submit(lambda: None).result()
        found = prepared.prepare()
        if isinstance(found, kernels.Absent):
            assert torch.equal(found.launch(a, b, None, None, 1.0, 1.0), a @ b)
        return found

    found = call()
    assert isinstance(found, kernels.Absent)
    assert found.why.startswith(f"too little memory is free to verify {CONFIG.key}: it is tried again in 60 s")
    assert found.pending
    now, full = 159.0, False
    assert call() is found
    now = 161.0
    assert call() is found
    assert isinstance(call(), kernels.Kernel)
    assert isinstance(prepared.prepare("another"), kernels.Kernel)
    assert tried == 2


def test_a_proof_that_lacks_memory_for_long_is_tried_ever_less_often_and_said_once(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Looking for memory has torch give back what it keeps: once a minute, a full card never had a cache."""
    now, tried, full = 0.0, list[float](), True

    def difference(*_: object) -> str:
        tried.append(now)
        if full:
            raise torch.OutOfMemoryError(f"CUDA out of memory at {now}")
        return ""

    for module in (kernels, torchs):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(proofs, "_tried", on_the_cpu(monkeypatch, difference))

    def hours(count: int) -> kernels.Kernel | kernels.Absent:
        nonlocal now
        for _ in range(count * 60):
            if isinstance(found := prepared.prepare(), kernels.ForNow) and found.lapse():
                prepared.prepare()
            now += 60.0
        return prepared.prepare()

    hours(5)
    assert tried == [0.0, 60.0, 180.0, 420.0, 900.0, 1860.0, 3780.0, 7380.0, 10980.0, 14580.0]
    assert caplog.text.count("too little memory") == 1
    full = False
    assert isinstance(hours(1), kernels.Kernel)
    assert proofs._PASSED == {}


def test_a_kernel_that_lacked_memory_to_load_is_loaded_after_a_minute(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, name = 100.0, "CUDA_ERROR_OUT_OF_MEMORY"

    def call(*_: object) -> SimpleNamespace:
        raise CudaError("cuLibraryLoadData", name)

    def looked_up(problem: Gemm, device: int, *_: object) -> kernels.Kernel | str:
        found = Found(CONFIG, "measured", "", program=b"cubin")
        made = kernels._loaded(problem, found, device, profile_named("NVIDIA H200"))
        return made if isinstance(made, str) else prepared.kernel(proved=True)

    for module in (kernels, torchs):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(kernels, "_looked_up", looked_up)
    monkeypatch.setattr(streams, "allocated", lambda size, device: torch.empty(size, dtype=torch.uint8))
    monkeypatch.setattr(calls, "Call", call)
    a, b = torch.ones(64, 64, dtype=torch.bfloat16), torch.ones(64, 64, dtype=torch.bfloat16)
    found = prepared.prepare()
    assert isinstance(found, kernels.Absent)
    assert found.pending
    monkeypatch.setattr(calls, "Call", lambda *_: SimpleNamespace(scratch={}))
    found.launch(a, b, None, None, 1.0, 1.0)
    assert prepared.prepare() is found
    now = 161.0
    found.launch(a, b, None, None, 1.0, 1.0)
    assert isinstance(prepared.prepare(), kernels.Kernel)
    name = "CUDA_ERROR_INVALID_IMAGE"
    monkeypatch.setattr(calls, "Call", call)
    refused = prepared.prepare("another")
    assert isinstance(refused, kernels.Absent)
    assert not refused.pending


def on_the_cpu(patched: pytest.MonkeyPatch, difference: Callable[..., str]) -> Callable[..., str]:
    """How a proof is tried, without a GPU."""
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    patched.setattr(proofs, "_stream", lambda _: stream)
    queue = SimpleNamespace(forget=lambda: None)
    patched.setattr(proofs, "streams", SimpleNamespace(queue=lambda *_: queue, unhindered=nullcontext))
    patched.setattr(proofs, "difference", difference)
    for name in ("device", "stream"):
        patched.setattr(torch.cuda, name, nullcontext)
    return TRIED


def test_nothing_is_proved_while_a_graph_is_captured(prepared: Prepared) -> None:
    prepared.capturing = True
    assert isinstance(prepared.prepare(), kernels.Absent)
    prepared.capturing = False
    prepared.go_on.set()
    assert isinstance(prepared.prepare(), kernels.Kernel)


def test_the_oldest_proofs_are_forgotten_beyond_the_most_that_are_kept(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "_MOST_FOUND", 2)
    prepared.go_on.set()
    for build in ("first", "second", "third", "third", "first"):
        prepared.build = build
        assert proofs.disproof(prepared.kernel(), Gemm.of(64, 64, 64)) == ""
    assert (len(proofs._FOUND), prepared.asked) == (2, 4)


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
