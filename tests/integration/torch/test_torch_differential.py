"""An installed table changes nothing that a program can see: results, dtypes, strides and errors are torch's own.

Random calls run with the override and without it, on the CPU. A stand-in computes what our kernels would.
"""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from gemmtune.torch import install, installed, kernels  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.integration.torch.standing_in import StandIn  # noqa: E402
from tests.unit.tuner.tables.test_exporters import entry, table  # noqa: E402
from tuner.tables.entries import canonical  # noqa: E402

Tensor = torch.Tensor
BF16, F16, F32, E4M3 = torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn
M, N, K, BATCH = 16, 32, 64, 3
#: Everything of these extents that kernels of ours multiply, so that what is passed on is passed on for its operands.
FUSED = ("none", "bias", "beta", "alpha+beta", "alpha+bias")
LISTED = [
    Gemm.of(M, N, K, dtype, layout, batch, epilogue)
    for dtype in ("bf16", "fp16", "tf32") for layout in ("nt", "nn", "tn", "tt")
    for batch, epilogue in ((BATCH, "none"), *((1, each) for each in FUSED))
] + [Gemm.of(M, N, K, dtype, layout) for dtype in ("int8", "fp8_e4m3") for layout in ("nt", "nn")] + [
    Gemm.of(M, M, M), Gemm.of(M, M, M, epilogue="beta"), Gemm.of(M, M, M, layout="nn"),
    Gemm.of(M, N, K, "fp8_e4m3", epilogue="scaled"), Gemm.of(M, N, K, "fp8_e4m3", epilogue="scaled_rowwise"),
    Gemm.of(M, N, K, "fp8_e4m3_promoted", layout="nn", epilogue="scaled"),
]  # fmt: skip
CASES = 1_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[installed.Installed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installed, "Kernel", StandIn)
        patch.setattr(kernels, "prepare", lambda key, problem, *_, **__: Dense(problem))
        patch.setattr(StandIn, "noted", [])
        path = tmp_path_factory.mktemp("differential") / "table.json"
        path.write_bytes(canonical(table(*map(entry, LISTED))))
        found = install(path, eager=True, eager_us=0.0, key="CPU")
        yield found
        found.remove()


class Dense(StandIn):
    """C as our kernels write it, without torch's operators, which are overridden here."""

    def launch(
        self, a: Tensor, b: Tensor, bias: Tensor | None, source: Tensor | None, alpha: float, beta: float,
        out: Tensor | None = None, scales: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        self.noted.append(self.problem)
        made = torch.from_numpy(numpy.matmul(a.double().numpy(), b.double().numpy())) * alpha
        for scale in scales or ():
            made = made * scale.double()
        made = made + (0 if bias is None else bias.double()) + (0 if source is None else beta * source.double())
        dtype = {"bf16": BF16, "fp16": F16, "f32": F32}[self.problem.dtype_c]
        return made.to(dtype) if out is None else out.copy_(made)

    def writes(self, out: Any) -> bool:  # noqa: ANN401
        shape: tuple[int, ...] = (self.problem.m, self.problem.n)
        wanted = {"bf16": BF16, "fp16": F16, "f32": F32}.get(self.problem.dtype_c)
        shape = (BATCH, *shape) if self.problem.batch > 1 else shape
        whole = type(out) is Tensor and out.is_contiguous() and not out.requires_grad
        return bool(whole and out.dtype == wanted and out.shape == shape)


def said(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What a program sees of a call."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found = call()
        except Exception as error:  # whatever torch says
            return type(error).__name__, str(error).splitlines()[0]
    words = [str(each.message).splitlines()[0] for each in warned if each.category is UserWarning]
    about = type(found), tuple(found.shape), found.dtype, found.stride(), found.requires_grad, found.is_inference()
    return *about, words, found.device, None if found.is_meta else found.detach().double()


def difference(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """How two calls differ; empty if they don't."""
    if one[:-1] != other[:-1]:
        return f"{one}, not {other}"
    if not isinstance(one[-1], Tensor) or not isinstance(other[-1], Tensor):
        return "" if one[-1] is other[-1] or one[-1] == other[-1] else f"{one}, not {other}"
    close = torch.isclose(one[-1], other[-1], rtol=0.03, atol=0.5, equal_nan=True)
    return "" if close.all() else f"{int((~close).sum())} elements: {one[-1][~close][:4]}, not {other[-1][~close][:4]}"


# ------------------------------------------------------------------------------------------------ random calls


def matrix(chance: random.Random, shape: tuple[int, ...], dtype: Any) -> Tensor:  # noqa: ANN401
    """A tensor of about this shape, which lies in memory in one of many ways."""
    *batch, rows, columns = shape
    way = chance.randrange(14)
    if way == 0:
        rows, columns = chance.choice(((0, columns), (rows, 0), (rows + 1, columns), (rows, columns - 1)))
    transposed = chance.random() < 0.5
    size = (*batch, columns, rows) if transposed else (*batch, rows, columns)
    if way == 1:  # every second element
        made = filled((*size[:-1], 2 * size[-1]), dtype)[..., ::2]
    elif way == 2:  # rows apart by a multiple of 16 bytes, or by less
        made = filled((*size[:-1], size[-1] + chance.choice((8, 16, 64, 1, 3))), dtype)[..., : size[-1]]
    elif way == 3:  # one row many times
        made = filled((*size[:-2], 1, size[-1]), dtype).expand(size)
    elif way == 4:  # starts at an odd element
        made = filled((math.prod(size) + 1,), dtype)[1:].view(size)
    elif way == 5 and batch:  # one matrix many times
        made = filled((1, *size[1:]), dtype).expand(size)
    elif way == 6 and batch:  # heads, interleaved
        made = filled((size[1], size[0], size[2]), dtype).transpose(0, 1)
    elif way == 7 and dtype is F32:  # the negative bit
        made = torch.complex(filled(size, F32), filled(size, F32)).conj().imag
    elif way == 8:
        made = filled((*size[:-2], size[-2] + 2, size[-1]), dtype)[..., 1:-1, :]
    elif way == 9:
        made = filled((1, *size), dtype)
        return made.mT if transposed else made
    else:
        made = filled(size, dtype)
    return made.mT if transposed else made


def filled(size: tuple[int, ...], dtype: Any) -> Tensor:  # noqa: ANN401
    values = torch.randn(size)
    if not dtype.is_floating_point:
        return (3 * values).to(dtype)
    return values.to(dtype)


def call_of(chance: random.Random) -> Callable[[], Any]:
    """A call that a program may make; running it twice does the same."""
    operator = chance.choice(("mm", "addmm", "bmm", "matmul", "linear", "scaled", "baddbmm"))
    dtype = chance.choice((BF16, BF16, BF16, F16, F32, torch.int8, torch.float64, E4M3))
    other = dtype if chance.random() < 0.93 else chance.choice((BF16, F16, F32))
    batch = (BATCH,) if operator in ("bmm", "baddbmm") and chance.random() < 0.95 else ()
    square = chance.random() < 0.1
    m, n, k = (M, M, M) if square else (M, N, K)
    if operator == "scaled":
        return scaled(chance)
    a, b = matrix(chance, (*batch, m, k), dtype), matrix(chance, (*batch, k, n), other)
    added_shape = chance.choice(((n,), (1, n), (m, n), (m, 1), (), (n + 1,), (*batch, m, n)))
    added = filled(added_shape, chance.choice((dtype, dtype, dtype, F32)))
    if chance.random() < 0.1 and added.is_floating_point() and added.dtype.itemsize > 1:
        added = torch.full_like(added, math.nan)
    if chance.random() < 0.1 and added.dim() == 2:
        added = added.mT.contiguous().mT
    options = {}
    if operator in ("addmm", "baddbmm"):
        drawn = {name: chance.choice((None, 1, 1.0, 0.5, 0, -2.0)) for name in ("alpha", "beta")}
        options = {name: value for name, value in drawn.items() if value is not None}
        if not any(options.get(name, 1) for name in ("alpha", "beta")):
            # torch 2.13's baddbmm writes nothing then.
            options.pop("alpha")
    way, seed = chance.randrange(9), chance.random()
    graded = way == 8 and dtype.is_floating_point

    def run() -> Any:  # noqa: ANN401
        again = random.Random(seed)
        left = a.detach().requires_grad_() if graded else a
        given = dict(options)
        if operator in ("mm", "addmm", "bmm", "baddbmm") and way < 3:
            given["out"] = output(again, (*batch, m, n), dtype, left)
        if operator == "linear":
            return torch.nn.functional.linear(left, b.mT, added if again.random() < 0.5 else None)
        if operator in ("addmm", "baddbmm"):
            return getattr(torch, operator)(added, left, b, **given)
        return getattr(torch, operator)(left, b, **given)

    return run


def output(chance: random.Random, shape: tuple[int, ...], dtype: Any, a: Tensor) -> Tensor:  # noqa: ANN401
    way = chance.randrange(7)
    if way == 0 and a.shape == shape and a.is_contiguous():
        return a.clone().contiguous()
    made: Tensor = torch.zeros(shape, dtype=dtype if dtype.is_floating_point or way else F32)
    if way == 1:
        return torch.zeros(shape[::-1], dtype=dtype).permute(*reversed(range(len(shape))))
    if way == 2:
        return torch.zeros(0, dtype=dtype)
    if way == 3:
        return torch.zeros((*shape[:-1], shape[-1] + 1), dtype=dtype)
    if way == 4:
        return made.to(F32)
    if way == 5:
        return torch.zeros((*shape[:-1], 2 * shape[-1]), dtype=dtype)[..., ::2]
    return made


def scaled(chance: random.Random) -> Callable[[], Any]:
    first, second = chance.choice(((E4M3, E4M3), (E4M3, E4M3), (E4M3, torch.float8_e5m2), (torch.float8_e5m2,) * 2))
    a, b = matrix(chance, (M, K), first), matrix(chance, (K, N), second)
    shapes = (((), ()), ((1,), (1, 1)), ((M, 1), (1, N)), ((M,), (N,)), ((M, 2), (2, N)), ((), (1, N)))
    kinds = (F32, F32, F32, torch.float64)
    of_a, of_b = ((torch.rand(shape) + 0.5).to(chance.choice(kinds)) for shape in chance.choice(shapes))
    bias = chance.choice((None, None, filled((N,), BF16), filled((N,), F32)))
    options: dict[str, Any] = {"use_fast_accum": chance.random() < 0.5}
    output = chance.choice((BF16, BF16, F32, None))
    if output is not None:
        options["out_dtype"] = output
    return lambda: torch._scaled_mm(a, b, of_a, of_b, bias, **options)


def test_random_calls_see_no_difference(made: installed.Installed) -> None:
    torch.manual_seed(1)
    chance = random.Random(1)
    for number in range(CASES):
        call = call_of(chance)
        mode = chance.choice((torch.enable_grad, torch.no_grad, torch.inference_mode))
        precision = chance.choice(("highest", "high"))
        torch.set_float32_matmul_precision(precision)
        try:
            with mode():
                ours = said(call)
                with made.off():
                    torchs = said(call)
        finally:
            torch.set_float32_matmul_precision("highest")
        assert difference(ours, torchs) == "", number
    # Many of them did run on our kernels.
    assert made.launched > CASES / 10


# ------------------------------------------------------------------------------------------------ ways of calling


def both(made: installed.Installed, call: Callable[[], Any]) -> tuple[tuple[Any, ...], int]:
    """What both say, and how many calls ran on our kernels."""
    before = made.launched
    ours = said(call)
    launched = made.launched - before
    with made.off():
        torchs = said(call)
    assert difference(ours, torchs) == ""
    return ours, launched


def operands() -> tuple[Tensor, Tensor]:
    return torch.randn(M, K).to(BF16), torch.randn(N, K).to(BF16).t()


def test_what_is_multiplied_by_0_is_not_read(made: installed.Installed) -> None:
    a, b = operands()
    nan = torch.full((M, N), math.nan, dtype=BF16)
    assert both(made, lambda: torch.addmm(nan, a, b, beta=0))[1] == 0
    assert both(made, lambda: torch.addmm(nan[0], a, b, beta=0))[1] == 0
    assert both(made, lambda: torch.addmm(nan[0], a, b))[1] == 1


def test_matrices_are_not_batches_and_what_torch_does_not_multiply_stays_refused(made: installed.Installed) -> None:
    a, b = torch.randn(BATCH, M, K).to(BF16), torch.randn(BATCH, N, K).to(BF16).mT
    for call in (lambda: torch.mm(a, b), lambda: torch.bmm(a[0], b[0]), lambda: torch.addmm(a[0, 0, :N], a, b),
                 lambda: torch.mm(a[0].to(E4M3), b[0].to(E4M3))):  # fmt: skip
        assert both(made, call)[1] == 0
    assert both(made, lambda: torch.mm(a[0].to(torch.int8), b[0].to(torch.int8)))[0][2] is torch.int8
    assert both(made, lambda: torch.bmm(a, b))[1] == 1


def test_a_known_kind_with_an_operand_on_another_device_is_not_computed(made: installed.Installed) -> None:
    a, b = operands()
    bias = torch.randn(N).to(BF16)
    assert both(made, lambda: torch.addmm(bias, a, b))[1] == 1
    before = made.launched
    for call in (lambda: torch.addmm(bias.to("meta"), a, b), lambda: torch.mm(a, b.to("meta"))):
        ours = said(call)
        with made.off():
            assert said(call)[:-1] == ours[:-1]
    assert made.launched == before


def test_transformations_see_no_difference(made: installed.Installed) -> None:
    a, b = operands()
    batch = torch.randn(5, M, K).to(BF16)
    for call in (
        lambda: torch.vmap(torch.mm, in_dims=(0, None))(batch, b),
        lambda: torch.func.grad(lambda x: torch.mm(x, b).float().sum())(a),
        lambda: torch.func.jvp(lambda x: torch.mm(x, b), (a,), (a,))[1],
        lambda: torch.func.vjp(lambda x: torch.mm(x, b), a)[0],
        lambda: torch.func.functional_call(torch.nn.Linear(K, N, dtype=BF16), {"weight": b.t(), "bias": b[0]}, (a,)),
    ):
        both(made, call)


def test_fake_and_meta_tensors_are_not_computed(made: installed.Installed) -> None:
    def fake() -> Tensor:
        with FakeTensorMode():
            return torch.empty(M, K, dtype=BF16) @ torch.empty(K, N, dtype=BF16)

    before = made.launched
    found = fake()
    assert (tuple(found.shape), found.dtype) == ((M, N), BF16)
    assert torch.mm(torch.empty(M, K, device="meta"), torch.empty(K, N, device="meta")).device.type == "meta"
    assert made.launched == before


def test_subclasses_and_their_functions_are_called_as_often(made: installed.Installed) -> None:
    called: list[str] = []

    class Logged(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
            called.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    a, b = operands()
    logged = a.as_subclass(Logged)
    said_of = []
    for within in (True, False):
        called.clear()
        made.enabled = within
        found = torch.mm(logged, b)
        said_of.append((type(found).__name__, list(called)))
    made.enabled = True
    assert said_of[0] == said_of[1]
    assert both(made, lambda: torch.mm(torch.nn.Parameter(a), b))[1] == 1


def test_copies_of_modules_and_dynamic_shapes(made: installed.Installed) -> None:
    layer = torch.nn.Linear(K, N, dtype=BF16)
    a = torch.randn(M, K).to(BF16)
    with torch.no_grad():
        assert both(made, lambda: copy.deepcopy(layer)(a))[1] == 1
        compiled = torch.compile(layer, backend="aot_eager", dynamic=True)
        for rows in (M, M + 1, 2 * M, 1):
            both(made, lambda rows=rows: compiled(torch.ones(rows, K, dtype=BF16)))  # type: ignore[misc]
