"""Calls that look alike and are not: each kind of call finds its own kernel, or torch's. On the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import Refused, gemm, install, installed, kernels, op  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, table  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402
from workers.cuda.copies import Strides  # noqa: E402

BF16 = torch.bfloat16
SCALED = Gemm.of(16, 32, 64, "fp8_e4m3", epilogue="scaled")
PLAIN, ADDED, BIASED, HALF, TF32 = (
    Gemm.of(16, 32, 64, dtype, epilogue=epilogue)
    for dtype, epilogue in (("bf16", "none"), ("bf16", "beta"), ("bf16", "bias"), ("fp16", "none"), ("tf32", "none"))
)


class StandIn(kernels.Kernel):
    """Notes its problem, and computes nothing."""

    noted: list[Gemm] = []  # noqa: RUF012
    strides: Mapping[str, Strides] = {}

    def __init__(self, problem: Gemm, dtype: torch.dtype) -> None:
        self.problem, self.dtype = problem, dtype

    def launch(self, *given: Any) -> torch.Tensor:  # noqa: ANN401
        self.noted.append(self.problem)
        out = given[6]
        return torch.zeros(16, 32, dtype=self.dtype) if out is None else out

    def writes(self, out: torch.Tensor) -> bool:
        return True


Offer = Callable[..., installed.Installed]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Installs a table of these problems."""
    monkeypatch.setattr(installed, "Kernel", StandIn)
    monkeypatch.setattr(
        kernels, "prepare", lambda key, problem, device, shape, dtype, *_, **__: StandIn(problem, dtype)
    )
    monkeypatch.setattr(StandIn, "noted", [])
    made = list[installed.Installed]()

    def offered(*problems: Gemm) -> installed.Installed:
        (tmp_path / "t.json").write_bytes(canonical(table(*map(entry, problems))))
        made.append(install(tmp_path / "t.json", eager=True, eager_us=0.0, key="CPU"))
        return made[-1]

    yield offered
    for each in made:
        each.remove()


def operands(dtype: torch.dtype = BF16) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(16, 64).to(dtype), torch.randn(32, 64).to(dtype).t()


def test_what_is_added_is_part_of_a_kind(offer: Offer) -> None:
    offer(ADDED)
    (a, b), source = operands(), torch.randn(16, 32).to(BF16)
    torch.addmm(source, a, b)
    assert StandIn.noted == [ADDED]
    others = source[:1], source[0], source.t().contiguous().t(), torch.randn(16, 64).to(BF16)[:, ::2], source.float()
    for other in others[:-1]:
        torch.addmm(other, a, b)
    with pytest.raises(RuntimeError, match="dtype"):
        torch.addmm(others[-1], a, b)
    assert StandIn.noted == [ADDED]


def test_a_bias_and_a_matrix_that_are_added_are_two_kinds(offer: Offer) -> None:
    offer(ADDED, BIASED)
    a, b = operands()
    for _ in range(2):
        torch.addmm(torch.zeros(32, dtype=BF16), a, b)
        torch.addmm(torch.zeros(16, 32, dtype=BF16), a, b)
    assert StandIn.noted == [BIASED, ADDED] * 2


def test_a_factor_of_the_product_is_another_kind(offer: Offer) -> None:
    offer(ADDED)
    (a, b), source = operands(), torch.randn(16, 32).to(BF16)
    torch.addmm(source, a, b, beta=0.5)
    torch.addmm(source, a, b, alpha=2.0)
    torch.addmm(source, a, b, beta=0.0)
    assert StandIn.noted == [ADDED]


def test_another_dtype_is_another_kind(offer: Offer) -> None:
    offer(PLAIN, HALF)
    for dtype in (BF16, torch.float16, torch.float32, BF16):
        torch.mm(*operands(dtype))
    assert StandIn.noted == [PLAIN, HALF, PLAIN]


def test_another_layout_is_another_kind(offer: Offer) -> None:
    offer(PLAIN)
    a, b = operands()
    for right in (b, b.contiguous(), b):
        torch.mm(a, right)
    torch.mm(a.t().contiguous().t(), b)
    assert StandIn.noted == [PLAIN] * 2


def test_f32_is_multiplied_as_tf32_only_while_torch_may(offer: Offer) -> None:
    offer(TF32)
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("high", "highest", "high"):
            torch.set_float32_matmul_precision(precision)
            torch.mm(*operands(torch.float32))
    finally:
        torch.set_float32_matmul_precision(before)
    assert StandIn.noted == [TF32] * 2


@pytest.mark.parametrize(("first", "then"), [("high", "ieee"), ("highest", "tf32")])
def test_f32_is_torchs_where_settings_contradict_each_other(offer: Offer, first: str, then: str) -> None:
    offer(TF32)
    matmul, before = torch.backends.cuda.matmul, torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(first)
        matmul.fp32_precision = then
        torch.mm(*operands(torch.float32))
    finally:
        matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision(before)
    assert StandIn.noted == []


def test_an_output_that_shares_memory_with_what_is_read_is_torchs(offer: Offer) -> None:
    made = offer(PLAIN, ADDED)
    held = torch.randn(4096).to(BF16)
    a, b, source, out = held[:1024].view(16, 64), held[1024:3072].view(32, 64).t(), held[3072:3584], held[3584:]
    source, out = source.view(16, 32), out.view(16, 32)
    torch.mm(a, b, out=out)
    torch.addmm(source, a, b, out=out)
    assert StandIn.noted == [PLAIN, ADDED]
    for begin in (512, 2560):
        with suppress(RuntimeError):  # where torch refuses it too
            torch.mm(a, b, out=held[begin : begin + 512].view(16, 32))
    with suppress(RuntimeError):
        torch.addmm(source, a, b, out=source)
    assert (StandIn.noted, made.passed) == ([PLAIN, ADDED], 3)


def test_an_output_that_shares_memory_with_a_scale_is_torchs(offer: Offer) -> None:
    made = offer(SCALED)
    a, b = torch.randn(16, 64).to(torch.float8_e4m3fn), torch.randn(32, 64).to(torch.float8_e4m3fn).t()
    out, one = torch.zeros(16, 32, dtype=BF16), torch.tensor(1.0)
    within = out.view(-1)[:2].view(torch.float32)[0]
    for first, second in ((one, one), (within, one), (one, within)):
        torch._scaled_mm(a, b, first, second, out_dtype=BF16, use_fast_accum=True, out=out)
    assert (StandIn.noted, made.passed) == ([SCALED], 2)


def test_true_sums_are_another_kind_than_fast_ones(offer: Offer) -> None:
    offer(SCALED)
    a, b = torch.randn(16, 64).to(torch.float8_e4m3fn), torch.randn(32, 64).to(torch.float8_e4m3fn).t()
    one = torch.tensor(1.0)
    for fast in (True, False, True):
        torch._scaled_mm(a, b, one, one, out_dtype=BF16, use_fast_accum=fast)
    assert StandIn.noted == [SCALED] * 2


def test_beyond_the_most_kinds_unknown_ones_are_torchs(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    made = offer(PLAIN, BIASED)
    monkeypatch.setattr(installed, "_MOST_KINDS", 1)
    a, b = operands()
    for _ in range(2):
        torch.mm(a, b)
        torch.addmm(torch.zeros(32, dtype=BF16), a, b)
    assert StandIn.noted == [PLAIN] * 2
    assert len(made._kinds) == 1


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_factor_that_is_a_tensor_is_refused(name: str) -> None:
    factor, source = torch.tensor(2.0, requires_grad=True), torch.zeros(16, 32, dtype=BF16)
    with pytest.raises(Refused, match=f"give {name}.item()"):
        gemm(*operands(), source=source, **{name: factor})


@pytest.mark.parametrize("name", ["a", "b", "bias", "source", "scale_a", "out"])
def test_what_is_no_tensor_is_refused_by_name(name: str) -> None:
    given = {"a": torch.ones(4, 8), "b": torch.ones(8, 4)} | {name: [[1.0]]}
    with pytest.raises(Refused, match=f"^{name} is of type list: give a torch.Tensor"):
        gemm(given.pop("a"), given.pop("b"), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("torch_has_room", [True, False])
def test_torch_computes_where_a_kernel_lacks_scratch_memory(
    monkeypatch: pytest.MonkeyPatch, torch_has_room: bool
) -> None:
    def full(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    (a, b), given = operands(), list[Any]()

    def compute(*call: Any) -> torch.Tensor:  # noqa: ANN401
        given.extend(call)
        return a @ b if torch_has_room else full()

    kernel = StandIn(PLAIN, BF16)
    monkeypatch.setattr(kernel, "launch", full)
    monkeypatch.setattr(kernel, "compute", compute)
    monkeypatch.setattr(op, "prepared", lambda _: kernel)
    if torch_has_room:
        assert torch.equal(gemm(a, b, alpha=2.0), a @ b)
        assert [given[0] is a, given[1] is b, *given[2:]] == [True, True, None, None, 2.0, 1.0, None, None]
    else:
        with pytest.raises(torch.OutOfMemoryError):
            gemm(a, b)
    # Nothing computes what torch's own operator had no room for.
    absent = kernels.Absent("planted", 0, (16, 32), BF16, full)
    monkeypatch.setattr(op, "prepared", lambda _: absent)
    with pytest.raises(torch.OutOfMemoryError):
        op._on_gpu(a, b, None, None, 1.0, 1.0, "none", None, False)
    monkeypatch.setattr(op, "prepared", lambda _: kernel)
    if torch_has_room:
        assert torch.equal(op._on_gpu(a, b, None, None, 1.0, 1.0, "none", None, False), a @ b)
