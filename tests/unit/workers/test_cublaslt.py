"""How a problem is described to cuBLASLt, against a recorder in the library's place."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from space.config import Config
from space.devices import find_profile
from space.errors import ConfigError
from space.explain import explain, is_legal
from space.families.unlisted import expected_order
from space.family import config_named, family_named
from space.kinds.gemm import DTYPES, Gemm
from tests.fake_cublaslt import CLUSTERS, LISTED, PLACES, TILES, Recorder, library_of, numbers_of
from workers.cuda import calls, copies
from workers.cuda.copies import Strides
from workers.cuda.driver import CudaError
from workers.cuda.families import cublaslt
from workers.cuda.families.algorithms import ATTRIBUTES
from workers.cuda.families.shared import Shared

FAMILY = family_named("cublaslt")


def described(problem: Gemm, supported: bool = True, listed: list[dict[str, int]] = LISTED) -> tuple[Recorder, Any]:
    lt = Recorder(supported, listed)
    return lt, cublaslt.Matmul(library_of(lt), problem)


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
def test_row_major_operands_are_the_transposed_product_to_the_library(layout: str) -> None:
    m, n, k = 5, 7, 11
    rng = np.random.default_rng(1)
    a = rng.integers(-9, 9, (k, m) if layout[0] == "t" else (m, k))
    b = rng.integers(-9, 9, (n, k) if layout[1] == "t" else (k, n))
    lt, _ = described(Gemm.of(m, n, k, layout=layout))
    (_, *first), (_, *second), (_, *output), _ = lt.layouts

    def as_library(x: np.ndarray, rows: int, columns: int, ld: int) -> np.ndarray:
        assert ld == rows
        return x.ravel().reshape(columns, rows).T

    left, right = as_library(b, *first), as_library(a, *second)
    left = left.T if lt.attributes["TRANSA"] else left
    right = right.T if lt.attributes["TRANSB"] else right
    c = (a.T if layout[0] == "t" else a) @ (b.T if layout[1] == "t" else b)
    assert (left @ right == as_library(c, *output)).all()


def test_a_batch_is_strided_over_dense_products() -> None:
    lt, _ = described(Gemm.of(5, 7, 11, batch=4))
    assert [lt.attributes[f"BATCH_COUNT {place}"] for place in (1, 2, 3, 4)] == [4] * 4
    assert [lt.attributes[f"STRIDED_BATCH_OFFSET {place}"] for place in (1, 2, 3)] == [77, 55, 35]


def test_operands_whose_lines_are_apart_have_their_own_leading_dimension_and_offset() -> None:
    lt = Recorder()
    cublaslt.Matmul(library_of(lt), Gemm.of(5, 7, 11, batch=4), {"a": Strides(16, 3), "b": Strides(24, 200)})
    assert [ld for *_, ld in lt.layouts] == [24, 16, 7, 7]
    assert [lt.attributes[f"STRIDED_BATCH_OFFSET {place}"] for place in (1, 2, 3)] == [200, 3, 35]


def test_fast_accumulation_is_the_numerics_of_the_problem() -> None:
    for word, fast in (("fp8_e4m3", 1), ("fp8_e4m3_promoted", 0)):
        assert described(Gemm.of(16, 16, 16, word))[0].attributes["FAST_ACCUM"] == fast
    assert "FAST_ACCUM" not in described(Gemm.of(16, 16, 16))[0].attributes


@pytest.mark.parametrize(
    ("dtype", "compute", "scale"),
    [("bf16", 68, 0), ("fp16", 68, 0), ("tf32", 77, 0), ("fp8_e5m2", 68, 0), ("int8", 72, 10),
     ("fp16_acc16", 64, 2)],
)
def test_sums_are_of_the_accumulators_type(dtype: str, compute: int, scale: int) -> None:
    lt, _ = described(Gemm.of(16, 16, 16, dtype))
    assert (lt.attributes["compute"], lt.attributes["scale"]) == (compute, scale)


def test_alpha_is_f16_beside_f16_sums() -> None:
    _, matmul = described(Gemm.of(16, 16, 16, "fp16_acc16", epilogue="alpha"))
    assert matmul.scalar(1.5).value == int(np.float16(1.5).view(np.uint16))


def launcher(monkeypatch: pytest.MonkeyPatch, problem: Gemm, config: Config, lt: Recorder) -> cublaslt.LibraryLauncher:
    monkeypatch.setattr(cublaslt, "opened", lambda: (library_of(lt), ""))
    return cublaslt.LibraryLauncher(problem, config, b"", None, Shared())  # type: ignore[arg-type]


def test_fused_parts_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lt, problem = Recorder(), Gemm.of(16, 16, 16, epilogue="alpha+beta+bias+gelu")
    ready = launcher(monkeypatch, problem, FAMILY.config({"rank": 1}), lt)
    assert lt.attributes["EPILOGUE"] == 36
    ready.launch(SimpleNamespace(handle=3), copies.Copy(a=1, b=2, c=3, source=4, bias=5, alpha=0.5, beta=1.25))  # type: ignore[arg-type]
    (call,) = lt.calls
    assert (call[3], call[5], call[8], call[10], call[15]) == (2, 1, 4, 3, 3)
    assert numbers_of(call[12])["ID"] == 39
    assert (call[13], call[14]) == (512, 4096)
    assert lt.attributes["BIAS_POINTER"] == 5
    assert lt.scalars == [(0.5, 1.25)]


def test_candidates_are_what_rebuilds_the_heuristics_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    lt, problem = Recorder(), Gemm.of(16, 32, 64)
    monkeypatch.setattr(cublaslt, "opened", lambda: (library_of(lt), ""))
    first, second = cublaslt.LibraryLauncher.candidates(problem, Shared())
    assert first.knobs == {
        "rank": 0, "algorithm": 66, "tile": 20, "stages": 35, "split_k": 1, "reduction": 0, "swizzle": 0, "custom": 0,
        "inner_shape": 0, "cluster": 3, "workspace_bytes": 0,
    }  # fmt: skip
    assert (second["split_k"], second["custom"], second["workspace_bytes"]) == (-1, 2**32 - 1, 4096)
    for config, wanted in ((first, LISTED[0]), (second, LISTED[1])):
        assert config_named(config.key) == config
        assert is_legal(FAMILY, problem, config)
        # Another library gives other ranks, or none.
        other = Recorder(supported=False)
        ready = launcher(monkeypatch, problem, config, other)
        ready.launch(SimpleNamespace(handle=0), copies.Copy(1, 2, 3))  # type: ignore[arg-type]
        (call,) = other.calls
        assert numbers_of(call[12]) == dict.fromkeys(PLACES, 0) | wanted
        # bf16 sums in f32, of bf16 operands into bf16.
        assert set(other.initialized) == {(68, 0, 14, 14, 14, 14)}
        assert "not in the heuristic's list" in ready.note


def test_kernels_for_hopper_that_are_not_listed_are_named_if_the_library_accepts_them() -> None:
    problem, device = Gemm.of(256, 3072, 4096), find_profile("NVIDIA H200")
    assert device
    _, matmul = described(problem)
    found = list(islice(matmul.unlisted(device), 50))
    assert len(set(found)) == 50
    assert not set(found) & set(matmul.listed)
    # As the first that is listed: it is of the same kernels. The recorder has no tile 13, which is 64x64.
    assert {(one["algorithm"], one["stages"], one["swizzle"]) for one in found} == {(66, 35, 0)}
    assert 13 not in {one["tile"] for one in found}
    expected = [one for one in expected_order(problem, device, TILES, CLUSTERS) if one["tile"] != 13]
    places = [expected.index({name: one[name] for name in expected[0]}) for one in found]
    assert places == sorted(places)
    # What is listed may have been left out.
    assert places[-1] <= 50


def test_where_the_library_lists_no_kernel_for_hopper_no_other_one_is_named() -> None:
    device = find_profile("NVIDIA H200")
    assert device
    assert [*described(Gemm.of(256, 3072, 4096), listed=LISTED[1:2])[1].unlisted(device)] == []
    assert [*described(Gemm.of(256, 3072, 4096), supported=False)[1].unlisted(device)] == []


def test_a_note_names_the_algorithm_and_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    lt, problem = Recorder(), Gemm.of(16, 32, 64)
    _, matmul = described(problem)
    for config in (matmul.listed[1], FAMILY.config({"rank": 1})):
        note = launcher(monkeypatch, problem, config, lt).note
        assert note == "algorithm 39, tile 15x64, stages 35x64, cluster 5x2x1, split-K -1, rank 1"


def test_what_cannot_be_rebuilt_is_named_by_its_rank() -> None:
    listed = [{"ID": 66, "TILE_ID": 13}, {"ID": 7}, {"ID": 39}]
    _, matmul = described(Gemm.of(16, 16, 16), listed=listed)
    assert [(config["algorithm"], config["rank"]) for config in matmul.listed] == [(-1, 0), (-1, 1), (39, 0)]


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"rank": 3}, "no rank 3"),
        ({"algorithm": 5}, "algorithm 5 .no algorithm 5"),
        ({"algorithm": 66, "tile": 13}, "no such tile"),
        ({"algorithm": 66, "inner_shape": 2}, "no inner shape"),
        ({"algorithm": 7}, "1,073,741,824 B of workspace"),
    ],
)
def test_an_algorithm_that_this_library_refuses_is_refused(
    monkeypatch: pytest.MonkeyPatch, knobs: dict[str, int], reason: str
) -> None:
    with pytest.raises(CudaError, match=reason) as refused:
        launcher(monkeypatch, Gemm.of(16, 16, 16), FAMILY.config(knobs), Recorder())
    assert not refused.value.sticky


def test_a_config_of_old_is_a_rank_and_every_attribute_has_a_knob() -> None:
    old = config_named("cublaslt:rank=3")
    assert (old["rank"], old["algorithm"]) == (3, -1)
    assert {*ATTRIBUTES, "rank", "workspace_bytes"} == {*FAMILY.knob_named}
    assert explain(FAMILY, Gemm.of(64, 64, 64), old).legal
    assert FAMILY.config_at(FAMILY.columns(Gemm.of(64, 64, 64), [old]), 0) == old
    for value in (-1, 2**32, "03", "x", True, 1.0):
        with pytest.raises(ConfigError, match=r"outside its domain: use one of 0, 1, 2, 3 … 4294967295"):
            FAMILY.config({"tile": value})


def test_a_call_runs_the_algorithm_on_any_stream_with_a_workspace_of_the_callers() -> None:
    lt, problem = Recorder(), Gemm.of(16, 16, 16, epilogue="alpha+beta+bias")
    call = calls.LibraryCall(problem, described(problem)[1].listed[1], library_of(lt))
    assert call.scratch == {"workspace": calls.Scratch(4096, zeroed=False)}
    # The library takes our B as its A.
    assert call.alignment_bytes == {"a": 8, "b": 16, "source": 16, "c": 2, "bias": 16}
    ready, other = call.on(SimpleNamespace(handle=3)), call.on(SimpleNamespace(handle=4))  # type: ignore[arg-type]
    ready.bring({"workspace": 8192})
    ready(1, 2, 3, 4, 5, 0.5, 2.0)
    lt.attributes["BIAS_POINTER"] = 0
    ready(1, 2, 6, 4, 5, 0.25, 2.0)
    assert lt.attributes["BIAS_POINTER"] == 0, "set again though unchanged"
    other(1, 2, 3, 4, 7, 1.0, 1.0)
    assert lt.attributes["BIAS_POINTER"] == 7
    assert [(one[3], one[5], one[8], one[10], one[13], one[14], one[15]) for one in lt.calls] == [
        (2, 1, 4, 3, 8192, 4096, 3), (2, 1, 4, 6, 8192, 4096, 3), (2, 1, 4, 3, 0, 4096, 4),
    ]  # fmt: skip
    assert lt.scalars == [(0.5, 2.0), (0.25, 2.0), (1.0, 1.0)]


def test_descriptions_of_a_call_are_freed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    monkeypatch.setattr(Recorder, "matmul_desc_destroy", lambda _, each: freed.append(each))
    monkeypatch.setattr(Recorder, "matrix_layout_destroy", lambda _, each: freed.append(each))
    call = calls.LibraryCall(Gemm.of(16, 16, 16), FAMILY.config({"rank": 0}), library_of(Recorder()))
    assert len(freed) == 5
    freed.clear()
    ready = call.on(SimpleNamespace(handle=3))  # type: ignore[arg-type]
    ready(1, 2, 3, 0, 0, 1.0, 0.0)
    assert freed == []
    del ready
    assert len(freed) == 5


def test_descriptions_of_a_refused_product_are_freed() -> None:
    class Refusing(Recorder):
        """Refuses the second matrix of a batch."""

        freed = 0

        def matrix_layout_set_attribute(self, layout: int, attribute: str, address: int, size: int) -> None:
            if layout == 2:
                raise self.cuBLASLtError("no such batch")

        def matrix_layout_destroy(self, _: int) -> None:
            self.freed += 1

        matmul_desc_destroy = matrix_layout_destroy

    lt = Refusing()
    with pytest.raises(CudaError, match="no such batch"):
        cublaslt.Matmul(library_of(lt), Gemm.of(16, 16, 16, batch=2))
    assert (len(lt.layouts), lt.freed) == (2, 3), "two layouts, and the product itself"


@pytest.mark.parametrize("refused", ["", "matmul_preference_set_attribute", "matmul_algo_get_heuristic"])
def test_a_preference_is_freed_whatever_the_library_refuses(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    lt, held = Recorder(), list[int]()

    def refuse(*_: int) -> None:
        raise lt.cuBLASLtError("planted")

    monkeypatch.setattr(lt, "matmul_preference_create", lambda: held.append(9) or 9)
    monkeypatch.setattr(lt, "matmul_preference_destroy", held.remove)
    if refused:
        monkeypatch.setattr(lt, refused, refuse)
    matmul = cublaslt.Matmul(library_of(lt), Gemm.of(16, 16, 16))
    with pytest.raises(lt.cuBLASLtError) if "set" in refused else nullcontext():
        assert (len(matmul.listed) == 0) == bool(refused)
    assert held == []


def test_a_product_that_this_version_cannot_be_told_of_has_no_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older(Recorder):
        """Knows no scales of rows and columns, as before 12.9."""

        def matmul_desc_set_attribute(self, _: int, attribute: str, address: int, size: int) -> None:
            if attribute == "A_SCALE_MODE":
                raise self.cuBLASLtError("no such attribute")

    monkeypatch.setattr(cublaslt, "opened", lambda: (library_of(Older()), ""))
    problem, shared = Gemm.of(16, 16, 16, "fp8_e4m3", epilogue="scaled_rowwise"), Shared()
    assert cublaslt.LibraryLauncher.candidates(problem, shared) == ()
    device = find_profile("NVIDIA H200")
    assert device is not None
    assert list(cublaslt.LibraryLauncher.unlisted(problem, shared, device)) == []
    with pytest.raises(CudaError, match="takes no such product"):
        cublaslt.LibraryLauncher(problem, FAMILY.config({}), b"", device, shared)


def test_scales_of_a_call_are_read_on_the_device() -> None:
    lt, problem = Recorder(), Gemm.of(16, 16, 16, "fp8_e4m3", epilogue="alpha")
    ready = calls.LibraryCall(problem, FAMILY.config({"rank": 0}), library_of(lt)).on(SimpleNamespace(handle=3))  # type: ignore[arg-type]
    ready.scale(4096, 8192)
    # The library takes our B as its A.
    assert (lt.attributes["A_SCALE_POINTER"], lt.attributes["B_SCALE_POINTER"]) == (8192, 4096)
    lt.attributes["A_SCALE_POINTER"] = 0
    ready.scale(4096, 8192)
    assert lt.attributes["A_SCALE_POINTER"] == 0, "set again though unchanged"
    ready.scale(4096, 512)
    assert lt.attributes["A_SCALE_POINTER"] == 512


def test_scales_of_rows_and_columns_are_outer_vectors() -> None:
    for epilogue, modes in (("scaled", [None, None]), ("scaled_rowwise", [3, 3])):
        lt, _ = described(Gemm.of(16, 16, 16, "fp8_e4m3", epilogue=epilogue))
        assert [lt.attributes.get(name) for name in ("A_SCALE_MODE", "B_SCALE_MODE")] == modes
        # The heuristic is told that there are scales.
        assert lt.attributes["A_SCALE_POINTER"] == lt.attributes["B_SCALE_POINTER"] > 0


def test_measured_launches_read_the_scales_of_their_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    lt, problem = Recorder(), Gemm.of(16, 16, 16, "fp8_e4m3", epilogue="scaled_rowwise")
    ready = launcher(monkeypatch, problem, FAMILY.config({"rank": 0}), lt)
    ready.launch(SimpleNamespace(handle=3), copies.Copy(1, 2, 3, 0, 0, 1.0, 0.0, 4096, 8192))  # type: ignore[arg-type]
    assert (lt.attributes["A_SCALE_POINTER"], lt.attributes["B_SCALE_POINTER"]) == (8192, 4096)


def test_a_call_without_a_source_adds_nothing_of_c() -> None:
    for dtype in ("bf16", "int8"):
        lt, problem = Recorder(), Gemm.of(16, 16, 16, dtype)
        call = calls.LibraryCall(problem, FAMILY.config({"rank": 0}), library_of(lt))
        assert call.scratch == {}
        call.on(SimpleNamespace(handle=0))(1, 2, 3, 0, 0, 1.0, 1.0)  # type: ignore[arg-type]
        assert lt.scalars == [(1, 0)]


def test_factors_of_a_call_are_of_the_accumulators_type() -> None:
    lt, problem = Recorder(), Gemm.of(16, 16, 16, "fp16_acc16", epilogue="alpha+beta")
    ready = calls.LibraryCall(problem, FAMILY.config({"rank": 0}), library_of(lt)).on(SimpleNamespace(handle=0))  # type: ignore[arg-type]
    for source, alpha, beta in ((0, 1.0, 1.0), (4, 0.5, 2.0), (4, 0.5, 2.0), (0, 0.5, 2.0)):
        ready(1, 2, 3, source, 0, alpha, beta)
    assert lt.scalars == [(1.0, 0.0), (0.5, 2.0), (0.5, 2.0), (0.5, 0.0)]


def test_a_config_is_run_by_the_version_that_measured_it(monkeypatch: pytest.MonkeyPatch) -> None:
    library, config = library_of(Recorder()), FAMILY.config({"algorithm": 39})
    monkeypatch.setattr(cublaslt, "opened", lambda device: (library, "") if device == 1 else (None, "planted"))
    for version in ("130200", ""):
        # Where the version is unknown, the library alone checks the algorithm.
        assert cublaslt.as_measured(config, version, 1) == (library, "")
    assert cublaslt.as_measured(config, "130200", 0) == (None, "planted")
    said = f"{config.key} was measured with cuBLASLt 120800, and 130200 is loaded here: tune again with it"
    assert cublaslt.as_measured(config, "120800", 1) == (None, said)


def test_a_library_that_could_not_be_opened_is_tried_again_and_one_that_is_open_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handles = [OSError("full"), library_of(Recorder())]

    def made() -> Any:  # noqa: ANN401
        if isinstance(one := handles.pop(0), OSError):
            raise one
        return one

    monkeypatch.setattr(cublaslt, "Handle", made)
    cublaslt._handle.cache_clear()
    assert cublaslt.opened(1) == (None, "cuBLASLt can't be used (OSError: full)")
    (opened, missing), again = cublaslt.opened(1), cublaslt.opened(1)
    cublaslt._handle.cache_clear()
    assert (missing, again, handles) == ("", (opened, ""), [])
    assert opened is not None


def test_a_call_of_what_the_library_has_not_is_refused() -> None:
    with pytest.raises(CudaError, match="silu"):
        calls.LibraryCall(Gemm.of(8, 8, 8, epilogue="silu"), FAMILY.config({}), library_of(Recorder()))


def test_what_the_heuristic_refuses_has_no_candidates() -> None:
    assert described(Gemm.of(16, 16, 16, "fp8_e4m3", "tt"), supported=False)[1].listed == ()


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Gemm.of(8, 8, 8, "uint8"), "uint8"),
        (Gemm.of(8, 8, 8, epilogue="silu"), "silu"),
        (Gemm.of(8, 8, 8, "fp8_e4m3,fp8_e4m3,fp8_e4m3,f32", epilogue="bias"), "fp8_e4m3 output"),
        (Gemm.of(8, 8, 8, "int8,int8,bf16,s32", epilogue="alpha"), "s32 sums"),
        (Gemm.of(8, 8, 8, "fp8_e4m3_acc16"), "f16 sums"),
        (Gemm.of(8, 8, 8, "fp16,fp16,f32,fp16"), "f16 sums"),
    ],
)
def test_what_the_library_has_not_is_said(problem: Gemm, reason: str) -> None:
    assert reason in cublaslt.unsupported(problem)


#: Words that the library has no product for, whatever the epilogue.
NEVER = {"uint8", "fp8_e4m3_acc16", "fp8_e5m2_acc16"}


@pytest.mark.parametrize("dtype", [word for word in DTYPES if word not in NEVER])
def test_every_other_dtype_word_may_have_a_baseline(dtype: str) -> None:
    assert cublaslt.unsupported(Gemm.of(64, 64, 64, dtype)) == ""
