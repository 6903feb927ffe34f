"""`install` and bundles with the CPU build of PyTorch: what is overridden, and what is passed on.

Our kernels need a GPU: here a stand-in counts what they would compute. `make test-torch` runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import configure, install, installed, kernels, sources  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.integration.torch.standing_in import BF16, LISTED, StandIn, operands, stand_ins  # noqa: E402
from tests.support import DEVICE  # noqa: E402
from tests.unit.tuner.tables.test_exporters import CUBIN, WON, entry, guarded, table, written  # noqa: E402
from tuner.errors import TableError  # noqa: E402
from tuner.files import export_folder  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402
from workers.cuda.machine import Machine  # noqa: E402


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[installed.Installed]:
    with stand_ins(tmp_path, monkeypatch) as found:
        yield found


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
