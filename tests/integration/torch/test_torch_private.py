"""If torch lacks a private function, calls use the public one. On CPU tensors.

`tests/gpu/test_torch.py` checks on a GPU that both give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import gemm, op, private  # noqa: E402


def test_what_torch_has_is_taken_and_what_it_lacks_is_replaced() -> None:
    def public() -> int:
        return 1

    guards = torch._C._dynamo.guards
    assert private.torchs("_dynamo.guards._empty_strided_cpu", public) is guards._empty_strided_cpu
    for missing in ("_no_such_call", "_no_such_module.call", "_dynamo.guards._no_such_call"):
        assert private.torchs(missing, public) is public


def test_the_public_ways_make_and_name_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=40 + device))
    assert private.public_current_stream(2) == 42
    asked = {}
    monkeypatch.setattr(torch, "empty_strided", lambda *at, **how: asked.update(at=at, how=how))
    private.public_empty_strided((2, 3), (3, 1), torch.bfloat16)
    assert asked == {"at": ((2, 3), (3, 1)), "how": {"dtype": torch.bfloat16, "device": "cuda"}}
    for precision in ("high", "highest"):  # the last is torch's own choice
        torch.set_float32_matmul_precision(precision)
        assert private.public_allows_tf32() is private.allows_tf32() is (precision == "high")


def test_without_a_count_of_modes_every_call_goes_through_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (torch.randn(16, 16, dtype=torch.bfloat16) for _ in range(2))
    usual = gemm(a, b)
    monkeypatch.setattr(op, "modes", private.public_modes)
    assert torch.equal(gemm(a, b), usual)


@pytest.mark.parametrize("transforming", [private.transforming_before_2_13, private.transforming_since_2_13])
def test_transforms_are_seen_in_either_way(transforming: Callable[[], bool]) -> None:
    seen = []

    def f(x: Any) -> Any:  # noqa: ANN401
        seen.append(transforming())
        return x

    f(torch.ones(2))
    torch.vmap(f)(torch.ones(2))
    torch.func.grad(lambda x: f(x).sum())(torch.ones(2))
    assert seen == [False, True, True]


@pytest.mark.filterwarnings("ignore")
def test_functions_compile_as_torch_before_2_13_sees_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "transforming", private.transforming_before_2_13)
    a, b = (torch.randn(16, 16, dtype=torch.bfloat16) for _ in range(2))
    compiled = torch.compile(lambda x: gemm(x.relu(), b) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a), gemm(a.relu(), b) + 1)
    trained = a.clone().requires_grad_()
    compiled(trained).sum().backward()
    assert trained.grad is not None
