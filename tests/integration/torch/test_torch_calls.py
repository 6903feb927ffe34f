"""Which scaled products may be ours: what torch refuses stays refused. On the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch.calls import parts_of  # noqa: E402

E4M3, E5M2, BF16 = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16
ONE, ROWS, COLUMNS = torch.ones(1), torch.ones(16, 1), torch.ones(1, 32)


def operands(n: int = 32, k: int = 64, dtypes: tuple[Any, Any] = (E4M3, E4M3)) -> tuple[Any, Any]:
    return torch.ones(16, k).to(dtypes[0]), torch.ones(n, k).to(dtypes[1]).t()


def ours(*given: Any, **options: Any) -> bool:  # noqa: ANN401
    return parts_of("_scaled_mm", given, {"out_dtype": BF16, **options}) is not None


def test_scaled_products_that_torch_takes_may_be_ours() -> None:
    assert ours(*operands(), ONE, ONE)
    assert ours(*operands(), ONE, ONE, out_dtype=torch.float16)
    assert ours(*operands(), ROWS, COLUMNS)
    assert ours(*operands(dtypes=(E4M3, E5M2)), ONE, ONE)
    assert ours(*operands(dtypes=(E5M2, E4M3)), ONE, ONE)


def test_scaled_products_that_torch_refuses_are_its_own() -> None:
    assert not ours(*operands(k=72), ONE, ONE)
    assert not ours(*operands(n=24), ONE, ONE)
    assert not ours(*operands(dtypes=(E5M2, E5M2)), ONE, ONE)
    assert not ours(*operands(), ROWS, COLUMNS, out_dtype=torch.float16)
    assert not ours(*operands(), ONE, ONE.to("meta"))
    assert not ours(*operands(), ONE, ONE, scale_result=ONE)
    a, b = operands()
    assert not ours(a, b.contiguous(), ONE, ONE)
    assert not ours(a.t().contiguous().t(), b, ONE, ONE)


def test_a_bias_that_is_multiplied_is_torchs_own() -> None:
    a, b = operands(dtypes=(BF16, BF16))
    bias, source = torch.ones(32, dtype=BF16), torch.ones(16, 32, dtype=BF16)
    assert parts_of("addmm", (bias, a, b), {"beta": 1}) is not None
    assert parts_of("addmm", (bias, a, b), {"beta": 2}) is None
    assert parts_of("addmm", (source, a, b), {"beta": 2}) is not None
