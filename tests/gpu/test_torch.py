"""`gemmtune.torch` on a real GPU: right results, streams, graphs, compilation, refusals. Needs PyTorch beside a GPU."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tuner.studying.open_worker import driver_present

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import Refused, configure, gemm, kernels, private, proofs  # noqa: E402
from gemmtune.torch.composed import composed  # noqa: E402
from gemmtune.torch.sources import Found  # noqa: E402
from space.config import Config  # noqa: E402
from space.explain import explain, is_legal  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.gpu.torch_products import BF16, Exactly, launched, listed, random, right  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]

WGMMA, GEMV = family_named("sm90_wgmma"), family_named("gemv")


@dataclass
class Given:
    """Answers with one family's legal config nearest to the planted one."""

    family: str
    knobs: dict[str, object]

    def find(self, problem: Gemm, device: str) -> Found:
        family = family_named(self.family)
        config: Config | None = family.config({"rows": problem.m, **self.knobs} if family is GEMV else self.knobs)
        if config is not None and not is_legal(family, problem, config):
            config = explain(family, problem, config).nearest
        return Found(config, "planted")


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    configure()


CASES: list[tuple[str, dict[str, object], Callable[[], tuple[torch.Tensor, torch.Tensor]]]] = [
    ("sm90_wgmma", {}, lambda: (random(512, 256), random(768, 256).t())),
    ("sm90_wgmma", {}, lambda: (random(512, 256), random(256, 768))),
    ("sm90_wgmma", {}, lambda: (random(256, 512).t(), random(768, 256).t())),
    ("sm90_wgmma", {}, lambda: (random(3, 128, 256), random(3, 192, 256).mT)),
    # Packed: rows of 514 bytes.
    ("sm90_wgmma", {}, lambda: (random(130, 257), random(99, 257).t())),
    ("sm90_wgmma", {"swap_ab": 1, "tile_n": 16, "split_k": 4, "epilogue": "direct"},
     lambda: (random(16, 4096), random(512, 4096).t())),
    ("sm90_wgmma", {"tile_k": 128}, lambda: (random(64, 512, dtype=torch.int8), random(96, 512, dtype=torch.int8).t())),
    ("gemv", {}, lambda: (random(1, 4096), random(1000, 4096).t())),
    ("gemv", {"split_k": 8, "split_warps": 2}, lambda: (random(3, 8192), random(65, 8192).t())),
    ("gemv", {}, lambda: (random(2, 4, 512, dtype=torch.float16)[0], random(96, 512, dtype=torch.float16).t())),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_results_are_right_wherever_the_operands_lie(case: int) -> None:
    family, knobs, operands = CASES[case]
    configure(Given(family, knobs))
    before = len(launched())
    for _ in range(3):
        a, b = operands()
        made = gemm(a, b)
        assert right(made, a, b)
        assert torch.equal(made, gemm(a, b))
        out = torch.empty_like(made)
        assert gemm(a, b, out=out) is out
        assert torch.equal(out, made)
    assert len(launched()) == before + 1
    assert launched()[-1].config.family == family


def test_the_epilogue_is_torchs() -> None:
    configure(Given("sm90_wgmma", {"epilogue": "direct", "tile_n": 64}))
    a, b, bias, source = random(256, 512), random(384, 512).t(), random(384), random(256, 384)
    made = gemm(a, b, bias=bias, source=source, alpha=0.5, beta=2.0, activation="silu")
    assert launched()
    expected = composed(a.float(), b.float(), bias.float(), source.float(), 0.5, 2.0, "silu", torch.float32)
    assert torch.allclose(made.float(), expected, rtol=0.02, atol=0.2)
    # Prepared kernels do not depend on alpha and beta.
    again = gemm(a, b, bias=bias, source=source, alpha=0.25, beta=1.0, activation="silu")
    expected = composed(a.float(), b.float(), bias.float(), source.float(), 0.25, 1.0, "silu", torch.float32)
    assert torch.allclose(again.float(), expected, rtol=0.02, atol=0.2)


@pytest.mark.parametrize("case", [0, 4, 5, 8])
def test_a_captured_call_replays_on_new_data(case: int) -> None:
    family, knobs, operands = CASES[case]
    configure(Given(family, knobs))
    a, b = operands()
    gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = gemm(a, b)
    for seed in range(3):
        a.copy_((torch.randn(a.shape, device="cuda") * (seed + 1)).to(a.dtype))
        graph.replay()
        assert right(made, a, b)


def test_what_is_captured_unprepared_is_computed_by_torch(caplog: pytest.LogCaptureFixture) -> None:
    configure(Given("sm90_wgmma", {}))
    a, b = random(64, 320), random(320, 448)
    torch.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with caplog.at_level(logging.WARNING, "gemmtune.torch"), torch.cuda.graph(graph):
        made = gemm(a, b)
    graph.replay()
    assert right(made, a, b)
    assert "captured" in caplog.text


def test_it_runs_on_the_current_stream_and_two_streams_share_no_counters() -> None:
    family, knobs, operands = CASES[5]
    configure(Given(family, knobs))
    a, b = operands()
    expected = gemm(a, b)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    made: list[torch.Tensor] = []
    for _ in range(50):
        for stream in streams:
            with torch.cuda.stream(stream):
                made.append(gemm(a, b))
    torch.cuda.synchronize()
    assert all(torch.equal(one, expected) for one in made)


def test_threads_may_call_it_at_once() -> None:
    configure(Given("sm90_wgmma", {}))
    pairs = [(random(128, 256) * (i + 1), random(192, 256).t()) for i in range(8)]
    wrong: list[int] = []

    def work(place: int) -> None:
        a, b = pairs[place]
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(100):
                made = gemm(a, b)
            torch.cuda.current_stream().synchronize()
            if not right(made, a, b):
                wrong.append(place)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Inductor's own, whatever they are.
@pytest.mark.filterwarnings("ignore")
def test_it_compiles_and_launches_inside(caplog: pytest.LogCaptureFixture) -> None:
    configure(Given("sm90_wgmma", {}))
    w = random(512, 256)
    compiled = torch.compile(lambda x: gemm(x.relu(), w.t()) + 1, fullgraph=True)
    with torch.no_grad():
        x = random(128, 256)
        assert torch.allclose(compiled(x).float(), gemm(x.relu(), w.t()).float() + 1, rtol=0.02, atol=0.1)
    assert "computed by torch" not in caplog.text


def test_operands_whose_rows_are_apart_run_on_the_same_kernel() -> None:
    fused = random(128, 3, 3 * 256).transpose(0, 1)
    b = random(3, 192, 320)[..., 64:].mT
    # The library may refuse an algorithm for these strides; torch computes then.
    library = [Exactly(config) for config in listed(Gemm.of(128, 192, 256, batch=3))[1]]
    ran = set()
    for source in (Given("sm90_wgmma", {}), *library):
        configure(source)
        for a in (random(3, 128, 256), random(3, 128, 512)[..., :256], fused[..., 256:512]):
            before = len(launched())
            made = gemm(a, b)
            assert right(made, a, b)
            ran |= {one.config.family for one in launched()[before:] if one.strides}
            assert source in library or "sm90_wgmma" in ran
    assert ran == {"sm90_wgmma", "cublaslt"}


def test_misaligned_operands_are_refused_before_the_launch() -> None:
    configure(Given("sm90_wgmma", {}))
    store = random(1, 512 * 256 + 8).view(-1)
    a = store[1 : 1 + 512 * 256].view(512, 256)
    with pytest.raises(Refused, match=r"a starts at .* not a multiple of the 16 bytes"):
        gemm(a, random(768, 256).t())
    b = random(768, 256).t()
    assert right(gemm(a.clone(), b), a, b)
    with pytest.raises(Refused, match="b is on cpu"):
        gemm(a, b.cpu())


def test_an_output_is_refused_after_others_were_written_just_as_before() -> None:
    configure(Given("sm90_wgmma", {}))
    a = random(256, 256)
    b = a.t()
    kept = a.clone()
    for _ in range(2):
        with pytest.raises(Refused, match="out shares memory with a"):
            gemm(a, b, out=a)
        for out in (random(256, 128), random(256, 256).t()):
            with pytest.raises(Refused, match=r"omit out|row by row"):
                gemm(a, b, out=out)
        assert right(gemm(a, b, out=torch.empty_like(a)), a, b)
    assert torch.equal(a, kept)


def test_f32_is_torchs_unless_tf32_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    configure(Given("sm90_wgmma", {"tile_k": 32, "tile_n": 64}))
    a, b = random(128, 256, dtype=torch.float32), random(256, 128, dtype=torch.float32)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert torch.allclose(gemm(a, b).double(), a.double() @ b.double(), rtol=1e-4, atol=1e-3)
        assert "set_float32_matmul_precision" in caplog.text
        torch.set_float32_matmul_precision("high")
        assert right(gemm(a, b), a, b)
        assert launched()[-1].config.family == "sm90_wgmma"
    finally:
        torch.set_float32_matmul_precision(before)


def test_what_is_public_does_what_is_called_past_it() -> None:
    ours, theirs = (make((2, 3), (3, 1), BF16) for make in (private.empty_strided, private.public_empty_strided))
    assert private.empty_strided is not private.public_empty_strided
    assert (ours.shape, ours.stride(), ours.dtype, ours.device) == (
        theirs.shape, theirs.stride(), theirs.dtype, theirs.device
    )  # fmt: skip
    assert private.current_device() == torch.cuda.current_device()
    with torch.cuda.stream(torch.cuda.Stream()):
        assert private.current_stream(0) == private.public_current_stream(0) != 0


def test_what_nobody_measured_is_proved_once_and_then_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    tried = proofs._tried
    monkeypatch.setattr(proofs, "_tried", lambda kernel, problem: asked.append(problem.key) or tried(kernel, problem))  # type: ignore[func-returns-value]
    a, b = random(192, 448), random(576, 448).t()
    for _ in range(2):
        configure(Given("sm90_wgmma", {}))
        assert right(gemm(a, b), a, b)
        assert launched()[-1].shape == (192, 576)
    assert asked == [Gemm.of(192, 576, 448).key]


def test_a_kernel_that_writes_nothing_is_never_launched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from workers.cuda.calls import CallOn

    ran: list[int] = []
    monkeypatch.setattr(CallOn, "__call__", lambda self, *at: ran.append(at[2]))
    configure(Given("sm90_wgmma", {}))
    a, b = random(192, 320), random(704, 320).t()
    for _ in range(3):
        assert right(gemm(a, b), a, b)
    # Only the proof tried.
    assert len(ran) == 1
    assert "135,168 of 135,168 elements are off" in caplog.text


def test_torch_computes_until_a_config_is_proved_in_the_background() -> None:
    configure(Given("sm90_wgmma", {}), verify="background")
    a, b = random(320, 832), random(448, 832).t()
    graph = torch.cuda.CUDAGraph()
    torch.matmul(a, b)
    # The proof allocates and launches while this thread captures.
    assert right(gemm(a, b), a, b)
    with torch.cuda.graph(graph):
        made = [torch.matmul(a, b) for _ in range(200)]
    graph.replay()
    assert all(right(one, a, b) for one in made[::50])
    proofs.BACKGROUND.submit(lambda: None).result()
    assert right(gemm(a, b), a, b)
    assert launched()[-1].shape == (320, 448)
    before = kernels.everything()
    assert right(gemm(a, b), a, b)
    assert kernels.everything() == before


@pytest.mark.parametrize(("source", "rows"), [("nearest", 2048), ("predicted", 1920)])
def test_what_nobody_measured_runs_where_it_is_faster_than_torch(
    caplog: pytest.LogCaptureFixture, source: str, rows: int
) -> None:
    # A tile of 8 columns reads A many times over.
    slow = Given("sm90_wgmma", {"tile_n": 8}).find(Gemm.of(rows, 2048, 2048), "").config
    configure(Exactly(slow, source))
    a, b = random(rows, 2048), random(2048, 2048).t()
    before = len(launched())
    assert right(gemm(a, b), a, b)
    assert len(launched()) == before
    assert "was not measured for it, and takes" in caplog.text
    # It is measured by now, whoever did that.
    configure(Exactly(slow, "recorded"))
    assert right(gemm(a, b), a, b)
    assert launched()[-1].config == slow
    # Rows of 2002 bytes: torch's kernels load single elements.
    fast = Given("sm90_wgmma", {}).find(Gemm.of(1024, 1024, 1001), "").config
    configure(Exactly(fast, source))
    a, b = random(1024, 1001), random(1024, 1001).t()
    assert right(gemm(a, b), a, b)
    assert launched()[-1].config == fast
