"""`install` without `eager`: torch's kernels are overridden while a graph is captured, and at no other time.

A CPU captures nothing: a class with the methods of `torch.cuda.CUDAGraph` stands in, and kernels that count.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import captures, install, installed, kernels  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.integration.torch import test_torch_differential as differential  # noqa: E402
from tests.integration.torch.standing_in import BF16, LISTED, StandIn, operands  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, table  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402

CASES = 300
#: Torch's operators have no activation, no integers, nothing that is added to a batch, and one thing to a matrix.
NEVER = (Gemm.of(16, 32, 64, epilogue="relu"), Gemm.of(16, 32, 64, "int8"),
         Gemm.of(16, 32, 64, batch=3, epilogue="bias"), Gemm.of(16, 32, 64, epilogue="beta+bias"))  # fmt: skip


class Graph:
    """Captures nothing, or fails at it."""

    fails = ""

    def capture_begin(self) -> None:
        if self.fails == "begin":
            raise RuntimeError("no capture")

    def capture_end(self) -> None:
        if self.fails == "end":
            raise RuntimeError("the capture was invalidated")


@contextmanager
def captured(graph: Graph | None = None) -> Iterator[None]:
    """As `torch.cuda.graph`; calls of this thread are captured."""
    graph = graph or Graph()
    graph.capture_begin()
    thread = threading.get_ident()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installed, "_capturing", lambda a: threading.get_ident() == thread)
        try:
            yield
        finally:
            graph.capture_end()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Gemm]:
    """Problems that were loaded, oldest first."""
    found: list[Gemm] = []

    def prepare(key: object, problem: Gemm, *_: Any, **__: Any) -> StandIn:  # noqa: ANN401
        found.append(problem)
        return StandIn(problem)

    monkeypatch.setattr(installed, "Kernel", StandIn)
    monkeypatch.setattr(installed, "current_device", lambda: -1)  # as a CPU tensor's get_device() says
    monkeypatch.setattr(kernels, "prepare", prepare)
    monkeypatch.setattr(StandIn, "noted", [])
    return found


@pytest.fixture
def made(tmp_path: Path, loaded: list[Gemm]) -> Iterator[installed.Installed]:
    path = tmp_path / "table.json"
    path.write_bytes(canonical(table(*map(entry, (*LISTED, *NEVER)))))
    found = install(path, key="CPU")
    captures.follow(found, Graph)
    yield found
    found.remove()


def detours() -> bool:
    """Whether a call of this thread passes Python."""
    kernel = str(torch.library.get_kernel("aten::mm", "CPU"))
    assert "RegisterCPU" in kernel, kernel
    return bool(torch._C._len_torch_dispatch_stack())


def test_eager_calls_are_torchs_own_without_a_detour(made: installed.Installed, loaded: list[Gemm]) -> None:
    torch.mm(*operands(16, 32, 64))
    with captured():
        assert detours()
    assert not detours()
    torch.mm(*operands(16, 32, 64))
    assert (StandIn.noted, made.launched, loaded) == ([], 0, list(LISTED))


def test_a_capture_holds_what_the_table_has_though_nothing_ran_before(
    made: installed.Installed, loaded: list[Gemm]
) -> None:
    a, b = operands(16, 32, 64)
    for _ in range(2):
        with captured():
            torch.mm(a, b)
            torch.addmm(torch.zeros(32, dtype=BF16), a, b)
            torch.bmm(*operands(3, 16, 32, 64))
            torch.mm(*operands(8, 8, 8))
    assert StandIn.noted == [LISTED[0], LISTED[1], LISTED[2]] * 2
    # Once, and only what may come.
    assert loaded == list(LISTED)
    with captured(), made.off():
        torch.mm(a, b)
    assert made.launched == 6


def test_gradients_and_compiled_functions_are_captured(made: installed.Installed) -> None:
    a, b = operands(16, 32, 64)
    compiled = torch.compile(lambda x, y: torch.mm(x, y) + 1, backend="aot_eager")
    with torch.no_grad():
        compiled(a, b)
        with captured():
            compiled(a, b)
    assert StandIn.noted == [LISTED[0]]
    a.requires_grad_()
    with captured():
        torch.mm(a, b).sum().backward()
    assert a.grad is not None
    assert StandIn.noted == [LISTED[0]] * 2


def test_rows_that_lie_apart_are_in_the_next_capture(made: installed.Installed, loaded: list[Gemm]) -> None:
    fused, b = torch.randn(16, 192).to(BF16), operands(16, 32, 64)[1]
    for launched in (0, 1):
        with captured():
            found = torch.mm(fused[:, 64:128], b)
        assert torch.allclose(found.float(), fused[:, 64:128].float() @ b.float(), rtol=0.02, atol=0.2)
        assert made.launched == launched
    assert loaded == [*LISTED, LISTED[0]]


def test_what_captures_lack_while_kernels_are_loaded_is_in_later_ones(
    made: installed.Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another thread's capture: its call comes while the end of this one loads a kernel."""
    b = operands(16, 32, 64)[1]
    first, second = (torch.randn(16, width).to(BF16)[:, :64] for width in (128, 256))
    real = kernels.prepare

    def prepare(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        made.computed("mm", (second, b), {})
        return real(*given, **named)

    with captured():
        torch.mm(first, b)
        monkeypatch.setattr(kernels, "prepare", prepare)
    monkeypatch.setattr(kernels, "prepare", real)
    with captured():
        torch.mm(first, b)
        torch.mm(second, b)
    assert made.launched == 2


def test_a_kernel_that_another_thread_loads_meanwhile_costs_no_graph(
    made: installed.Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loading(StandIn):
        @property
        def zeroed(self) -> dict[str, int]:  # type: ignore[override]
            made._loaded[installed._dense(Gemm.of(8, 8, 8 * len(made._loaded)), -1)] = None
            return {}

    monkeypatch.setattr(kernels, "prepare", lambda key, problem, *_, **__: Loading(problem))
    with captured():
        torch.mm(*operands(16, 32, 64))
    assert made.launched == 1


def test_what_another_thread_computes_meanwhile_is_torchs(made: installed.Installed) -> None:
    a, b = operands(16, 32, 64)
    expected, found = torch.mm(a, b), []
    with captured():
        other = threading.Thread(target=lambda: found.append(torch.mm(a, b)))
        other.start()
        other.join()
    assert StandIn.noted == []
    assert torch.equal(found[0], expected)


def test_captures_and_calls_of_many_threads_do_each_other_no_harm(made: installed.Installed) -> None:
    a, b = operands(16, 32, 64)
    expected, wrong, done = torch.mm(a, b), [], threading.Event()

    def work() -> None:
        while not done.is_set():
            if not torch.equal(torch.mm(a, b), expected):
                wrong.append(True)

    others = [threading.Thread(target=work) for _ in range(3)]
    for other in others:
        other.start()
    for _ in range(100):
        graph = Graph()
        graph.capture_begin()
        torch.mm(a, b)
        graph.capture_end()
    done.set()
    for other in others:
        other.join()
    assert (wrong, made.launched) == ([], 0)


def test_captures_of_one_thread_may_overlap(made: installed.Installed) -> None:
    first, second = Graph(), Graph()
    first.capture_begin()
    second.capture_begin()
    first.capture_end()
    assert detours()
    second.capture_end()
    assert not detours()


@pytest.mark.parametrize("place", ["begin", "end"])
def test_a_capture_that_fails_leaves_torchs_kernels(
    made: installed.Installed, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(Graph, "fails", place)
    with pytest.raises(RuntimeError, match="capture"), captured():
        pass
    assert not detours()


def test_nothing_that_fails_here_costs_the_program_its_graph(
    made: installed.Installed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "prepare", None)
    with caplog.at_level(logging.ERROR, "gemmtune.torch"), captured():
        torch.mm(*operands(16, 32, 64))
    assert "captured with torch's own kernels" in caplog.text
    assert StandIn.noted == []


def test_after_remove_captures_are_torchs(made: installed.Installed) -> None:
    graph = Graph()
    graph.capture_begin()
    made.remove()
    for _ in range(2):
        with captured():
            torch.mm(*operands(16, 32, 64))
    graph.capture_end()
    assert StandIn.noted == []
    assert not detours()


def test_a_table_installed_during_a_capture_is_in_the_next_one(tmp_path: Path, loaded: list[Gemm]) -> None:
    (tmp_path / "t.json").write_bytes(canonical(table(entry(LISTED[0]))))
    a, b = operands(16, 32, 64)
    with captured():
        found = install(tmp_path / "t.json", key="CPU")
        captures.follow(found, Graph)
        torch.mm(a, b)
    try:
        assert StandIn.noted == []
        with captured():
            torch.mm(a, b)
        assert StandIn.noted == [LISTED[0]]
    finally:
        found.remove()


def test_torchs_own_graphs_are_followed(made: installed.Installed) -> None:
    graphs = torch.cuda.CUDAGraph
    assert hasattr(graphs.capture_begin, "__wrapped__")
    assert hasattr(graphs.capture_end, "__wrapped__")
    captures.follow(made)
    assert not hasattr(graphs.capture_begin.__wrapped__, "__wrapped__")


def test_random_captured_calls_see_no_difference(
    tmp_path: Path, loaded: list[Gemm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "prepare", lambda key, problem, *_, **__: differential.Dense(problem))
    (tmp_path / "t.json").write_bytes(canonical(table(*map(entry, differential.LISTED))))
    made = install(tmp_path / "t.json", key="CPU")
    captures.follow(made, Graph)
    torch.manual_seed(2)
    chance = random.Random(2)
    try:
        for number in range(CASES):
            call = differential.call_of(chance)
            torch.set_float32_matmul_precision(chance.choice(("highest", "high")))
            with chance.choice((torch.enable_grad, torch.no_grad, torch.inference_mode))():
                with captured():
                    ours = differential.said(call)
                assert differential.difference(ours, differential.said(call)) == "", number
    finally:
        torch.set_float32_matmul_precision("highest")
        made.remove()
    assert made.launched > CASES / 20


def test_linear_layers_without_autograd_are_looked_into(made: installed.Installed) -> None:
    layer, x = torch.nn.Linear(64, 32, dtype=BF16), torch.randn(2, 8, 64).to(BF16)
    with torch.inference_mode():
        expected = layer(x)
        with captured():
            assert torch.allclose(layer(x).float(), expected.float(), rtol=0.02, atol=0.2)
            torch.matmul(x, layer.weight.t())
            torch.einsum("bmk,nk->bmn", x, layer.weight)
    assert StandIn.noted[:2] == [LISTED[1], LISTED[0]]


def test_a_transposed_batch_is_captured_as_the_matrix_that_torch_multiplies(made: installed.Installed) -> None:
    """A decomposition that forgets that the weight requires a gradient makes it a batch, which torch never runs."""
    layer, across = torch.nn.Linear(64, 32, dtype=BF16), torch.randn(2, 8, 64).to(BF16).transpose(0, 1)
    with torch.inference_mode():
        expected = layer(across)
        with captured():
            found = layer(across)
            for transposed in (layer.weight.t(), layer.weight.mT, layer.weight.swapaxes(0, 1)):
                assert torch.equal(across @ transposed, across @ layer.weight.t())
            assert not layer.weight.detach().mT.requires_grad
            # What is a copy at times, as these, is no view then: as outside, its numbers may be read.
            copies = layer.weight.float(), layer.weight.mT.contiguous(), layer.weight.mT.reshape(-1)
            assert not any(copy.requires_grad for copy in copies)
    assert torch.allclose(found.float(), expected.float(), rtol=0.02, atol=0.2)
    assert StandIn.noted == [LISTED[0]] * 7


def test_what_is_no_plain_tensor_is_passed_on(made: installed.Installed) -> None:
    a, b = operands(16, 32, 64)
    sparse = a.to_sparse()
    nested = torch.nested.nested_tensor([a, a], layout=torch.jagged)
    with captured():
        assert torch.sparse.mm(sparse.float(), b.float()).shape == (16, 32)
        assert torch.mm(a.to("meta"), b.to("meta")).device.type == "meta"
        assert torch.matmul(nested, b).is_nested
    assert StandIn.noted == []
