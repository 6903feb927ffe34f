"""Calls that torch computes have the results, the dtypes and the refusals of those that kernels compute. On the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import gemm  # noqa: E402

BF16 = torch.bfloat16


def random(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("graded", [False, True])
def test_autocast_changes_neither_operands_nor_results(graded: bool) -> None:
    a, b, bias = random(4, 32, dtype=torch.float32), random(32, 8, dtype=torch.float32), torch.ones(8)
    half, other = random(4, 32), random(32, 8)
    expected = a @ b, a @ b + bias, half.float() @ other.float(), a @ b
    for each in (a, half):
        each.requires_grad_(graded)
    with torch.autocast("cpu", dtype=BF16):
        compiled = torch.compile(gemm, backend="aot_eager", fullgraph=True)(a, b)
        found = gemm(a, b), gemm(a, b, bias=bias), gemm(half, other, out_dtype=torch.float32), compiled
    for one, wanted in zip(found, expected, strict=True):
        assert one.dtype is torch.float32
        assert torch.allclose(one, wanted, rtol=1e-5, atol=1e-5)


def test_what_has_no_data_is_composed_too() -> None:
    a, b = torch.empty(4, 32, device="meta", requires_grad=True), torch.empty(32, 8, device="meta")
    assert gemm(a, b).shape == (4, 8)
