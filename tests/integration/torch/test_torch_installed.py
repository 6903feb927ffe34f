"""`install`, `record`, bundles and plugins with the CPU build of PyTorch: what is overridden, and what is passed on.

Our kernels need a GPU: here a stand-in counts what they would compute. `make test-torch` runs it.
"""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune import plugins  # noqa: E402
from gemmtune.torch import configure, install, installed, kernels, record, sources  # noqa: E402
from gemmtune.torch.operands import Refused  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.support import DEVICE  # noqa: E402
from tests.unit.tuner.tables.test_exporters import CUBIN, WON, entry, guarded, table, written  # noqa: E402
from tuner.errors import TableError  # noqa: E402
from tuner.files import export_folder  # noqa: E402
from tuner.settings import settings  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402
from tuner.tables.importers import shapes_of  # noqa: E402
from workers.cuda.copies import Strides  # noqa: E402
from workers.cuda.machine import Machine  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
Tensor = torch.Tensor
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
LISTED = (Gemm.of(16, 32, 64), Gemm.of(16, 32, 64, epilogue="bias"), Gemm.of(16, 32, 64, batch=3),
          Gemm.of(16, 32, 64, epilogue="beta"))  # fmt: skip
#: Fast sums, and true ones; a kernel of ours can't read scales on the device.
SCALED = Gemm.of(16, 32, 64, "fp8_e4m3", epilogue="alpha")
SCALED_WITH_BIAS = Gemm.of(16, 32, 64, "fp8_e4m3_promoted", epilogue="alpha+bias")
SCALED_OURS = Gemm.of(16, 48, 64, "fp8_e4m3", epilogue="alpha")
#: Kernels of ours read these.
TENSORWISE = Gemm.of(16, 64, 64, "fp8_e4m3", epilogue="scaled")
ROWWISE = Gemm.of(16, 32, 64, "fp8_e4m3", epilogue="scaled_rowwise")
ROWWISE_WITH_BIAS = Gemm.of(16, 64, 64, "fp8_e4m3_promoted", epilogue="scaled_rowwise+bias")


class StandIn(kernels.Kernel):
    """Computes in f32, on the CPU, and notes what it was given."""

    noted: list[Gemm] = []  # noqa: RUF012
    misaligned = False
    strides: Mapping[str, Strides] = {}
    zeroed: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, problem: Gemm) -> None:
        self.problem = problem

    def launch(
        self, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None = None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        if self.misaligned:
            raise Refused("a starts at an odd address")
        self.noted.append(self.problem)
        made = torch.einsum("...mk,...kn->...mn", a.float(), b.float()) * alpha
        if scales is not None:
            made = made * scales[0] * scales[1]
        made = made + (0 if bias is None else bias.float()) + (0 if source is None else beta * source.float())
        dtype = BF16 if a.dtype is torch.float8_e4m3fn else a.dtype
        return made.to(dtype) if out is None else out.copy_(made)

    def writes(self, out: Any) -> bool:  # noqa: ANN401
        return bool(out.is_contiguous() and out.dtype == BF16 and out.shape[-2:] == (16, 32))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[installed.Installed]:
    monkeypatch.setattr(installed, "Kernel", StandIn)
    monkeypatch.setattr(kernels, "prepare", lambda key, problem, *_, **__: StandIn(problem))
    monkeypatch.setattr(StandIn, "noted", [])
    path = tmp_path / "table.json"
    scaled = (entry(SCALED, family="cublaslt"), entry(SCALED_WITH_BIAS, family="cublaslt"), entry(SCALED_OURS),
              entry(TENSORWISE), entry(ROWWISE, family="cublaslt"), entry(ROWWISE_WITH_BIAS))  # fmt: skip
    path.write_bytes(canonical(table(*map(entry, LISTED), *scaled, entry(Gemm.of(8, 8, 8), 1.0))))
    found = install(path, eager=True, eager_us=0.0, key="CPU")
    yield found
    found.remove()


def operands(*shape: int) -> Any:  # noqa: ANN401
    *batch, m, n, k = shape
    return torch.randn(*batch, m, k).to(BF16), torch.randn(*batch, n, k).to(BF16).mT


def test_linear_layers_and_their_gradients_run_what_the_table_has(made: installed.Installed) -> None:
    layer = torch.nn.Linear(64, 32, dtype=BF16)
    x = torch.randn(16, 64, dtype=BF16, requires_grad=True)
    found = layer(x)
    with made.off():
        assert torch.allclose(found, layer(x), atol=0.1)
    assert StandIn.noted == [LISTED[1]]
    found.sum().backward()
    assert x.grad is not None
    assert made.launched == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_every_form_of_a_product_is_overridden(made: installed.Installed, mode: Any) -> None:  # noqa: ANN401
    a, b = operands(16, 32, 64)
    with mode():
        out = torch.empty(16, 32, dtype=BF16)
        source = torch.randn(16, 32).to(BF16)
        for found, expected in (
            (torch.mm(a, b), a.float() @ b.float()),
            (torch.mm(a, b, out=out), a.float() @ b.float()),
            (torch.addmm(source[0], a, b), a.float() @ b.float() + source[0].float()),
            (torch.addmm(source, a, b, beta=0.5), a.float() @ b.float() + 0.5 * source.float()),
            (torch.bmm(*operands(3, 16, 32, 64)), None),
        ):
            assert expected is None or torch.allclose(found.float(), expected, rtol=0.02, atol=0.2)
    assert StandIn.noted == [LISTED[0], LISTED[0], LISTED[1], LISTED[3], LISTED[2]]


def test_a_product_whose_kernel_is_still_verified_is_asked_for_again(
    made: installed.Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operands(16, 32, 64)
    pending = kernels.Absent("", 0, (16, 32), BF16, lambda *_: None, {}, pending=True)  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(kernels, "prepare", lambda *_, **__: pending)
    torch.mm(a, b)
    assert StandIn.noted == []
    monkeypatch.setattr(kernels, "prepare", lambda key, problem, *_, **__: StandIn(problem))
    torch.mm(a, b)
    assert StandIn.noted == [LISTED[0]]


def test_what_torch_accepts_is_never_refused(made: installed.Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(16, 32, 64)
    wide = torch.randn(16, 128).to(BF16)[:, ::2]
    one = torch.randn(1, 64).to(BF16).expand(16, 64)
    for left, right in (
        (a[:0], b), (a, b[:, :0]), (wide, b), (one, b), (a.float(), b.float()), (a.double(), b.double()),
        (torch.ones(16, 64, dtype=torch.int32), torch.ones(64, 32, dtype=torch.int32)), operands(8, 8, 8),
    ):  # fmt: skip
        found = torch.mm(left, right)
        with made.off():
            assert torch.equal(found, torch.mm(left, right))
    assert StandIn.noted == []
    for out in (torch.empty(32, 16, dtype=BF16).t(), torch.empty(0, dtype=BF16)):
        assert torch.mm(a, b, out=out).shape == (16, 32)
    monkeypatch.setattr(StandIn, "misaligned", True)
    torch.mm(a, b)
    assert (StandIn.noted, made.passed) == ([], 3)
    with pytest.raises(RuntimeError, match=r"shape|size"):
        torch.mm(a, a)


def test_slices_of_a_fused_projection_run_what_the_table_has(made: installed.Installed) -> None:
    fused, w = torch.randn(16, 192).to(BF16), torch.randn(32, 64).to(BF16).t()
    expected = [fused[:, begin : begin + 64].float() @ w.float() for begin in (0, 64, 128)]
    for begin, right in zip((0, 64, 128), expected, strict=True):
        assert torch.allclose(torch.mm(fused[:, begin : begin + 64], w).float(), right, rtol=0.02, atol=0.2)
    heads = torch.randn(16, 3, 64).to(BF16).transpose(0, 1)
    torch.bmm(heads, torch.randn(3, 32, 64).to(BF16).mT)
    assert StandIn.noted == [LISTED[0]] * 3 + [LISTED[2]]
    # 65 elements are no multiple of 16 bytes.
    torch.mm(torch.randn(16, 65).to(BF16)[:, :64], w)
    assert made.launched == 4


def same_as_off(made: installed.Installed, given: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Whether `_scaled_mm` gives the same bits, or the same error, with the table and without."""
    said: list[Any] = []
    for within in (nullcontext, made.off):
        with within():
            try:
                said.append(torch._scaled_mm(*given, **options).float())
            except (RuntimeError, ValueError, NotImplementedError) as error:
                said.append(str(error).splitlines()[0])
    return torch.equal(*said) if isinstance(said[0], Tensor) else said[0] == said[1]


def test_scaled_products_run_the_librarys_algorithm_with_scales_on_the_device(made: installed.Installed) -> None:
    a, b = torch.randn(16, 64).to(E4M3), torch.randn(32, 64).to(E4M3).t()
    half, two = torch.tensor(0.5), torch.tensor([[2.0]])
    expected = a.float() @ b.float()
    for scales, factor in (((half, half), 0.25), ((half, two), 1.0)):
        found = torch._scaled_mm(a, b, *scales, out_dtype=BF16, use_fast_accum=True)
        assert torch.allclose(found.float(), expected * factor, rtol=0.02, atol=0.1)
    out, bias = torch.empty(16, 32, dtype=BF16), torch.randn(32).to(BF16)
    assert torch._scaled_mm(a, b, half, two, bias, out_dtype=BF16, out=out) is out
    assert torch.allclose(out.float(), expected + bias.float(), rtol=0.02, atol=0.1)
    assert StandIn.noted == [SCALED, SCALED, SCALED_WITH_BIAS]


def test_scales_of_operands_and_of_rows_and_columns_run_our_kernels(made: installed.Installed) -> None:
    a, b, wide = torch.randn(16, 64).to(E4M3), torch.randn(32, 64).to(E4M3).t(), torch.randn(64, 64).to(E4M3).t()
    rows, columns, more = torch.rand(16, 1) + 0.5, torch.rand(1, 32) + 0.5, torch.rand(1, 64) + 0.5
    half, bias = torch.tensor(0.5), torch.randn(64).to(BF16)
    options = {"out_dtype": BF16, "use_fast_accum": True}
    for found, expected in (
        (torch._scaled_mm(a, wide, half, half, **options), 0.25 * (a.float() @ wide.float())),
        (torch._scaled_mm(a, b, rows, columns, **options), rows * columns * (a.float() @ b.float())),
        (torch._scaled_mm(a, wide, rows, more, bias, out_dtype=BF16),
         rows * more * (a.float() @ wide.float()) + bias.float()),
    ):  # fmt: skip
        assert torch.allclose(found.float(), expected, rtol=0.02, atol=0.2)
    assert StandIn.noted == [TENSORWISE, ROWWISE, ROWWISE_WITH_BIAS]
    # Fewer scales than rows, scales of blocks, and scales that lie apart.
    strided = (torch.rand(16, 2) + 0.5)[:, :1]
    for first, second in ((rows[:8], columns), (rows, torch.rand(1, 2)), (strided, columns), (half, columns)):
        given = (a, b, first, second)
        assert same_as_off(made, given, options)
    assert len(StandIn.noted) == 3


def test_scaled_products_that_the_library_is_not_best_at_are_torchs(made: installed.Installed) -> None:
    a, b, wide = torch.randn(16, 64).to(E4M3), torch.randn(32, 64).to(E4M3).t(), torch.randn(48, 64).to(E4M3).t()
    one, rows, columns = torch.tensor(1.0), torch.ones(16, 1), torch.ones(1, 32)
    calls: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
        ((a, wide, one, one), {"out_dtype": BF16, "use_fast_accum": True}),
        ((a, b, one, one), {"out_dtype": torch.float32, "use_fast_accum": True}),
        ((a, b, one, one), {"out_dtype": BF16}), ((a, b, one, one), {}),
        ((a, b, rows, columns), {"out_dtype": BF16}),
        ((a, b, one.double(), one), {"out_dtype": BF16, "use_fast_accum": True}),
    )  # fmt: skip
    for given, options in calls:
        assert same_as_off(made, given, options)
    assert StandIn.noted == []


def test_scaled_products_stay_torchs_own_where_the_table_has_none(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(canonical(table(entry(LISTED[0]), entry(SCALED_OURS))))
    before = torch.library.get_kernel("aten::_scaled_mm", "CPU")
    found = install(tmp_path / "t.json", eager=True, key="CPU")
    try:
        assert str(torch.library.get_kernel("aten::_scaled_mm", "CPU")) == str(before)
        assert str(torch.library.get_kernel("aten::mm", "CPU")) != str(before)
    finally:
        found.remove()


def test_what_saves_little_runs_in_graphs_alone(
    made: installed.Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"value": 1.5, "low": 1.4, "high": 1.6, "paired": True}
    much = entry(LISTED[1], samples_us=[100.0] * 3, versus_cublaslt_first=large)
    (tmp_path / "t.json").write_bytes(canonical(table(entry(LISTED[0]), much)))
    found = install(tmp_path / "t.json", eager=True, key="CPU")
    try:
        a, b = operands(16, 32, 64)
        for _ in range(2):
            torch.mm(a, b)
            torch.addmm(torch.zeros(32, dtype=BF16), a, b)
        assert StandIn.noted == [LISTED[1]] * 2
        # It is loaded for graphs.
        monkeypatch.setattr(installed, "_capturing", lambda a: True)
        torch.mm(a, b)
        assert StandIn.noted[2:] == [LISTED[0]]
    finally:
        found.remove()


def test_off_and_remove_give_torchs_kernels_back(made: installed.Installed) -> None:
    a, b = operands(16, 32, 64)
    with made.off():
        torch.mm(a, b)
    made.remove()
    torch.mm(a, b)
    assert StandIn.noted == []


def test_compiled_functions_use_it(made: installed.Installed) -> None:
    a, b = operands(16, 32, 64)
    compiled = torch.compile(lambda x, y: torch.mm(x, y) + 1, backend="aot_eager")
    with torch.no_grad():
        compiled(a, b)
    assert StandIn.noted == [LISTED[0]]


def test_a_table_that_was_changed_installs_nothing(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(json.dumps(table(entry(WON)) | {"device": "NVIDIA L40S"}))
    with pytest.raises(TableError, match="was changed"):
        install(tmp_path / "table.json", key="CPU")
    assert installed._installed is None


def test_a_table_of_another_machine_is_refused_with_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(canonical(table(entry(WON))))
    measured = entry(WON)["provenance"]
    here = Machine((DEVICE,), measured["driver"], measured["cublaslt"])

    def on(machine: Machine, **options: bool) -> installed.Installed:
        monkeypatch.setattr(installed, "this_machine", lambda: machine)
        return install(path, key="CPU", **options)

    on(here).remove()
    card, driver = replace(here, cards=("NVIDIA L40S",)), replace(here, driver="590.10.01", cublaslt="")
    for stale in (False, True):
        with pytest.raises(TableError, match=f"is of '{DEVICE}', and this machine has NVIDIA L40S"):
            on(card, stale=stale)
    with pytest.raises(TableError, match=r"with driver 580\.1, and 590\.10\.01 runs here; measure again"):
        on(driver)
    on(driver, stale=True).remove()
    assert "590.10.01 runs here" in caplog.text


def test_another_device_is_refused_with_what_differs() -> None:
    found = installed.Exact(DEVICE, {}).find(WON, "NVIDIA L40S")
    assert found.config is None
    assert "NVIDIA L40S" in found.why


def test_a_bundle_needs_neither_compiler_nor_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = written("bundle", guarded(table(entry(WON))), program=lambda _: CUBIN)
    export_folder(tmp_path / "bundle", files)
    monkeypatch.setattr(sources.Store, "open", None)
    configure(tmp_path / "bundle")
    try:
        found = sources.chosen().find(WON, DEVICE)
        assert (found.source, found.program) == ("measured", CUBIN)
        assert sources.chosen().find(Gemm.of(17, 4096, 4096), DEVICE).config is None
    finally:
        configure()


def test_a_guarded_table_leaves_what_the_library_won_to_it(tmp_path: Path) -> None:
    tied = Gemm.of(24, 4096, 4096)
    files = written("json", guarded(table(entry(WON), entry(tied, 1.0))))
    (tmp_path / "t.json").write_bytes(next(iter(files.values())))
    configure(tmp_path / "t.json")
    try:
        assert sources.chosen().find(WON, DEVICE).config is not None
        assert "to the library" in sources.chosen().find(tied, DEVICE).why
    finally:
        configure()


# ------------------------------------------------------------------------------------------------ plugins


#: Paths that a plugin installed, and whether stale ones were allowed.
Asked = list[tuple[Path, bool]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    calls: Asked = []
    monkeypatch.setattr("gemmtune.torch.install", lambda path, *, stale: calls.append((path, stale)))
    monkeypatch.setattr(plugins, "_done", set())
    yield calls
    settings.cache_clear()


@pytest.mark.parametrize("group", ["vllm.general_plugins", "sglang.srt.plugins"])
def test_the_engines_loaders_find_the_plugin_and_call_it_without_arguments(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    # As both engines do: every entry point of their group, loaded and called.
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][group]
    monkeypatch.setenv("GEMMTUNE_TABLE", "/srv/bundle")
    settings.cache_clear()
    for name, value in declared.items():
        EntryPoint(name, value, group).load()()
    assert asked == [(Path("/srv/bundle"), False)]


def test_a_plugin_installs_the_named_table_once(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.cache_clear()
    plugins.install_table()
    assert asked == []
    monkeypatch.setenv("GEMMTUNE_TABLE", "/srv/bundle")
    settings.cache_clear()
    plugins.install_table()
    plugins.install_table()
    assert asked == [(Path("/srv/bundle"), False)]
    monkeypatch.setenv("GEMMTUNE_TABLE", "/srv/other")
    monkeypatch.setenv("GEMMTUNE_TABLE_STALE", "1")
    settings.cache_clear()
    plugins.install_table()
    assert asked[1:] == [(Path("/srv/other"), True)]


def test_a_plugin_never_stops_an_engine(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(path: Path, *, stale: bool) -> None:
        raise TableError(f"{path} was changed")

    monkeypatch.setattr("gemmtune.torch.install", broken)
    monkeypatch.setenv("GEMMTUNE_TABLE", "/srv/bundle")
    settings.cache_clear()
    with caplog.at_level(logging.ERROR, "gemmtune.torch"):
        plugins.install_table()
    assert "was changed" in caplog.text


# ------------------------------------------------------------------------------------------------ record


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


def test_a_program_that_fails_writes_nothing(tmp_path: Path) -> None:
    def program() -> None:
        with record(tmp_path / "shapes.csv"):
            torch.mm(*operands(8, 8, 8))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert list(tmp_path.iterdir()) == []


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
