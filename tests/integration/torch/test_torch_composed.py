"""Calls that torch computes have the results, the dtypes and the refusals of those that kernels compute. On the CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import Refused, gemm, op  # noqa: E402

BF16, F16 = torch.bfloat16, torch.float16


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


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["matrices", "batches"])
def test_a_product_beyond_f16_is_scaled_and_added_to_before_it_is_rounded(batch: tuple[int, ...], graded: bool) -> None:
    a = torch.full((*batch, 4, 64), 60.0, dtype=F16, requires_grad=graded)
    b, source = torch.full((*batch, 64, 8), 60.0, dtype=F16), torch.full((*batch, 4, 8), -6e4, dtype=F16)
    product = 60.0 * 60.0 * 64
    bias = torch.full((8,), 64.0, dtype=F16)
    found = {
        product / 1024: gemm(a, b, alpha=1 / 1024),
        product / 1024 + 64: gemm(a, b, alpha=1 / 1024, bias=bias, activation="relu"),
        product - 3.0 * 6e4: gemm(a, b, source=source, beta=3.0),
        product / 4 - 0.5 * 6e4 + 64: gemm(a, b, alpha=0.25, source=source, beta=0.5, bias=bias),
        product: gemm(a, b, out_dtype=BF16),
    }
    for expected, c in found.items():
        assert torch.allclose(c.double(), torch.full_like(c, expected).double(), rtol=2**-8, atol=0)
        assert c.requires_grad is graded


def test_factors_and_a_bias_with_gradients_of_their_own_are_applied_before_c_is_rounded() -> None:
    a, b = torch.full((4, 64), 60.0, dtype=F16), torch.full((64, 8), 60.0, dtype=F16)
    alpha, bias = torch.tensor(1 / 1024, requires_grad=True), torch.ones(8, requires_grad=True)
    for factor in (alpha, 1 / 1024):
        c = gemm(a, b, alpha=factor, bias=bias)
        assert torch.equal(c, torch.full((4, 8), 226.0, dtype=F16))
        c.sum().backward()
    assert alpha.grad == 60.0 * 60.0 * 64 * 32
    assert torch.equal(bias.grad, torch.full((8,), 8.0))


def test_an_f16_output_has_all_its_bits() -> None:
    a, b = random(4, 256), random(256, 8)
    assert torch.equal(gemm(a, b, out_dtype=F16), (a.float() @ b.float()).to(F16))


GIVEN = {"a": random(4, 32), "b": random(32, 8)}
EIGHT = {name: each.to(torch.float8_e4m3fn) for name, each in GIVEN.items()}
SCALES = {"scale_a": torch.ones(1), "scale_b": torch.ones(1)}
REFUSALS = [
    ({"a": random(32)}, "a vector is one row"),
    ({"b": random(33, 8)}, "a's columns must be b's rows"),
    ({"b": random(3, 32, 8)}, "batches are not broadcast"),
    ({"b": random(32, 8, dtype=torch.complex64)}, "b is torch.complex64: kernels multiply"),
    ({"b": random(32, 8, dtype=torch.float16)}, "b is torch.float16 beside an a of torch.bfloat16: convert one"),
    ({"b": random(32, 8, dtype=torch.float8_e4m3fn), "out_dtype": torch.float32}, "b is torch.float8_e4m3fn beside"),
    ({"b": torch.empty(32, 8, dtype=BF16, device="meta")}, "b is on meta, a on cpu"),
    ({"bias": random(1)}, r"bias is \(1,\)"),
    ({"bias": random(3, 4, 8)}, r"bias is \(3, 4, 8\)"),
    ({"source": random(8)}, r"source is \(8,\)"),
    ({"out_dtype": torch.int8}, "C can't have out_dtype torch.int8"),
    (SCALES, "scales are for matrices of 8-bit floats"),
    (EIGHT | SCALES | {"alpha": 2.0}, "scales replace alpha and source"),
    (EIGHT | SCALES | {"source": random(4, 8)}, "scales replace alpha and source"),
]


@pytest.mark.parametrize(("given", "said"), REFUSALS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_call_with_gradients_is_refused_as_one_without(given: dict[str, object], said: str) -> None:
    operands = GIVEN | given
    a = operands.pop("a").clone().requires_grad_()  # type: ignore[attr-defined]
    with pytest.raises(Refused, match=said):
        gemm(a, operands.pop("b"), **operands)  # type: ignore[arg-type]


@pytest.mark.parametrize("into", [False, True], ids=["made", "out"])
@pytest.mark.parametrize(("given", "said"), [
    ({"bias": torch.empty(1)}, r"bias is \(1,\)"), ({"source": torch.empty(8)}, r"source is \(8,\)"),
    ({"scale_a": torch.empty(3), "scale_b": torch.empty(8)}, r"scales are \(3,\) and \(8,\): give one number each"),
    ({"scale_a": torch.empty(1)}, "scale_b is missing"),
    ({"scale_a": torch.empty(1), "scale_b": torch.empty(1), "source": torch.empty(4, 8)}, "scales replace alpha"),
], ids=["bias", "source", "scales", "one scale", "scales and a source"])  # fmt: skip
def test_operands_without_memory_are_refused_as_others(into: bool, given: dict[str, torch.Tensor], said: str) -> None:
    dtype = torch.float8_e4m3fn
    a, b = torch.empty(4, 32, dtype=dtype, device="meta"), torch.empty(32, 8, dtype=dtype, device="meta")
    out = {"out": torch.empty(4, 8, dtype=BF16, device="meta")} if into else {}
    with pytest.raises(Refused, match=said):
        gemm(a, b, **{name: tensor.to("meta") for name, tensor in given.items()}, **out)


@pytest.mark.filterwarnings("ignore")
def test_integers_are_scaled_to_floats_in_every_call() -> None:
    # Only calls of operands with elements, without gradients, outside of compiled functions took this C.
    a, b = torch.full((4, 16), 3, dtype=torch.int8), torch.full((16, 8), 5, dtype=torch.int8)
    bias = torch.ones(8, requires_grad=True)

    def product(a: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return gemm(a, b[: a.shape[1]], bias=bias, alpha=0.5, out_dtype=BF16)

    expected = torch.full((4, 8), 120.0, dtype=BF16)
    assert torch.equal(product(a), expected)
    assert torch.equal(torch.compile(product, backend="aot_eager", fullgraph=True)(a), expected)
    assert torch.equal(product(a, bias), expected + 1)
    product(a, bias).sum().backward()
    assert torch.equal(bias.grad, torch.full((8,), 4.0))
    assert torch.equal(product(a[:, :0]), torch.zeros(4, 8, dtype=BF16))
    assert product(a[:0]).shape == (0, 8)


def test_gradients_need_no_layout_of_the_kernels() -> None:
    a = random(1, 33).requires_grad_()
    found = gemm(a[:, :32].expand(4, 32), random(32, 8), bias=random(1).expand(8), source=random(8, 4).t())
    found.sum().backward()
    assert a.grad is not None
    assert a.grad.count_nonzero() == 32


@pytest.mark.parametrize(
    "given", [(torch.float8_e4m3fn, torch.float8_e5m2), (torch.float8_e5m2, torch.float8_e5m2)], ids=str
)
def test_8_bit_floats_of_both_kinds_go_together_with_gradients_too(given: tuple[torch.dtype, torch.dtype]) -> None:
    a, b = random(4, 32, dtype=given[0]), random(32, 8, dtype=given[1])
    bias = torch.zeros(8, requires_grad=True)
    assert torch.equal(gemm(a, b, bias=bias, out_dtype=torch.float32), a.float() @ b.float())


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("shape", [(0, 8, 32), (4, 0, 32), (4, 8, 0)], ids=str)
def test_what_is_empty_is_scaled_and_added_to(shape: tuple[int, int, int], graded: bool) -> None:
    m, n, k = shape
    a, b, bias, source = random(m, k).requires_grad_(graded), random(k, n), random(n), random(m, n)
    assert torch.equal(gemm(a, b, alpha=0.5), torch.zeros(m, n, dtype=BF16))
    assert torch.equal(gemm(a, b, alpha=0.5, bias=bias), bias.expand(m, n))
    assert torch.equal(gemm(a, b, alpha=0.5, bias=bias, source=source), bias + source)


@pytest.mark.parametrize("given", [{"bias": random(3, 4, 8)}, {"source": random(8)}, {"out_dtype": torch.int8}])
def test_an_empty_sum_is_refused_as_another(given: dict[str, torch.Tensor]) -> None:
    with pytest.raises(Refused):
        gemm(random(4, 0), random(0, 8), **given)


def test_what_has_no_data_is_composed_too() -> None:
    a, b = torch.empty(4, 32, device="meta", requires_grad=True), torch.empty(32, 8, device="meta")
    assert gemm(a, b).shape == (4, 8)


class Wrapped(torch.Tensor):
    """Has no memory of its own, as a distributed or a quantized tensor."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls: type[Self], held: torch.Tensor) -> Self:
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        return func(*(each.held if isinstance(each, cls) else each for each in args), **(kwargs or {}))


@pytest.mark.parametrize("name", ["a", "b", "bias", "source", "scale_a", "scale_b"])
def test_no_kernel_gets_the_address_of_a_tensor_without_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = SimpleNamespace(launch=lambda *_: pytest.fail("it was launched"), writes=lambda _: True, strides={})
    monkeypatch.setattr(op, "prepared", lambda _: launched)
    eight = name.startswith("scale")
    given = {"a": random(4, 32), "b": random(32, 16), "bias": random(16), "source": random(4, 16)}
    if eight:
        given = {each: given[each].to(torch.float8_e4m3fn) for each in ("a", "b")}
        given |= {"scale_a": torch.ones(1), "scale_b": torch.ones(1)}
    wrapped = given | {name: Wrapped(given[name])}
    found = gemm(wrapped.pop("a"), wrapped.pop("b"), **wrapped)
    monkeypatch.undo()
    assert torch.equal(found, gemm(given.pop("a"), given.pop("b"), **given))


def test_calls_that_differ_in_what_a_kernel_is_built_for_are_of_other_kinds() -> None:
    a, b = random(4, 32), random(32, 8)
    usual = a, b, None, None, 1.0, "none", BF16, False, None, None
    others = [(4, 0.5), (5, "relu"), (6, torch.float32), (7, True), (2, random(8)), (3, random(4, 8))]
    kinds = {op._kind(*usual)} | {op._kind(*usual[:at], value, *usual[at + 1 :]) for at, value in others}  # type: ignore[arg-type]
    assert len(kinds) == 1 + len(others)
    assert op._kind(*usual[:4], 2.0, *usual[5:]) == op._kind(*usual[:4], 0.5, *usual[5:])
