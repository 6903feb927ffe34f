"""What `record` and profilers list of a program, and what it says of operators that it does not read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import Refused, gemm, record  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.integration.torch.standing_in import BF16, E4M3, LISTED, operands  # noqa: E402
from tuner.errors import ExportError  # noqa: E402
from tuner.tables.importers import shapes_of  # noqa: E402


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_recorded_products_are_a_list_with_counts(tmp_path: Path, mode: Any) -> None:  # noqa: ANN401
    model = torch.nn.Sequential(torch.nn.Linear(64, 32, dtype=BF16), torch.nn.Linear(32, 64, bias=False, dtype=BF16))
    with mode(), record(tmp_path / "shapes.csv") as recording:
        for _ in range(3):
            model(torch.zeros(2, 8, 64, dtype=BF16))
        torch.bmm(*operands(3, 16, 32, 64))
        torch.mm(*operands(8, 8, 8)).float() @ torch.zeros(8, 8)
    expected = {Gemm.of(16, 32, 64, epilogue="bias"): 3, Gemm.of(16, 64, 32): 3, LISTED[2]: 1, Gemm.of(8, 8, 8): 1}
    assert shapes_of([tmp_path / "shapes.csv"]).counts == expected
    assert sum(recording.shapes.left_out.values()) == 1


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_batch_that_is_not_contiguous_is_the_matrix_that_torch_multiplies(tmp_path: Path, mode: Any) -> None:  # noqa: ANN401
    """As in a mixer, whose layers see the transposed batch; without a gradient to compute it would be a batch."""
    layer, across = torch.nn.Linear(64, 32, dtype=BF16), torch.zeros(2, 16, 64, dtype=BF16).transpose(0, 1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with mode(), torch.profiler.profile(record_shapes=True, activities=activities) as done:
        layer(across)
    done.export_chrome_trace(str(tmp_path / "trace.json"))
    with mode(), record(tmp_path / "shapes.csv"):
        layer(across)
        views = layer.weight.t(), layer.weight.mT, layer.weight.chunk(2)[0], layer.weight.detach().t()
        if mode is not torch.enable_grad:
            assert not layer.weight.float().requires_grad
            assert not layer.weight.mT.reshape(-1).requires_grad
    assert [view.requires_grad for view in views] == [True, True, True, False]
    listed = [shapes_of([tmp_path / name]).counts for name in ("shapes.csv", "trace.json")]
    assert listed == [{Gemm.of(32, 32, 64): 1}] * 2


def test_a_program_that_fails_writes_nothing(tmp_path: Path) -> None:
    def program() -> None:
        with record(tmp_path / "shapes.csv"):
            torch.mm(*operands(8, 8, 8))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_changes_its_folder_finds_its_list_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    with record("shapes.csv"):
        torch.mm(*operands(8, 8, 8))
        monkeypatch.chdir(tmp_path / "run")
    assert shapes_of([tmp_path / "shapes.csv"]).counts == {Gemm.of(8, 8, 8): 1}
    assert list((tmp_path / "run").iterdir()) == []


def test_autocast_and_vmap_call_a_product_once(tmp_path: Path) -> None:
    a, b, w = torch.zeros(2, 16, 64), torch.zeros(2, 64, 32), torch.zeros(64, 32)

    def program() -> None:
        with torch.autocast("cpu", dtype=BF16):
            torch.bmm(a, b)
            torch.bmm(a.to(BF16), b.to(BF16))
        torch.vmap(lambda each: torch.mm(each, w.to(BF16)))(a.to(BF16))

    with torch.profiler.profile(record_shapes=True, activities=[torch.profiler.ProfilerActivity.CPU]) as done:
        program()
    done.export_chrome_trace(str(tmp_path / "trace.json"))
    with record(tmp_path / "shapes.csv"):
        program()
    listed = [shapes_of([tmp_path / name]) for name in ("trace.json", "shapes.csv")]
    expected = {Gemm.of(16, 32, 64, layout="nn", batch=2): 2, Gemm.of(32, 32, 64, layout="nn"): 1}
    assert [found.counts for found in listed] == [expected] * 2
    assert not any(found.left_out for found in listed)


def test_the_profilers_own_trace_is_read(tmp_path: Path) -> None:
    model = torch.nn.Linear(64, 32, dtype=BF16)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad(), torch.profiler.profile(record_shapes=True, activities=activities) as done:
        for _ in range(2):
            model(torch.zeros(16, 64, dtype=BF16))
        torch.mm(*operands(8, 8, 8))
    done.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    found = shapes_of([tmp_path / "trace.json.gz"])
    assert found.counts == {Gemm.of(16, 32, 64, epilogue="bias"): 2, Gemm.of(8, 8, 8): 1}


def test_the_output_dtype_that_a_product_was_asked_for_counts(tmp_path: Path) -> None:
    a, b = (torch.zeros(extents, dtype=torch.bfloat16, device="meta") for extents in ((16, 64), (64, 128)))
    with record(tmp_path / "shapes.csv") as recording:
        torch.mm(a, b, out_dtype=torch.float32)
        torch.mm(a, b)
    wide = Gemm(16, 128, 64, "bf16", "bf16", "f32", "f32", "nn")
    assert recording.shapes.counts == {wide: 1, Gemm.of(16, 128, 64, layout="nn"): 1}


def test_8_bit_floats_that_are_asked_for_no_output_dtype_give_their_own(tmp_path: Path) -> None:
    a, b, one = torch.zeros(32, 64).to(E4M3), torch.zeros(32, 64).to(E4M3).t(), torch.ones(())

    def program() -> None:
        assert torch._scaled_mm(a, b, one, one).dtype is E4M3
        torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)

    with record(tmp_path / "shapes.csv") as recording:
        program()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as done:
        program()
    done.export_chrome_trace(str(tmp_path / "trace.json"))
    assert [problem.dtype_c for problem in recording.shapes.counts] == ["fp8_e4m3", "bf16"]
    assert shapes_of([tmp_path / "trace.json"]).counts == recording.shapes.counts


def test_what_multiplies_a_product_and_what_is_added_counts(tmp_path: Path) -> None:
    shapes = (128,), (16, 128), (16, 64), (64, 128)
    bias, source, a, b = (torch.zeros(extents, dtype=torch.bfloat16, device="meta") for extents in shapes)
    with record(tmp_path / "shapes.csv") as recording:
        torch.addmm(bias, a, b, alpha=0.5)
        torch.addmm(source, a, b, alpha=0.5, beta=2)
        torch.addmm(source, a, b, alpha=0.5, beta=0)
        torch.addmm(source, a, b)
    epilogues = "alpha+bias", "alpha+beta", "alpha", "beta"
    assert list(recording.shapes.counts) == [Gemm.of(16, 128, 64, layout="nn", epilogue=each) for each in epilogues]


def test_products_of_operators_that_are_not_read_are_said(tmp_path: Path) -> None:
    bias, a, b = (torch.zeros(extents, device="meta") for extents in ((128,), (16, 64), (64, 128)))
    with record(tmp_path / "shapes.csv") as recording:
        torch.ops.aten._addmm_activation(bias, a, b)
        torch.mv(a, b[:, 0])
        torch.addmv(a[:, 0], a, b[:, 0])
        torch.addbmm(a @ b, a[None], b[None])
    read = {said.split()[2]: count for said, count in recording.shapes.left_out.items() if "does not read" in said}
    assert read == {"_addmm_activation,": 1, "mv,": 1, "addmv,": 1, "addbmm,": 1}


def test_products_of_recurrent_and_bilinear_layers_are_said(tmp_path: Path) -> None:
    layer, x = torch.nn.LSTM(32, 16), torch.zeros(3, 2, 32)
    with record(tmp_path / "shapes.csv") as recording:
        layer(x)[0].sum().backward()
        torch.nn.Bilinear(8, 8, 4)(torch.zeros(2, 8), torch.zeros(2, 8))
    said = [f"products of {name}, which gemmtune does not read"
            for name in ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_trilinear")]  # fmt: skip
    assert list(recording.shapes.left_out) == said
    with torch.profiler.profile(record_shapes=True) as profile:
        layer(x)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    assert said[0] in shapes_of([tmp_path / "trace.json"]).left_out


@pytest.mark.skipif(not hasattr(torch, "_foreach_mm"), reason="new in 2.13")
def test_products_of_a_list_of_matrices_are_those_of_its_trace(tmp_path: Path) -> None:
    lists = [[torch.zeros(16, 64, dtype=BF16)] * 3, [torch.zeros(64, 32, dtype=BF16)] * 3]
    with torch.profiler.profile(record_shapes=True, activities=[torch.profiler.ProfilerActivity.CPU]) as done:
        torch._foreach_mm(*lists)
    done.export_chrome_trace(str(tmp_path / "trace.json"))
    with record(tmp_path / "shapes.csv"):
        torch._foreach_mm(*lists)
    listed = [shapes_of([tmp_path / name]).counts for name in ("trace.json", "shapes.csv")]
    assert listed == [{Gemm.of(16, 32, 64, layout="nn"): 3}] * 2


def test_products_inside_of_a_fused_layer_are_said(tmp_path: Path) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    with torch.inference_mode(), record(tmp_path / "shapes.csv") as recording:
        layer(torch.zeros(1, 4, 16))
    assert list(recording.shapes.left_out) == [
        "products of _transformer_encoder_layer_fwd, which gemmtune does not read"
    ]


def test_products_that_are_added_in_place_count(tmp_path: Path) -> None:
    c, a, b = (torch.zeros(extents, dtype=torch.bfloat16) for extents in ((2, 16, 32), (2, 16, 64), (2, 64, 32)))
    with record(tmp_path / "shapes.csv") as recording:
        c[0].addmm_(a[0], b[0], beta=0.5)
        c.baddbmm_(a, b)
    assert recording.shapes.counts == {
        Gemm.of(16, 32, 64, layout="nn", epilogue="beta"): 1,
        Gemm.of(16, 32, 64, layout="nn", batch=2, epilogue="beta"): 1,
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning")
def test_a_sparse_product_is_left_to_the_program(tmp_path: Path) -> None:
    sparse, dense = torch.eye(4).to_sparse_csr(), torch.ones(4, 4)
    with record(tmp_path / "shapes.csv") as recording:
        assert torch.equal(torch.mm(sparse, dense), dense)
    assert not recording.shapes.counts


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_product_of_nested_tensors_is_left_to_the_program(tmp_path: Path, layout: Any, mode: Any) -> None:  # noqa: ANN401
    rows, weight = [torch.ones(2, 4), torch.ones(3, 4)], torch.ones(5, 4)
    with mode(), record(tmp_path / "shapes.csv") as recording:
        found = torch.nn.functional.linear(torch.nested.nested_tensor(rows, layout=layout), weight)
    assert [each.tolist() for each in found.unbind()] == [[[4.0] * 5] * 2, [[4.0] * 5] * 3]
    assert not recording.shapes.counts
    assert dict(recording.shapes.left_out) == {"products of nested tensors, which gemmtune does not see": 1}


def test_a_program_with_too_many_shapes_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.tables.shapes.MOST_PROBLEMS", 2)
    b = torch.zeros(32, 64, dtype=torch.bfloat16)
    with record(tmp_path / "shapes.csv") as recording:
        for m in (1, 2, 3, 4, 2):
            assert torch.mm(torch.zeros(m, 32, dtype=torch.bfloat16), b).shape == (m, 64)
    assert [(problem.title, count) for problem, count in recording.shapes.counts.items()] == [
        ("bf16 nn 1x64x32", 1), ("bf16 nn 2x64x32", 2)
    ]  # fmt: skip
    assert dict(recording.shapes.left_out) == {
        "the program: more than 2 different problems: give a shorter list": 2
    }
    assert len((tmp_path / "shapes.csv").read_text().splitlines()) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_program_with_operators_of_higher_order_goes_on(tmp_path: Path) -> None:
    x, w = torch.ones(4, 8), torch.ones(8, 4)
    with record(tmp_path / "shapes.csv") as recording:
        found = torch.cond(x.sum() > 0, lambda x: x @ w, lambda x: x @ w + 1, (x,))
    assert torch.equal(found, x @ w)
    assert list(recording.shapes.left_out) == ["what runs inside of cond, which gemmtune does not see"]


def test_our_own_products_are_listed(tmp_path: Path) -> None:
    a, b, bias = (torch.ones(extents, dtype=torch.bfloat16) for extents in ((16, 64), (64, 32), (32,)))
    eight, scales = a.to(torch.float8_e4m3fn), (torch.ones(16), torch.ones(32))
    with record(tmp_path / "shapes.csv") as recording:
        gemm(a, b, bias=bias, activation="relu", alpha=0.5)
        gemm(a, b, out=torch.empty(16, 32, dtype=torch.bfloat16))
        gemm(eight, b.to(eight.dtype), promoted=True, scale_a=scales[0], scale_b=scales[1])
        gemm(torch.ones(16, 128, dtype=torch.bfloat16)[:, :64], b)
        gemm(a.float(), b.float())
        gemm(a[:0], b)
        with pytest.raises(Refused):
            gemm(a, b, bias=bias[:3])
    assert recording.shapes.counts == {
        Gemm.of(16, 32, 64, layout="nn", epilogue="alpha+bias+relu"): 1,
        Gemm.of(16, 32, 64, layout="nn"): 2,
        Gemm.of(16, 32, 64, "fp8_e4m3_promoted", layout="nn", epilogue="scaled_rowwise"): 1,
    }
    f32, empty, refused = recording.shapes.left_out
    assert f32 == "f32 products in full precision: torch.set_float32_matmul_precision('high') allows tf32"
    assert empty == "products without elements"
    assert refused.startswith("bias is (3,)")
    assert recording.shapes.notes == ("products whose rows lie apart in memory are listed as dense ones",)


def test_tensors_of_inference_mode_are_listed_outside_of_it_too(tmp_path: Path) -> None:
    with torch.inference_mode():
        x, w = torch.zeros(16, 64, dtype=torch.bfloat16), torch.zeros(32, 64, dtype=torch.bfloat16)
    with record(tmp_path / "shapes.csv") as recording:
        torch.nn.functional.linear(x, w)
        torch.matmul(x[None], w.t())
    assert recording.shapes.counts == {Gemm.of(16, 32, 64): 2}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("compiled_before", [False, True])
def test_compiled_functions_are_recorded_and_run_compiled_again_afterwards(
    tmp_path: Path, fullgraph: bool, compiled_before: bool
) -> None:
    torch._dynamo.reset()
    x, w = torch.zeros(16, 64, dtype=torch.bfloat16), torch.zeros(64, 128, dtype=torch.bfloat16)
    runs = []

    def backend(graph: Any, _: Any) -> Any:  # noqa: ANN401
        def run(*args: Any) -> Any:  # noqa: ANN401
            runs.append(args)
            return graph(*args)

        return run

    compiled = torch.compile(lambda x: x @ w, backend=backend, fullgraph=fullgraph)
    if compiled_before:
        compiled(x)
    runs.clear()
    # Of recordings that overlap, the last one to end lets functions run compiled again.
    first, last = record(tmp_path / "first.csv"), record(tmp_path / "last.csv")
    with ThreadPoolExecutor(1) as other:
        recordings = first.__enter__(), other.submit(last.__enter__).result()
        compiled(x)
        first.__exit__(None, None, None)
        assert not runs
        other.submit(compiled, x).result()
        other.submit(last.__exit__, None, None, None).result()
    assert not runs
    assert [each.shapes.counts for each in recordings] == [{Gemm.of(16, 128, 64, layout="nn"): 1}] * 2
    compiled(x)
    assert len(runs) == 1


def test_a_file_that_can_t_be_written_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="can't be written"), record(tmp_path / "file" / "shapes.csv"):
        raise AssertionError("ran")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
