"""Tables that threads install, remove and switch off at the same time, and on a full card. On the CPU."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import captures, install, installed, kernels, overrides, torchs  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.integration.torch.standing_in import LISTED, StandIn, operands  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, table  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402

PREPARE = kernels.prepare


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(installed, "Kernel", StandIn)
    monkeypatch.setattr(installed.kernels, "prepare", lambda key, problem, *_, **__: StandIn(problem))
    monkeypatch.setattr(StandIn, "noted", [])
    (tmp_path / "table.json").write_bytes(canonical(table(*map(entry, LISTED))))
    yield tmp_path / "table.json"
    if installed._installed is not None:
        installed._installed.remove()


def launches(made: installed.Installed) -> int:
    """Launches of one call."""
    before = made.launched
    torch.mm(*operands(16, 32, 64))
    return made.launched - before


def test_a_table_is_off_until_the_last_thread_leaves(written: Path) -> None:
    made = install(written, eager=True, eager_us=0.0, key="CPU")
    first, second = made.off(), made.off()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert launches(made) == 0
    second.__exit__(None, None, None)
    assert launches(made) == 1
    with pytest.raises(ZeroDivisionError), made.off(), made.off():
        raise ZeroDivisionError
    assert launches(made) == 1


def test_an_interpreter_prints_no_table(written: Path) -> None:
    made = install(written, eager=True, eager_us=0.0, key="CPU")
    launches(made)
    assert repr(made) == "<Installed of NVIDIA H200: 4 problems, 1 launched, 0 passed>"


def test_what_is_removed_while_it_is_off_stays_removed(written: Path) -> None:
    made = install(written, eager=True, eager_us=0.0, key="CPU")
    with made.off():
        made.remove()
    assert launches(made) == 0
    assert not made.enabled


def test_a_thread_that_removes_a_table_does_not_unfollow_the_next_one(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread installs when the removal has seen that its own table is followed."""
    before = install(written, key="CPU")
    installing = threading.Thread(target=install, args=(written,), kwargs={"key": "CPU"})
    real = captures.followed

    def followed() -> captures.Follower | None:
        found = real()
        monkeypatch.setattr(captures, "followed", real)
        installing.start()
        installing.join(0.5)  # it may wait for the removal
        return found

    monkeypatch.setattr(captures, "followed", followed)
    before.remove()
    installing.join(10)
    assert installed._installed is not None
    assert captures.followed() is installed._installed


@pytest.mark.parametrize("key", ["CPU", "NONE"])
def test_an_earlier_table_outlives_an_installation_that_fails(
    written: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    before = install(written, eager=True, eager_us=0.0, key="CPU")
    real = overrides._override

    def refused(overload: str, *rest: Any) -> Any:  # noqa: ANN401
        if overload == "mm.out":  # `mm` is overridden by then
            monkeypatch.setattr(overrides, "_override", real)
            raise RuntimeError("another library overrides it")
        return real(overload, *rest)

    monkeypatch.setattr(overrides, "_override", refused if key == "CPU" else real)
    with pytest.raises((RuntimeError, ValueError), match=r"another library|NONE") as held:
        install(written, eager=True, eager_us=0.0, key=key)
    assert installed._installed is captures.followed() is before
    assert launches(before) == 1
    before.remove()
    noted = len(StandIn.noted)
    torch.mm(*operands(16, 32, 64))
    assert len(StandIn.noted) == noted, "a part of the one that failed is left"
    del held  # its frames hold what was registered


def test_what_other_threads_run_stays_when_a_table_is_removed(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A thread that had begun a product ended in a segmentation fault, or in an assertion of torch's.
    registered: list[weakref.ref[object]] = []
    real = overrides._override

    def noted(*given: Any) -> Any:  # noqa: ANN401
        made = real(*given)
        registered.append(weakref.ref(made))
        return made

    monkeypatch.setattr(overrides, "_override", noted)
    made = install(written, eager=True, eager_us=0.0, key="CPU")
    assert launches(made) == 1
    made.remove()
    held = weakref.ref(made)
    del made
    gc.collect()
    assert len(registered) > 1
    assert all(each() is not None for each in registered)
    # Megabytes of evidence and programs are not among it.
    assert held() is None


def test_a_full_card_leaves_products_to_torch(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = install(written, eager=True, eager_us=0.0, key="CPU")
    a, b = operands(16, 32, 64)

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as filled:
        filled.setattr(kernels, "prepare", full)
        assert torch.mm(a, b).shape == (16, 32)
    with monkeypatch.context() as filled:
        filled.setattr(StandIn, "launch", full)
        assert torch.mm(a, b).shape == (16, 32)
    assert (made.launched, made.passed) == (0, 2)
    torch.mm(a, b)
    assert made.launched == 1


def test_a_kernel_that_lacked_memory_is_loaded_a_minute_later(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, full = 100.0, True

    def looked_up(problem: Gemm, *_: object) -> StandIn | str:
        return torchs.Passing("no memory", torchs.MEMORY_SECONDS) if full else StandIn(problem)

    # Tensors on the CPU have no device's number.
    real = lambda key, problem, _, *rest, **more: PREPARE(key, problem, 0, *rest, **more)  # noqa: E731
    monkeypatch.setattr(kernels, "prepare", real)
    monkeypatch.setattr(kernels, "Kernel", StandIn)
    monkeypatch.setattr(StandIn, "proved", True, raising=False)
    monkeypatch.setattr(kernels, "_looked_up", looked_up)
    monkeypatch.setattr(kernels, "_PREPARED", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for module in (kernels, torchs):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    made = install(written, eager=True, eager_us=0.0, key="CPU")
    assert launches(made) == 0
    now, full = 159.0, False
    assert launches(made) == 0
    now = 161.0
    assert launches(made) == 1
