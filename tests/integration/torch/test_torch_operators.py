"""How torch computes what no kernel does: by its own operators, into `out` itself, 8-bit products as 8-bit products.

`make test-torch` runs it with the CPU build of PyTorch; a GPU runs `tests/gpu/test_torch.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import gemm, kernels, op, streams, torchs  # noqa: E402
from gemmtune.torch.composed import composed  # noqa: E402
from gemmtune.torch.operands import output_dtype, output_shape, problem_of, scaling_of  # noqa: E402
from gemmtune.torch.operators import operator_of  # noqa: E402

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
E4M3, E5M2, INT8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
CUDA = torch.device("cuda", 0)


def random(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return (made * 40).clamp(-127, 127).to(dtype) if dtype is INT8 else made.to(dtype)


@dataclass
class Calls:
    """Takes the place of torch's operators: notes the calls, computes what they would."""

    noted: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    scaled_by: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def scaled(
        self, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, **how: object
    ) -> torch.Tensor:
        self.noted.append(("_scaled_mm", how))
        # What the meta function of `_scaled_mm` asks of operands.
        assert a.dim() == b.dim() == 2
        assert a.stride(0) > a.stride(1) == 1 == b.stride(0) < b.stride(1)
        assert a.shape[1] % 16 == b.shape[1] % 16 == 0
        assert a.data_ptr() % 16 == b.data_ptr() % 16 == 0
        assert scale_a.is_contiguous()
        assert scale_b.is_contiguous()
        assert (scale_a.shape, scale_b.shape) in (((), ()), ((a.shape[0], 1), (1, b.shape[1])))
        self.scaled_by.append((scale_a, scale_b))
        return self._into((a.float() @ b.float()) * scale_a * scale_b, how["out"], how["out_dtype"])

    def counted(self, a: torch.Tensor, b: torch.Tensor, **how: object) -> torch.Tensor:
        self.noted.append(("_int_mm", how))
        assert a.dim() == b.dim() == 2
        return self._into(a.double() @ b.double(), how["out"], torch.int32)

    @staticmethod
    def _into(made: torch.Tensor, out: object, dtype: object) -> torch.Tensor:
        return made.to(dtype) if out is None else out.copy_(made)  # type: ignore[attr-defined]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()
    monkeypatch.setattr(torch, "_scaled_mm", made.scaled)
    monkeypatch.setattr(torch, "_int_mm", made.counted)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(streams, "one", lambda device: torch.ones(()))
    return made


def computed(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, bias: torch.Tensor | None = None,
    source: torch.Tensor | None = None, alpha: float = 1.0, beta: float = 0.0, activation: str = "none",
    out_dtype: torch.dtype | None = None, promoted: bool = False,
    scales: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:  # fmt: skip
    """C by the operator that a GPU would get, on host memory."""
    dtype, shape = output_dtype(a, out_dtype), output_shape(a, b)
    kind = scaling_of(a, b, *scales) if scales else ""
    problem = problem_of(a, b, bias, source, alpha, activation, dtype, promoted, kind)
    made = operator_of(problem, shape, dtype, activation, CUDA)(a, b, bias, source, alpha, beta, out, scales)
    expected = composed(a, b, bias, source, alpha, beta, activation, dtype, scales)
    assert (made.dtype, list(made.shape)) == (dtype, shape)
    assert torch.allclose(made.double(), expected.double(), rtol=0.02, atol=0.02)
    return made


def test_8_bit_floats_are_multiplied_as_such(calls: Calls) -> None:
    a, b = random(33, 64, dtype=E4M3), random(48, 64, dtype=E4M3).t()
    for out_dtype in (None, F16, F32):
        computed(a, b, out_dtype=out_dtype)
        out = torch.empty(33, 48, dtype=out_dtype or BF16)
        assert computed(a, b, out, out_dtype=out_dtype) is out
        assert calls.noted[-1][1]["out"].data_ptr() == out.data_ptr()  # type: ignore[attr-defined]
    computed(a, b, promoted=True)
    # One row, more dimensions, and one operand of the other format.
    computed(random(64, 1, dtype=E4M3).t(), b)
    computed(random(2, 3, 64, dtype=E5M2), b)
    three = torch.empty(2, 3, 48, dtype=BF16)
    assert computed(random(2, 3, 64, dtype=E4M3), b, three) is three
    assert {name for name, _ in calls.noted} == {"_scaled_mm"}
    fast = [how["use_fast_accum"] for _, how in calls.noted]
    assert fast == [True] * 6 + [False] + [True] * 3


def test_epilogues_follow_an_8_bit_product_in_f32(calls: Calls) -> None:
    a, b = random(32, 64, dtype=E4M3), random(48, 64, dtype=E4M3).t()
    bias, source = random(48), random(32, 48)
    out = torch.empty(32, 48, dtype=BF16)
    assert computed(a, b, out, bias=bias, source=source, alpha=0.5, beta=2.0, activation="relu") is out
    computed(a, b, out_dtype=E4M3)
    assert [how["out_dtype"] for _, how in calls.noted] == [F32, F32]


def test_scales_are_the_8_bit_operators(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = random(32, 64, dtype=E4M3), random(48, 64, dtype=E4M3).t()
    numbers = torch.full((1,), 0.5), torch.full((1,), 0.25)
    rows = torch.rand(32), torch.rand(48)
    for scales in (numbers, rows):
        out = torch.empty(32, 48, dtype=BF16)
        assert computed(a, b, out, scales=scales) is out
        assert calls.noted[-1][1]["out"].data_ptr() == out.data_ptr()  # type: ignore[attr-defined]
        computed(a, b, scales=scales)
    computed(a, b, scales=numbers, out_dtype=F32)
    computed(random(2, 3, 64, dtype=E4M3), b, scales=(torch.rand(2, 3, 1), rows[1]))
    assert [how["out_dtype"] for _, how in calls.noted] == [BF16] * 4 + [F32, BF16]
    assert not any(first.numel() == 1 and first.item() == 1.0 for first, _ in calls.scaled_by)
    # What it can't scale so is scaled in f32, behind a product with unit scales.
    calls.noted.clear()
    computed(a, b, scales=rows, out_dtype=F16)
    computed(a, random(40, 64, dtype=E4M3).t(), scales=(rows[0], torch.rand(40)))
    computed(a, b, scales=numbers, activation="relu")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    computed(a, b, scales=rows)
    assert [how["out_dtype"] for _, how in calls.noted] == [F32] * 4


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize("given", ["bias", "source", "bias+alpha", "source+alpha", "alpha"])
def test_the_operator_that_multiplies_adds_and_scales(
    given: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, alpha, beta = random(48, 64, dtype=dtype).t(), 0.5 if "alpha" in given else 1.0, 2.0
    batches = random(3, 32, 64, dtype=dtype), random(3, 48, 64, dtype=dtype).mT
    matrices = random(32, 64, dtype=dtype), random(64, 32, dtype=dtype).t(), random(2, 3, 64, dtype=dtype)
    for a, b in (batches, *((each, right) for each in matrices)):
        out = torch.empty(output_shape(a, b), dtype=dtype)
        bias = random(48, dtype=dtype) if "bias" in given else None
        source = random(*out.shape, dtype=dtype) if "source" in given else None
        with monkeypatch.context() as patched:
            patched.setattr(torch, "matmul", None)
            patched.setattr(torch.Tensor, "float", None)
            problem = problem_of(a, b, bias, source, alpha, "none", dtype, False)
            compute = operator_of(problem, output_shape(a, b), dtype, "none", CUDA)
            assert compute(a, b, bias, source, alpha, beta, out) is out
        assert torch.equal(out, computed(a, b, bias=bias, source=source, alpha=alpha, beta=beta))


@pytest.mark.parametrize("right", [random(1, 64, 48), random(1, 48, 64).mT], ids=["rows", "columns"])
def test_a_batch_of_one_is_computed_by_operators_of_matrices(calls: Calls, right: torch.Tensor) -> None:
    a, bias = random(1, 32, 64), random(48)
    out = torch.empty(1, 32, 48, dtype=BF16)
    assert computed(a, right, out, bias=bias) is out
    assert torch.equal(out[0], torch.addmm(bias, a[0], right[0]))
    assert computed(a, right, bias=bias).shape == (1, 32, 48)
    counted = random(1, 32, 64, dtype=INT8), random(1, 48, 64, dtype=INT8).mT
    assert computed(*counted).shape == (1, 32, 48)
    assert [name for name, _ in calls.noted] == ["_int_mm"]


def test_8_bit_operands_that_the_operator_does_not_take_are_copied_as_bytes(calls: Calls) -> None:
    e4m3, e5m2 = random(64, 64, dtype=E4M3), random(64, 64, dtype=E5M2)
    store = torch.zeros(64 * 64 + 16, dtype=E4M3)
    askew = store[1 : 1 + 64 * 64].view(64, 64).copy_(e4m3)
    beside = torch.empty(64 * 64 + 1, dtype=BF16)[1:].view(64, 64)
    cases = (
        (e4m3, e4m3),
        (e4m3.t(), e5m2.t()),
        (e4m3.t(), e4m3),
        (random(32, 24, dtype=E4M3), random(32, 24, dtype=E4M3).t()),
        (random(32, 32, dtype=E4M3), random(24, 32, dtype=E4M3).t()),
        (random(1, 40, dtype=E4M3), random(40, 7, dtype=E5M2)),
        (random(64, 16, dtype=E4M3)[:, :1].t(), e4m3.t()),
        (random(2, 32, 32, dtype=E4M3), random(2, 32, 32, dtype=E4M3).mT),
        (random(2, 32, 40, dtype=E4M3), random(2, 40, 24, dtype=E4M3)),
        (askew, e4m3.t()),
        (e4m3, askew.t()),
    )
    products = sum(a.shape[0] if b.dim() == 3 else 1 for a, b in cases)
    for a, b in cases:
        computed(a, b)
        computed(a, b, bias=random(b.shape[-1]), activation="relu")
        out = torch.empty(output_shape(a, b), dtype=BF16)
        assert computed(a, b, out) is out
    assert computed(e4m3, e4m3.t(), beside) is beside
    assert [name for name, _ in calls.noted] == ["_scaled_mm"] * (3 * products + 1)


def test_products_of_two_e5m2_are_composed(calls: Calls) -> None:
    e5m2 = random(64, 64, dtype=E5M2)
    out = torch.empty(64, 64, dtype=BF16)
    assert computed(e5m2, e5m2.t(), out) is out
    assert calls.noted == []


def test_whole_numbers_are_counted(calls: Calls) -> None:
    a, b = random(32, 64, dtype=INT8), random(48, 64, dtype=INT8)
    for right in (b.t(), b.t().contiguous()):
        out = torch.empty(32, 48, dtype=torch.int32)
        assert torch.equal(computed(a, right, out).double(), a.double() @ right.double())
        assert calls.noted[-1][1]["out"].data_ptr() == out.data_ptr()  # type: ignore[attr-defined]
    computed(a, b.t(), bias=torch.ones(48), alpha=0.5, activation="relu", out_dtype=INT8)
    assert len(calls.noted) == 3
    for left in (random(16, 64, dtype=INT8), random(64, 32, dtype=INT8).t(), a.to(torch.uint8)):
        computed(left, b.t() if left.dtype is INT8 else b.to(torch.uint8).t())
    computed(random(32, 60, dtype=INT8), random(48, 60, dtype=INT8).t())
    assert len(calls.noted) == 3


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_a_plain_product_is_written_into_out_itself(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("copied")

    cases = [
        (random(8, 16, dtype=dtype), random(16, 24, dtype=dtype)),
        (random(16, 8, dtype=dtype).t(), random(24, 16, dtype=dtype).t()),
        (random(2, 3, 16, dtype=dtype), random(24, 16, dtype=dtype).t()),
        (random(3, 8, 16, dtype=dtype), random(3, 24, 16, dtype=dtype).mT),
    ]
    expected = [torch.matmul(a, b) for a, b in cases]
    for (a, b), wanted in zip(cases, expected, strict=True):
        out = torch.empty_like(wanted)
        with monkeypatch.context() as patched:
            patched.setattr(torch.Tensor, "copy_", forbidden)
            patched.setattr(torch.Tensor, "float", forbidden)
            assert gemm(a, b, out=out) is out
            assert torch.equal(gemm(a, b), wanted)
        assert torch.equal(out, wanted)


def test_an_f32_output_of_16_bit_operands_is_not_rounded_in_between() -> None:
    a, b = random(8, 256), random(256, 16)
    assert torch.equal(computed(a, b, out_dtype=F32), a.float() @ b.float())
    computed(a, b, out_dtype=F16)


def test_a_prepared_call_goes_straight_to_torchs_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[torch.Tensor | None] = []

    def compute(
        a: torch.Tensor, b: torch.Tensor, bias: object, source: object, alpha: float, beta: float,
        out: torch.Tensor | None, scales: object,
    ) -> torch.Tensor:  # fmt: skip
        noted.append(out)
        return a if out is None else out

    a, b, out = random(8, 16), random(16, 24), torch.empty(8, 24, dtype=BF16)
    absent = kernels.Absent("planted", 0, (8, 24), BF16, compute)
    monkeypatch.setattr(op, "prepared", lambda kind: absent)
    monkeypatch.setattr(torchs, "holds", lambda tensor, shape, dtype, device: tensor.shape == shape)
    assert gemm(a, b) is a
    assert gemm(a, b, out=out) is out
    assert noted == [None, out]
    # What does not fit is reported as before.
    with pytest.raises(ValueError, match="omit out"):
        gemm(a, b, out=torch.empty(8, 25, dtype=BF16))
    shared = random(24, 24)
    with pytest.raises(ValueError, match="shares memory"):
        gemm(shared, random(24, 24), out=shared)
