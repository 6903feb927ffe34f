"""`gemm` in compiled functions that differentiate or transform it. On the CPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from torch.autograd import forward_ad  # noqa: E402

from gemmtune.torch import gemm, op  # noqa: E402

A, B = (torch.randn(4, 4).to(torch.bfloat16) for _ in range(2))
Product = Callable[..., Any]


def dual(product: Product) -> Product:
    def tangent(x: Any) -> Any:  # noqa: ANN401
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(product(forward_ad.make_dual(x, x), B)).tangent

    return tangent


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transformed", [
    lambda product: torch.func.grad(lambda x: product(x, B).float().pow(2).sum()),
    lambda product: torch.vmap(torch.func.grad(lambda x: product(x[None], B).float().sum())),
    lambda product: torch.func.jacrev(lambda x: product(x, B)),
    lambda product: lambda x: torch.func.jvp(lambda y: product(y, B), (x,), (x,))[1],
    lambda product: torch.func.hessian(lambda x: product(x, B).float().pow(2).sum()),
    dual,
])  # fmt: skip
def test_transforms_inside_of_compiled_functions_lose_no_derivative(transformed: Callable[[Product], Product]) -> None:
    torch._dynamo.reset()
    found = torch.compile(transformed(gemm), backend="aot_eager", fullgraph=True)(A)
    expected = transformed(torch.matmul)(A)
    assert expected.any()
    assert torch.allclose(found.float(), expected.float(), rtol=0.02, atol=0.1)


@pytest.mark.filterwarnings("ignore")
def test_a_trace_holds_the_product_and_not_its_first_result(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = SimpleNamespace(launch=lambda a, b, *_: torch.from_numpy(a.numpy() @ b.numpy()))
    # As on a GPU, where a kind of call that was prepared is launched without the dispatcher.
    monkeypatch.setattr(op, "prepared", lambda kind: launched)
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    assert torch.allclose(gemm(a, b), a @ b)
    traced = torch.jit.trace(lambda x: gemm(x, b), (a,))
    assert torch.allclose(traced(2 * a), 2 * a @ b)
