"""cuBLASLt's algorithms and torch's own kernels behind `gemmtune.torch.gemm`, on a real GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from tuner.studying.open_worker import driver_present

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import configure, gemm  # noqa: E402
from gemmtune.torch.composed import composed  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.gpu.torch_products import BF16, E4M3, INT8, Exactly, launched, listed, random, right  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    configure()


def nodes_of(call: Callable[[], object]) -> int:
    """Nodes of the graph that a call is captured into."""
    from cuda.bindings import driver as cu

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    *_, count = cu.cuGraphGetNodes(cu.CUgraph(graph.raw_cuda_graph()))
    return int(count)


#: Problems for which the library has several algorithms; the second splits K, the last two are 8-bit.
LIBRARY_CASES: list[tuple[Gemm, Callable[[], tuple[torch.Tensor, torch.Tensor]]]] = [
    (Gemm.of(512, 768, 256), lambda: (random(512, 256), random(768, 256).t())),
    (Gemm.of(64, 64, 16384), lambda: (random(64, 16384), random(64, 16384).t())),
    (Gemm.of(128, 192, 256, layout="nn", batch=3), lambda: (random(3, 128, 256), random(3, 256, 192))),
    (Gemm.of(256, 512, 512, "fp8_e4m3"), lambda: (random(256, 512, dtype=E4M3), random(512, 512, dtype=E4M3).t())),
    (Gemm.of(256, 512, 512, "int8"), lambda: (random(256, 512, dtype=INT8), random(512, 512, dtype=INT8).t())),
]


@pytest.mark.parametrize("case", range(len(LIBRARY_CASES)))
def test_every_algorithm_of_the_library_runs_as_it_was_listed(case: int) -> None:
    problem, operands = LIBRARY_CASES[case]
    matmul, configs = listed(problem)
    assert configs
    a, b = operands()
    for config in configs:
        assert config.number("algorithm") >= 0, "named by its rank: its attributes don't rebuild it"
        configure(Exactly(config))
        made = gemm(a, b)
        assert launched()[-1].config == config
        assert right(made, a, b)
        out = torch.empty_like(made)
        assert gemm(a, b, out=out) is out
        assert torch.equal(out, made)
    # The heuristic's own copies give the same bits as what was rebuilt from their attributes.
    from workers.cuda.families.algorithms import attributes

    lt = matmul._library.lt
    for rank, result in enumerate(matmul._results):
        rebuilt = matmul.algorithm(family_named("cublaslt").config(attributes(lt, result)))
        assert list(rebuilt.result.algorithm) == list(result.algorithm), f"rank {rank} is more than its attributes"


@pytest.mark.parametrize("case", range(len(LIBRARY_CASES)))
def test_the_librarys_algorithm_replays_on_new_data_with_no_node_more_than_torchs(case: int) -> None:
    problem, operands = LIBRARY_CASES[case]
    configure(Exactly(listed(problem)[1][0]))
    a, b = operands()
    out = gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm(a, b, out=out)
    for _ in range(3):
        a.copy_(torch.flip(a.to(torch.float32) * 0.5, (0,)).to(a.dtype))
        graph.replay()
        assert right(out, a, b)
    # A product and, where K is split, its reduction.
    assert nodes_of(lambda: gemm(a, b, out=out)) <= 2


def test_the_librarys_algorithm_has_an_epilogue_and_a_workspace_on_every_stream() -> None:
    problem = Gemm.of(64, 64, 16384, epilogue="alpha+beta+bias+relu")
    a, b, bias, source = random(64, 16384), random(64, 16384).t(), random(64), random(64, 64)
    for config in listed(problem)[1][:4]:
        configure(Exactly(config))
        expected = composed(a.float(), b.float(), bias.float(), source.float(), 0.5, 2.0, "relu", torch.float32)
        made = gemm(a, b, bias=bias, source=source, alpha=0.5, beta=2.0, activation="relu")
        assert launched()[-1].config == config
        assert torch.allclose(made.float(), expected, rtol=0.02, atol=1.0)
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(2)]
        several: list[torch.Tensor] = []
        for _ in range(50):
            for stream in streams:
                with torch.cuda.stream(stream):
                    several.append(gemm(a, b, bias=bias, source=source, alpha=0.5, beta=2.0, activation="relu"))
        torch.cuda.synchronize()
        assert all(torch.allclose(one, made, rtol=0.02, atol=0.5) for one in several)


def test_an_algorithm_of_another_version_is_not_run(caplog: pytest.LogCaptureFixture) -> None:
    from workers.cuda.families.cublaslt import opened

    problem = Gemm.of(384, 256, 320)
    configure(Exactly(listed(problem)[1][0], cublaslt="10"))
    a, b = random(384, 320), random(256, 320).t()
    before = len(launched())
    assert right(gemm(a, b), a, b)
    assert len(launched()) == before
    library, _ = opened(0)
    assert library is not None
    assert f"measured with cuBLASLt 10, and {library.version} is loaded here" in caplog.text


FALLBACKS: list[tuple[Callable[[], tuple[torch.Tensor, torch.Tensor]], torch.dtype, Callable[..., torch.Tensor]]] = [
    (lambda: (random(512, 256), random(768, 256).t()), BF16, torch.matmul),
    (lambda: (random(3, 128, 256), random(3, 192, 256).mT), BF16, torch.matmul),
    (lambda: (random(256, 512, dtype=E4M3), random(512, 512, dtype=E4M3).t()), BF16,
     lambda a, b, out: torch._scaled_mm(a, b, ONE(), ONE(), out_dtype=BF16, use_fast_accum=True, out=out)),
    (lambda: (random(256, 512, dtype=INT8), random(512, 512, dtype=INT8).t()), torch.int32, torch._int_mm),
]  # fmt: skip


@cache
def ONE() -> torch.Tensor:  # noqa: N802
    return torch.ones((), device="cuda")


@pytest.mark.parametrize("case", range(len(FALLBACKS)))
def test_what_torch_computes_is_torchs_product_and_nothing_else(case: int) -> None:
    configure(Exactly(None))
    operands, dtype, library = FALLBACKS[case]
    a, b = operands()
    out, theirs = (torch.empty(*a.shape[:-1], b.shape[-1], dtype=dtype, device="cuda") for _ in range(2))
    assert gemm(a, b, out=out) is out
    library(a, b, out=theirs)
    assert torch.equal(out, theirs)
    assert torch.equal(gemm(a, b), theirs)
    assert nodes_of(lambda: gemm(a, b, out=out)) == nodes_of(lambda: library(a, b, out=theirs))


@pytest.mark.parametrize("out_dtype", [BF16, torch.float16, torch.float32, E4M3], ids=str)
def test_8_bit_floats_and_their_epilogues_are_torchs(out_dtype: torch.dtype) -> None:
    configure(Exactly(None))
    a, b = random(48, 256, dtype=E4M3), random(96, 256, dtype=torch.float8_e5m2).t()
    for promoted in (False, True):
        made = gemm(a, b, alpha=0.125, activation="relu", out_dtype=out_dtype, promoted=promoted)
        expected = composed(a, b, None, None, 0.125, 0.0, "relu", torch.float32)
        assert torch.allclose(made.float(), expected, rtol=0.13 if out_dtype is E4M3 else 0.02, atol=0.05)
        assert right(gemm(a, b, out_dtype=torch.float32, promoted=promoted), a, b)
        # One row, whose strides say nothing.
        assert right(gemm(a[:1], b, promoted=promoted), a[:1], b)
