"""An installed table on a real GPU: right results in eager, compiled and captured programs; torch runs the rest."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tuner.studying.open_worker import driver_present

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import configure, gemm, install, installed, kernels  # noqa: E402
from space.devices import profile_named  # noqa: E402
from space.explain import explain  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.unit.tuner.tables import test_exporters  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, guarded, written  # noqa: E402
from tuner.files import export_folder  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402
from workers.build import Build, compile_source  # noqa: E402
from workers.builder import source_of  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]

BF16 = torch.bfloat16
DEVICE = torch.cuda.get_device_name() if torch.cuda.is_available() else "NVIDIA H200"
table = partial(test_exporters.table, device=DEVICE)
LISTED = (Gemm.of(256, 512, 1024), Gemm.of(256, 512, 1024, epilogue="bias"), Gemm.of(512, 1024, 256, layout="tn"))


def program_of(each: dict[str, Any]) -> bytes:
    from space.family import config_named
    from space.kind import problem_from_key

    arch = profile_named(DEVICE).arch.name
    source = source_of(problem_from_key(each["problem"]["key"]), config_named(each["config"]["key"]), arch)
    built = compile_source(source, arch, None)
    assert isinstance(built, Build)
    return built.cubin


@pytest.fixture(params=["table", "bundle"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[installed.Installed]:
    document = table(*(entry(problem, build_digest=f"{place}" * 64) for place, problem in enumerate(LISTED)))
    path = tmp_path / ("table.json" if request.param == "table" else "bundle")
    if request.param == "table":
        path.write_bytes(canonical(document))
    else:
        export_folder(path, written("bundle", guarded(document), program=program_of))
    found = install(path, eager=True, eager_us=0.0, stale=True)
    yield found
    found.remove()


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x, w, bias = (torch.randn(*shape, device="cuda").to(BF16) for shape in ((256, 1024), (512, 1024), (512,)))
    return x, w, bias


def right(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found.float(), expected.float(), rtol=0.02, atol=0.5)


def test_linear_layers_and_their_gradients(made: installed.Installed) -> None:
    x, w, bias = operands()
    layer = torch.nn.functional.linear
    with made.off():
        plain, biased = layer(x, w), layer(x, w, bias)
    assert made.launched == 0
    assert right(layer(x, w), plain)
    assert right(layer(x, w, bias), biased)
    assert made.launched == 2
    with torch.inference_mode():
        assert right(layer(x, w), plain)
    x.requires_grad_()
    layer(x, w).sum().backward()
    assert x.grad is not None


# Inductor's own, whatever they are.
@pytest.mark.filterwarnings("ignore")
def test_captured_and_compiled_programs(made: installed.Installed) -> None:
    x, w, _ = operands()
    with torch.no_grad():
        expected = torch.nn.functional.linear(x, w)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = torch.nn.functional.linear(x, w)
        graph.replay()
        torch.cuda.synchronize()
        assert right(found, expected)
        assert right(torch.compile(torch.nn.functional.linear)(x, w), expected)


def test_scaled_products_run_the_librarys_algorithm_with_scales_on_the_device(tmp_path: Path) -> None:
    from workers.cuda.families.cublaslt import Matmul, opened

    problem = Gemm.of(256, 512, 512, "fp8_e4m3", epilogue="alpha")
    torch.zeros((), device="cuda")
    library, missing = opened(0)
    assert library is not None, missing
    config = Matmul(library, problem).listed[0]
    document = {"family": config.family, "knobs": config.knobs, "key": config.key}
    kept = entry(problem, family="cublaslt", config=document)
    kept["provenance"] |= {"cublaslt": library.version}
    (tmp_path / "table.json").write_bytes(canonical(table(kept)))
    made = install(tmp_path / "table.json", eager=True, eager_us=0.0, stale=True)
    try:
        a, b = (torch.randn(rows, 512, device="cuda").to(torch.float8_e4m3fn) for rows in (256, 512))
        scale, two = torch.tensor(0.5, device="cuda"), torch.tensor(2.0, device="cuda")

        def product() -> torch.Tensor:
            return torch._scaled_mm(a, b.t(), scale, two, out_dtype=BF16, use_fast_accum=True)

        for value in (0.5, 3.0):
            scale.fill_(value)
            found = product()
            with made.off():
                assert right(found, product())
        assert made.launched == 2
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = product()
        assert made.launched == 3
        scale.fill_(0.25)
        graph.replay()
        with made.off():
            assert right(found, product())
        # A scale for each row and column, which this table doesn't have: torch's.
        rows, columns = torch.rand(256, 1, device="cuda"), torch.rand(1, 512, device="cuda")
        torch._scaled_mm(a, b.t(), rows, columns, out_dtype=BF16, use_fast_accum=True)
        assert made.launched == 3
    finally:
        made.remove()


#: Straight and transposed, by TMA and directly, with sums of slices of K.
SCALED_KNOBS: dict[str, dict[str, object]] = {
    "tma": {"tile_k": 128, "tile_n": 96}, "swapped": {"tile_k": 128, "swap_ab": 1, "tile_n": 64},
    "split": {"tile_k": 128, "tile_n": 64, "split_k": 2, "epilogue": "direct"},
}  # fmt: skip


@pytest.mark.parametrize("knobs", SCALED_KNOBS)
@pytest.mark.parametrize("epilogue", ["scaled", "scaled+bias", "scaled_rowwise", "scaled_rowwise+bias"])
def test_our_kernels_read_scales_on_the_device(tmp_path: Path, epilogue: str, knobs: str) -> None:
    problem = Gemm.of(256, 512, 512, "fp8_e4m3", epilogue=epilogue)
    config = family_named("sm90_wgmma").config(SCALED_KNOBS[knobs])
    assert explain(family_named("sm90_wgmma"), problem, config).broken == ()
    # Its build is none that was measured: it is verified on random data before it runs.
    kept = entry(problem, config={"family": config.family, "knobs": config.knobs, "key": config.key})
    (tmp_path / "table.json").write_bytes(canonical(table(kept)))
    made = install(tmp_path / "table.json", eager=True, eager_us=0.0, stale=True)
    try:
        a, b = (torch.randn(rows, 512, device="cuda").to(torch.float8_e4m3fn) for rows in (256, 512))
        shapes = ((256, 1), (1, 512)) if "rowwise" in epilogue else ((), ())
        first, second = (torch.rand(shape, device="cuda") + 0.5 for shape in shapes)
        bias = torch.randn(512, device="cuda").to(BF16) if "bias" in epilogue else None

        def product() -> torch.Tensor:
            return torch._scaled_mm(a, b.t(), first, second, bias, out_dtype=BF16, use_fast_accum=True)

        def expected() -> torch.Tensor:
            whole = first.double() * second.double() * (a.double() @ b.double().t())
            return whole if bias is None else whole + bias.double()

        for _ in range(2):
            assert right(product(), expected())
            first.mul_(-1.5)
        assert made.launched == 2
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = product()
        first.uniform_(0.5, 1.5)
        graph.replay()
        torch.cuda.synchronize()
        assert (made.launched, right(found, expected())) == (3, True)
    finally:
        made.remove()


@pytest.mark.parametrize("epilogue", ["scaled", "scaled_rowwise+bias"])
def test_a_call_by_name_takes_scales_on_the_device(tmp_path: Path, epilogue: str) -> None:
    problem = Gemm.of(256, 512, 512, "fp8_e4m3", epilogue=epilogue)
    config = family_named("sm90_wgmma").config(SCALED_KNOBS["tma"])
    kept = entry(problem, config={"family": config.family, "knobs": config.knobs, "key": config.key})
    (tmp_path / "table.json").write_bytes(canonical(table(kept)))
    configure(tmp_path / "table.json")
    try:
        a, b = (torch.randn(rows, 512, device="cuda").to(torch.float8_e4m3fn) for rows in (256, 512))
        rowwise = "rowwise" in epilogue
        first, second = (torch.rand(size, device="cuda") + 0.5 for size in ((256, 512) if rowwise else (1, 1)))
        bias = torch.randn(512, device="cuda").to(BF16) if rowwise else None
        for _ in range(2):
            found = gemm(a, b.t(), bias=bias, scale_a=first, scale_b=second)
            expected = first[:, None].double() * second.double() * (a.double() @ b.double().t())
            assert right(found, expected if bias is None else expected + bias.double())
            first.mul_(-1.5)
        # torch's own, where no kernel is known.
        assert right(gemm(a[:128], b.t(), scale_a=first[:1], scale_b=second[:1]),
                     first[0].double() * second[0].double() * (a[:128].double() @ b.double().t()))  # fmt: skip
        assert any(isinstance(each, kernels.Kernel) and each.config == config for each in kernels.everything())
    finally:
        configure()


@pytest.mark.parametrize("eager", [False, True])
def test_what_saves_little_runs_in_graphs_alone(tmp_path: Path, eager: bool) -> None:
    (tmp_path / "table.json").write_bytes(canonical(table(entry(LISTED[0]))))
    made = install(tmp_path / "table.json", eager=eager, stale=True)
    try:
        x, w, _ = operands()
        with torch.no_grad():
            expected = torch.nn.functional.linear(x, w)
            assert made.launched == 0
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = torch.nn.functional.linear(x, w)
            graph.replay()
            torch.cuda.synchronize()
        assert (made.launched, right(found, expected)) == (1, True)
    finally:
        made.remove()


def test_a_capture_needs_no_call_before(made: installed.Installed) -> None:
    x, w, _ = operands()
    graph = torch.cuda.CUDAGraph()
    with made.off(), torch.no_grad():
        expected = torch.nn.functional.linear(x, w)
    with torch.no_grad(), torch.cuda.graph(graph):
        found = torch.nn.functional.linear(x, w)
    graph.replay()
    torch.cuda.synchronize()
    assert (made.launched, right(found, expected)) == (1, True)


# ------------------------------------------------------------------------------------------------ captures alone


@pytest.fixture
def captures_alone(tmp_path: Path) -> Iterator[installed.Installed]:
    (tmp_path / "table.json").write_bytes(canonical(table(*map(entry, LISTED))))
    found = install(tmp_path / "table.json", stale=True)
    yield found
    found.remove()


def kernel_of_mm() -> str:
    return str(torch.library.get_kernel("aten::mm", "CUDA"))


def captured(run: Any) -> tuple[torch.cuda.CUDAGraph, Any]:  # noqa: ANN401
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    return graph, found


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_eager_calls_run_torchs_own_kernels_and_graphs_ours(captures_alone: installed.Installed, mode: Any) -> None:  # noqa: ANN401
    x, w, bias = operands()
    assert "RegisterCUDA" in kernel_of_mm()
    with mode():
        for given in (None, bias):
            expected = torch.nn.functional.linear(x, w, given)
            graph, found = captured(lambda given=given: torch.nn.functional.linear(x, w, given))
            found.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert right(found, expected)
            # New data, the same graph.
            x.normal_()
            graph.replay()
            assert right(found, torch.nn.functional.linear(x, w, given))
    assert captures_alone.launched == 2
    assert torch._C._len_torch_dispatch_stack() == 0


# Inductor's own, whatever they are.
@pytest.mark.filterwarnings("ignore")
def test_compiled_functions_are_captured_as_they_are(captures_alone: installed.Installed) -> None:
    x, w, bias = operands()
    compiled = torch.compile(lambda x: torch.nn.functional.linear(torch.nn.functional.silu(x), w, bias) * 2)
    with torch.no_grad():
        expected = compiled(x)
        torch.cuda.synchronize()
        assert captures_alone.launched == 0
        frames = dict(torch._dynamo.utils.counters["frames"])
        graph, found = captured(lambda: compiled(x))
        graph.replay()
        torch.cuda.synchronize()
    assert dict(torch._dynamo.utils.counters["frames"]) == frames
    assert (captures_alone.launched, right(found, expected)) == (1, True)


@pytest.mark.filterwarnings("ignore")
def test_graphs_of_torch_compile_hold_our_kernels(captures_alone: installed.Installed) -> None:
    x, w, _ = operands()
    compiled = torch.compile(lambda x: torch.nn.functional.linear(x, w) + 1, mode="reduce-overhead")
    with torch.no_grad():
        expected = torch.nn.functional.linear(x, w) + 1
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            assert right(compiled(x), expected)
    assert captures_alone.launched > 0
    torch._dynamo.reset()


# make_graphed_callables keeps the outputs of its last warm-up, and so the leaves of that stream (torch 2.13).
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_graphed_callables_and_their_gradients(captures_alone: installed.Installed) -> None:
    layer = torch.nn.Linear(1024, 512, device="cuda", dtype=BF16)
    eager = operands()[0].requires_grad_()
    # Gradients that an eager call has accumulated on its own stream can't be captured.
    expected = copy.deepcopy(layer)(eager)
    expected.sum().backward()
    x = eager.detach().clone().requires_grad_()
    graphed = torch.cuda.make_graphed_callables(layer, (x.detach().clone().requires_grad_(),))
    found = graphed(x)
    found.sum().backward()
    assert captures_alone.launched > 0
    assert eager.grad is not None
    assert x.grad is not None
    assert right(found, expected)
    assert right(x.grad, eager.grad)


def test_rows_that_lie_apart_are_in_the_next_graph(captures_alone: installed.Installed) -> None:
    _, w, _ = operands()
    x = torch.randn(256, 3 * 1024, device="cuda").to(BF16)[:, 1024:2048]
    with torch.no_grad():
        expected = torch.nn.functional.linear(x, w)
        for launched in (0, 1):
            graph, found = captured(lambda: torch.nn.functional.linear(x, w))
            graph.replay()
            torch.cuda.synchronize()
            assert (captures_alone.launched, right(found, expected)) == (launched, True)


def test_another_threads_calls_are_torchs_during_a_capture(captures_alone: installed.Installed) -> None:
    x, w, _ = operands()
    expected = torch.nn.functional.linear(x, w)
    torch.cuda.synchronize()
    found: list[torch.Tensor] = []

    def other() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            found.append(torch.nn.functional.linear(x, w))
            torch.cuda.current_stream().synchronize()

    with torch.no_grad():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            torch.nn.functional.linear(x, w)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
    assert captures_alone.launched == 1
    assert right(found[0], expected)


def test_slices_of_a_fused_projection_run_by_the_same_program(made: installed.Installed) -> None:
    _, w, _ = operands()
    fused = torch.randn(256, 3 * 1024 + 8, device="cuda").to(BF16)
    slices = [fused[:, begin : begin + 1024] for begin in (0, 8, 2048)]
    for x in slices:
        found = torch.nn.functional.linear(x, w)
        with made.off():
            assert right(found, torch.nn.functional.linear(x, w))
    assert made.launched == len(slices)
    wide = torch.randn(512, 1536, device="cuda").to(BF16)[:, :1024]
    x = slices[1]
    found = torch.nn.functional.linear(x, wide)
    with made.off():
        assert right(found, torch.nn.functional.linear(x, wide))
    assert made.launched == len(slices) + 1


def test_misaligned_and_strided_operands_go_to_torch(made: installed.Installed) -> None:
    _, w, _ = operands()
    room = torch.randn(256 * 1024 + 1, device="cuda").to(BF16)
    odd = room[1:].view(256, 1024)
    wide = torch.randn(256, 1025, device="cuda").to(BF16)[:, :1024]
    for x in (odd, wide, torch.randn(1, 1024, device="cuda").to(BF16).expand(256, 1024)):
        found = torch.nn.functional.linear(x, w)
        with made.off():
            assert right(found, torch.nn.functional.linear(x, w))
    assert made.launched == 0
