"""`gemmtune.torch` on CPU tensors: registration, shapes, compilation of the fallback, and every refusal.

`make test-torch` runs it with the CPU build of PyTorch; a GPU runs `tests/gpu/test_torch.py`.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import Refused, configure, gemm, op, sources  # noqa: E402
from gemmtune.torch.operands import apart, overlapping, problem_of, separate, strides_of  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.support import DEVICE, keep_best  # noqa: E402
from tuner.errors import TableError  # noqa: E402
from tuner.evidence.store import Store  # noqa: E402
from tuner.tables.tables import TableBests, read_table, table, table_bytes  # noqa: E402
from workers.cuda.copies import Strides  # noqa: E402

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8]


def random(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    if dtype in (torch.int8, torch.uint8):
        return (made * 40).clamp(-128 if dtype is torch.int8 else 0, 127).to(dtype)
    return made.to(dtype)


def problem(a: torch.Tensor, b: torch.Tensor) -> Gemm:
    return problem_of(a, b, None, None, 1.0, "none", torch.bfloat16, False)


def test_layouts_are_read_off_strides() -> None:
    x, w = random(48, 64), random(32, 64)
    assert problem(x, w.t()).key == "gemm:bf16,bf16,bf16,f32:nt:48x32x64:b1:none"
    assert problem(x, w.t().contiguous()).layout == "nn"
    assert problem(random(64, 48).t(), random(64, 32)).layout == "tn"
    assert problem(random(64, 48).t(), w.t()).layout == "tt"
    assert problem(random(2, 3, 64), w.t()).shape == "6x32x64"
    batched = problem(random(5, 48, 64), random(5, 32, 64).mT)
    assert (batched.shape, batched.batch, batched.layout) == ("48x32x64", 5, "nt")
    # Rows or columns that lie a multiple of 16 bytes apart.
    assert problem(random(48, 200)[:, 8:72], random(32, 72)[:, :64].t()).key == problem(x, w.t()).key
    assert problem(random(64, 56)[:, :48].t(), random(64, 40)[:, :32]).layout == "tn"
    assert problem(random(5, 48, 192)[..., 64:128], random(5, 32, 64).mT).key == batched.key
    assert problem(random(48, 5, 64).transpose(0, 1), random(5, 32, 64).mT).key == batched.key
    # A single row or column has both layouts.
    assert problem(random(64, 1).t(), w.t()).layout == problem(random(1, 64), w.t()).layout == "nt"


def test_extents_beyond_32_bits_are_refused() -> None:
    a, b = torch.empty(2**31, 8, dtype=BF16, device="meta"), torch.empty(8, 8, dtype=BF16, device="meta")
    with pytest.raises(Refused, match="m = 2147483648 is not a GEMM extent"):
        problem(a, b)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_multiplied_and_its_output_is_as_wide_as_documented(dtype: torch.dtype) -> None:
    a, b = random(3, 64, dtype=dtype), random(64, 16, dtype=dtype)
    made = gemm(a, b)
    expected = a.double() @ b.double()
    wide = {torch.int8: torch.int32, torch.uint8: torch.int32, torch.float8_e4m3fn: BF16, torch.float8_e5m2: BF16}
    assert made.dtype == wide.get(dtype, dtype)
    assert torch.allclose(made.double(), expected, rtol=0.02, atol=0.1)


@pytest.mark.parametrize("promoted", [False, True])
@pytest.mark.parametrize("rowwise", [False, True])
def test_8_bit_floats_take_scales_of_operands_or_of_rows_and_columns(rowwise: bool, promoted: bool) -> None:
    a, b = random(2, 3, 64, dtype=E4M3), random(64, 16, dtype=E4M3)
    scale_a, scale_b = (torch.rand(2, 3, 1), torch.rand(1, 16)) if rowwise else (torch.tensor(0.5), torch.tensor([3.0]))
    bias = random(16)
    expected = (a.double() @ b.double()) * scale_a * scale_b
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    made = gemm(a, b, promoted=promoted, **scales)
    assert made.dtype == BF16
    assert torch.allclose(made.double(), expected, rtol=0.02, atol=0.1)
    out = torch.empty(2, 3, 16)
    assert gemm(a, b, bias=bias.float(), activation="relu", promoted=promoted, out=out, **scales) is out
    assert torch.allclose(out.double(), (expected + bias.double()).relu(), rtol=1e-4, atol=1e-4)
    compiled = torch.compile(lambda x: gemm(x, b, promoted=promoted, **scales) * 2, backend="aot_eager")
    assert torch.equal(compiled(a), made * 2)
    scale_a.requires_grad_()
    gemm(a, b, out_dtype=torch.float32, **scales).sum().backward()
    assert scale_a.grad is not None


def test_scales_that_no_kernel_reads_are_refused() -> None:
    a, b, one = random(3, 64, dtype=E4M3), random(64, 16, dtype=E4M3), torch.ones(1)
    for options, message in (
        ({"scale_a": one}, "scale_b is missing"), ({"scale_b": one}, "scale_a is missing"),
        ({"scale_a": one, "scale_b": one.double()}, "scale_b is .* give dense torch.float32"),
        ({"scale_a": torch.ones(3, 2)[:, :1], "scale_b": torch.ones(16)}, "scale_a is .* give dense"),
        ({"scale_a": torch.ones(3), "scale_b": one}, "3 for a's rows and 16 for b's columns"),
        ({"scale_a": one, "scale_b": one, "alpha": 2.0}, "replace alpha and source"),
        ({"scale_a": one, "scale_b": one, "source": random(3, 16)}, "replace alpha and source"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=message):
            gemm(a, b, **options)  # type: ignore[arg-type]
    for given in ((a.to(BF16), b.to(BF16)), (a.expand(2, 3, 64), b.expand(2, 64, 16))):
        with pytest.raises(Refused, match="scales are for matrices of 8-bit floats"):
            gemm(*given, scale_a=one, scale_b=one)
    out = torch.empty(3, 16)
    with pytest.raises(Refused, match="shares memory with scale_a"):
        gemm(a, b, scale_a=out[0, :1], scale_b=one, out=out)


def test_the_epilogue_is_that_of_the_kernels() -> None:
    a, b, bias, source = random(5, 64), random(64, 16), random(16), random(5, 16)
    made = gemm(a, b, bias=bias, source=source, alpha=0.5, beta=2.0, activation="gelu")
    x = 0.5 * (a.double() @ b.double()) + 2.0 * source.double() + bias.double()
    assert torch.allclose(made.double(), torch.nn.functional.gelu(x), rtol=0.02, atol=0.1)
    saturated = gemm(random(2, 64, dtype=torch.int8), random(64, 4, dtype=torch.int8), out_dtype=torch.int8)
    assert saturated.dtype is torch.int8
    assert saturated.abs().max() >= 127


def test_the_operator_is_registered_right() -> None:
    a, b = random(4, 32), random(32, 8)
    arguments = (a, b, None, None, 1.0, 1.0, "none", None, False)
    torch.library.opcheck(torch.ops.gemmtune.gemm.default, arguments)
    out = torch.empty(4, 8, dtype=BF16)
    torch.library.opcheck(torch.ops.gemmtune.gemm_out.default, (*arguments[:7], False, out))
    scaled = random(16, 32, dtype=E4M3), random(32, 16, dtype=E4M3), None, None, 1.0, 1.0, "none", BF16, False
    # The others of its tests multiply 8-bit floats as if they were wide ones.
    checks = "test_faketensor", "test_autograd_registration"
    torch.library.opcheck(torch.ops.gemmtune.gemm.default, (*scaled, torch.ones(1), torch.ones(1)), test_utils=checks)


def test_fake_tensors_have_the_shape_and_dtype_of_c() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        a, b = torch.empty(2, 3, 64, dtype=torch.float8_e4m3fn), torch.empty(64, 16, dtype=torch.float8_e4m3fn)
        made = gemm(a, b)
        assert (tuple(made.shape), made.dtype) == ((2, 3, 16), BF16)
        with pytest.raises(Refused, match="columns must be b's rows"):
            gemm(a, b.t())


def test_it_compiles_as_one_operator_with_whatever_shape() -> None:
    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return gemm(x, w.t(), activation="relu") * 2

    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., object]:
        graphs.append(graph.code)
        return graph.forward

    compiled = torch.compile(layer, backend=backend, fullgraph=True, dynamic=True)
    w = random(16, 64)
    with torch.no_grad():
        for rows in (3, 7):
            assert torch.equal(compiled(random(rows, 64), w), layer(random(rows, 64), w))
    assert len(graphs) == 1
    assert "gemmtune.gemm.default" in graphs[0]


def test_what_is_empty_is_computed_as_torch_computes_it() -> None:
    for m, n, k in ((0, 8, 32), (4, 0, 32), (4, 8, 0)):
        a, b = random(m, k), random(k, n)
        out = torch.full((m, n), 7.0, dtype=BF16)
        assert torch.equal(gemm(a, b), a @ b)
        assert gemm(a, b, out=out) is out
        assert torch.equal(out, a @ b)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_function_transforms_and_forward_mode_lose_nothing() -> None:
    a, b, tangent = random(4, 32), random(32, 8), random(4, 32)
    _, found = torch.func.jvp(lambda x: gemm(x, b), (a,), (tangent,))
    assert torch.allclose(found.float(), (tangent @ b).float(), atol=0.1)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, tangent)
        assert torch.autograd.forward_ad.unpack_dual(gemm(dual, b)).tangent is not None
    many = random(3, 4, 32)
    assert torch.allclose(torch.func.vmap(lambda x: gemm(x, b))(many).float(), (many @ b).float(), atol=0.1)
    with pytest.raises(Refused, match="outside function transforms"):
        torch.func.vmap(lambda x: gemm(x, b, out=torch.empty(4, 8, dtype=BF16)))(many)


def test_an_output_that_autograd_saved_may_not_be_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, out = random(4, 32), random(32, 8), torch.empty(4, 8, dtype=BF16)
    stand_in = SimpleNamespace(launch=lambda *_: out.fill_(1.0), writes=lambda _: True, strides={})
    monkeypatch.setattr(op, "prepared", lambda _: stand_in)
    before = out._version
    with torch.inference_mode(mode=False), torch.no_grad():
        gemm(a, b, out=out)
    assert out._version > before + 1  # fill_ raises it once


def test_gradients_are_torchs_own() -> None:
    a, b = random(3, 8, dtype=torch.float32).requires_grad_(), random(8, 4, dtype=torch.float32)
    gemm(a, b, bias=torch.zeros(4)).sum().backward()
    assert torch.allclose(a.grad, b.sum(1).expand(3, 8))
    with pytest.raises(Refused, match="no gradient"):
        gemm(a, b, out=torch.empty(3, 4))
    with pytest.raises(Refused, match="no gradient"):
        gemm(a.detach(), b, bias=torch.zeros(4), out=torch.empty(3, 4).requires_grad_() * 2)


def test_one_line_says_that_torch_computes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gemmtune.torch"):
        for _ in range(3):
            gemm(random(9, 72), random(72, 24))
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["bf16 nn 9x24x72 is computed by torch: its operands are on cpu"]


def tensors(**changed: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"a": random(4, 32), "b": random(32, 8)} | changed


SHARED = random(4, 64)
REFUSALS: list[tuple[dict[str, object], str]] = [
    (tensors(a=random(32)), "a vector is one row"),
    (tensors(a=random(4, 33)), "a's columns must be b's rows"),
    (tensors(a=random(2, 4, 32), b=random(3, 32, 8)), "batches are not broadcast"),
    (tensors(a=random(4, 65)[:, :32]), r"a is \(4, 32\) with strides \(65, 1\).*a.contiguous"),
    (tensors(a=random(4, 64)[:, ::2]), r"strides \(64, 2\)"),
    (tensors(b=random(8, 36)[:, :32].t()), r"b is \(32, 8\) with strides \(1, 36\)"),
    (tensors(a=random(3, 4, 65)[..., :32]), "multiples of 16 bytes apart"),
    (tensors(a=random(4, 32).double()), "a is torch.float64: kernels multiply"),
    (tensors(b=random(32, 8).half()), "dtype_b beside bf16"),
    (tensors(b=torch.empty(32, 8, dtype=BF16, device="meta")), "b is on meta, a on cpu"),
    (tensors(bias=random(9)), r"bias is \(9,\)"),
    (tensors(bias=random(8).float()), "it must be"),
    (tensors(bias=random(16)[::2]), r"it must be .* contiguous"),
    (tensors(source=random(4, 9)), "must be like C"),
    (tensors(source=random(8, 4).t()), "contiguous"),
    ({**tensors(), "activation": "tanh"}, "activation 'tanh' is unknown"),
    ({**tensors(), "out_dtype": torch.float64}, "C can.t have out_dtype"),
    ({**tensors(), "promoted": True}, "promoted=True is for 8-bit floats"),
    ({**tensors(), "out": random(4, 9)}, "omit out"),
    ({**tensors(), "out": random(8, 4).t()}, "row by row"),
    ({**tensors(), "out": random(4, 8).float(), "out_dtype": BF16}, "omit out_dtype"),
    ({**tensors(), "out": torch.empty(4, 8, dtype=BF16, device="meta")}, "out is .* on meta"),
    ({"a": SHARED.view(-1)[:128].view(4, 32), "b": random(32, 8), "out": SHARED.view(-1)[100:132].view(4, 8)},
     "out shares memory with a"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), REFUSALS, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_operands_are_refused_with_the_reason(given: dict[str, object], said: str) -> None:
    operands = dict(given)
    with pytest.raises(Refused, match=said):
        gemm(operands.pop("a"), operands.pop("b"), **operands)


def test_memory_is_apart_exactly_where_nothing_overlaps() -> None:
    store = random(1, 96).view(-1)
    other = store[32:64]
    seen = set()
    for begin in range(65):
        out = store[begin : begin + 32]
        said = apart(out.view(4, 8), None, other.view(8, 4).t(), random(3))
        assert said == (not overlapping(out, [("other", other)])) == (begin in (0, 64))
        seen.add(said)
    assert seen == {False, True}


def test_how_lines_lie_is_read_off_strides() -> None:
    wide, w = random(5, 48, 192), random(32, 64).t()
    assert strides_of(random(48, 64), w) == {}
    assert strides_of(wide[0, :, 64:128], w) == {"a": Strides(192, 48 * 192)}
    assert strides_of(wide[..., 64:128], w) == {"a": Strides(192, 5 * 48 * 192)}
    batched = strides_of(wide[..., 64:128], random(32, 5, 64).permute(1, 2, 0))
    assert batched == {"a": Strides(192, 48 * 192), "b": Strides(5 * 64, 64)}
    # One row of each product: only where the products begin counts.
    assert strides_of(random(5, 1, 192)[..., :64], random(5, 32, 64).mT) == {"a": Strides(192, 192)}
    for a in (random(1, 64).expand(48, 64), random(1, 48, 64).expand(5, 48, 64), random(48, 128)[:, ::2]):
        with pytest.raises(Refused, match="a is "):
            strides_of(a, w if a.dim() == 2 else random(5, 32, 64).mT)


def test_an_output_in_the_gaps_of_an_operand_is_not_separate() -> None:
    store = random(1, 48 * 192).view(-1)
    a, out = store.view(48, 192)[:, :64], store[47 * 192 : 47 * 192 + 32].view(1, 32)
    assert apart(out, a)
    assert not separate(out, {"a": Strides(192, 48 * 192)}, a, random(64, 32))
    assert separate(random(1, 32), {"a": Strides(192, 48 * 192)}, a, random(64, 32), None)


def test_configs_come_from_a_store_or_from_its_table(tmp_path: Path) -> None:
    asked = Gemm.parse("256x256x256")
    with Store.open(f"sqlite:///{tmp_path / 'kept.db'}") as store:
        best = keep_best(store)
        (tmp_path / "table.json").write_bytes(table_bytes(table(store, DEVICE)))
    for named in (tmp_path / "kept.db", tmp_path / "table.json"):
        configure(named)
        assert sources.chosen().find(asked, DEVICE).config == best.config
        found = sources.chosen().find(asked, DEVICE)
        assert found.why.startswith("measured")
        assert (found.source, found.cublaslt) == ("measured", best.winner.provenance.cublaslt)
        assert sources.chosen().find(Gemm.parse("512x256x256"), DEVICE).source in ("nearest", "predicted")
        configure(named, trusted=["predicted"])
        assert "is measured, not predicted" in sources.chosen().find(asked, DEVICE).why
    near = TableBests(read_table(tmp_path / "table.json")).neighbours(Gemm.parse("512x256x256"), DEVICE)
    assert [found.problem for found in near] == [best.problem]
    damaged = json.loads((tmp_path / "table.json").read_bytes())
    damaged["entries"][0]["median_us"] = 1.0
    (tmp_path / "table.json").write_text(json.dumps(damaged))
    configure(tmp_path / "table.json")
    with pytest.raises(TableError, match="does not match its hash"):
        sources.chosen()
    configure()


def test_what_a_service_says_is_checked_like_everything_over_a_wire() -> None:
    import httpx2

    from gemmtune import Client

    config = family_named("gemv").config({})

    def reply(request: httpx2.Request) -> httpx2.Response:
        document = {"source": "measured", "config": said, "time_us": 5.0, "tflops": 1.0, "why": "because",
                    "evidence": evidence}  # fmt: skip
        return httpx2.Response(200, json=document)

    service = sources.Service(Client("http://somewhere", transport=httpx2.MockTransport(reply)))
    said: dict[str, object] = {"family": "gemv", "knobs": config.knobs}
    evidence: object = {"provenance": {"cublaslt": "130200"}, "build_digest": "b" * 64}
    assert service.find(Gemm.parse("1x64x64"), DEVICE) == sources.Found(
        config, "measured: because", "measured", "130200", "b" * 64
    )
    for unknown in (None, {}, {"provenance": None}, {"provenance": {"cublaslt": 7}, "build_digest": None}):
        evidence = unknown
        found = service.find(Gemm.parse("1x64x64"), DEVICE)
        assert (found.cublaslt, found.build_digest) == ("", "")
    said = {"family": "gemv", "knobs": {"lanes": 7}}
    assert "lanes = 7" in service.find(Gemm.parse("1x64x64"), DEVICE).why
    said = {"family": "gem", "knobs": {}}
    assert service.find(Gemm.parse("1x64x64"), DEVICE).config is None


def test_what_a_service_could_not_answer_is_for_now() -> None:
    import httpx2

    from gemmtune import Client

    service = sources.Service(Client("http://somewhere", transport=httpx2.MockTransport(lambda request: said)))
    for status, for_now in ((429, True), (503, True), (500, True), (400, False), (401, False), (200, False)):
        for body in ("{\"type\": \"/problems/planted\", \"detail\": \"planted\"}", "<html>"):
            said = httpx2.Response(status, text=body)
            found = service.find(Gemm.parse("1x64x64"), DEVICE)
            assert (found.config, found.for_now) == (None, for_now), (status, body)


def test_a_silent_service_is_waited_for_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx2

    from gemmtune import Client

    now, asked = 100.0, 0

    def silent(request: httpx2.Request) -> httpx2.Response:
        nonlocal now, asked
        now, asked = now + 10, asked + 1
        raise httpx2.ConnectTimeout("planted")

    monkeypatch.setattr(sources, "time", SimpleNamespace(monotonic=lambda: now))
    service = sources.Service(Client("http://somewhere", transport=httpx2.MockTransport(silent)))
    first = service.find(Gemm.parse("1x64x64"), DEVICE)
    assert first.for_now
    assert "does not answer (planted)" in first.why
    now += 89
    assert service.find(Gemm.parse("2x64x64"), DEVICE) == first
    assert asked == 1
    now += 2
    assert service.find(Gemm.parse("2x64x64"), DEVICE) == first
    assert asked == 2


def test_programs_name_a_config_and_a_reason() -> None:
    found = sources.Found(None, "planted")
    assert (found.config, found.why, found.source, found.cublaslt) == (None, "planted", "", "")


def test_without_torch_the_import_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('planted')")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.getcwd()])}
    ran = subprocess.run(
        [sys.executable, "-c", "import gemmtune.torch"], env=environment, capture_output=True, text=True, check=False
    )
    assert "pip install 'gemmtune[torch]'" in ran.stderr
