"""Scaled products with a table installed: the library's algorithms, ours, and what is left to torch. On the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import install, installed  # noqa: E402
from tests.integration.torch.standing_in import (  # noqa: E402
    BF16,
    E4M3,
    LISTED,
    ROWWISE,
    ROWWISE_WITH_BIAS,
    SCALED,
    SCALED_OURS,
    SCALED_WITH_BIAS,
    TENSORWISE,
    StandIn,
    stand_ins,
)
from tests.unit.tuner.tables.test_exporters import entry, table  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402

Tensor = torch.Tensor


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[installed.Installed]:
    with stand_ins(tmp_path, monkeypatch) as found:
        yield found


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
