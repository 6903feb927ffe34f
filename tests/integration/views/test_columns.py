"""Columns say of each problem what its object says, and call a kernel stale when the answers do."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from api.views.written import WrittenColumns
from space.devices import find_profile, profile_named
from space.family import families_for
from space.kinds.gemm import DTYPES, Gemm
from space.problem import MAX_EXTENT
from space.rank import may_reach_power_limit, roofline_us
from tests.fleet import eventually
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, keep_best, measured, study_key
from tuner.answering.answers import measured as answer
from tuner.answering.staleness import nvrtc_here, staleness
from tuner.evidence.records import Best
from tuner.evidence.stats import median_interval_us
from tuner.evidence.store import Store
from tuner.views import best_rows, bests
from tuner.views.bests import BestColumns, DeviceColumns
from tuner.views.columnar import coded_at
from tuner.views.measurements import MeasurementColumns, Wanted
from tuner.views.problem_facts import ProblemFacts
from tuner.views.shapes import CLASSES
from workers.build import digest_of
from workers.builder import source_of
from workers.kernels.source import sources_digest
from workers.measurement import Policy

SHAPES = {
    (1, 512, 512): "gemv", (17, 512, 512): "skinny", (128, 128, 4096): "deep", (4096, 4096, 128): "shallow",
    (4096, 512, 512): "wide", (511, 513, 515): "square",
}  # fmt: skip
PROBLEMS = [
    *(Gemm.of(*shape, dtype, layout, batch, epilogue) for shape in SHAPES
      for dtype, layout, batch, epilogue in zip(DTYPES, ("nt", "nn", "tn", "tt") * 4, (1, 3) * 8,
                                                ("none", "beta", "bias+gelu", "alpha+beta") * 4, strict=False)),
    Gemm.parse("64x64x64", "bf16,bf16,f32,f32"), Gemm(MAX_EXTENT, MAX_EXTENT, 2),
]  # fmt: skip


@pytest.mark.parametrize("device", [DEVICE, "NVIDIA Unheard-of"])
def test_facts_are_those_of_each_problem(device: str) -> None:
    profile = find_profile(device)
    facts = ProblemFacts(profile)
    keys = [*(problem.key for problem in PROBLEMS), "gemm:nonsense", "unheard-of:1x1x1"]
    m, n, k = zip(*(problem.extents for problem in PROBLEMS), (1, 1, 1), (1, 1, 1), strict=True)
    found = facts.columns(keys, m, n, k)
    assert found["group"][-2:].tolist() == [-1, -1]
    for row, problem in enumerate(PROBLEMS):
        group = facts.groups[found["group"][row]]
        assert (group.kind, group.dtype) == (problem.kind, problem.dtype)
        assert group.fields(*problem.extents) == problem.fields()
        assert CLASSES[found["class"][row]] == SHAPES.get(problem.extents, "skinny" if problem.m == 64 else "shallow")
        assert (found["flops"][row], found["bytes"][row]) == (min(problem.flops, 2**62), min(problem.min_bytes, 2**62))
        if problem.flops > 2**62:
            continue
        if profile is None:
            assert (found["bound"][row], np.isnan(found["roofline_us"][row])) == (-1, True)
        else:
            assert found["bound"][row] == may_reach_power_limit(problem, profile)
            assert found["roofline_us"][row] == roofline_us(problem, profile)


def test_values_that_no_row_has_are_left_out() -> None:
    column = coded_at(["a", "b", "a", "c"], np.array([3, 0, 2], np.int32))
    assert [column["values"][place] for place in column["at"]] == ["c", "a", "a"]
    assert sorted(column["values"]) == ["a", "c"]


def test_measurements_of_a_restored_store_replace_those_before() -> None:
    with Store.open("sqlite://") as store, Store.open("sqlite://") as restored:
        for n in (256, 512, 1024):
            keep_best(store, Gemm(512, n, 256))
        columns = MeasurementColumns(store)
        assert columns.document(Wanted())["total"] == 3
        keep_best(restored)
        columns._store = restored
        assert columns.document(Wanted())["columns"]["problem"]["values"] == [PROBLEM.key]


def test_the_gain_leaves_out_a_best_that_a_rule_forbids_by_now(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store)
        columns = BestColumns(store)
        alone = columns.of(DEVICE).document()["gain"]
        keep_best(store, Gemm.of(16, 6144, 4096, "fp16_acc16"))
        eventually(lambda: sorted(columns.of(DEVICE).document()["columns"]["forbidden"]) == [False, True])
        assert columns.of(DEVICE).document()["gain"] == alone
        first = alone["first"]
        assert (first["problems"], first["low"], first["high"]) == (1, pytest.approx(1.05), pytest.approx(1.15))


def test_pages_and_answers_agree_on_what_is_stale(tmp_path: Path) -> None:
    problem, arch = Gemm.parse("512x512x512"), profile_named(DEVICE).arch.name
    config = FAMILY.config({})
    now, source = PROVENANCE.nvrtc, source_of(problem, config, arch)
    build = digest_of(source, arch, now)
    alone, of_all = sources_digest((FAMILY,)), sources_digest(families_for(arch))
    cases = [
        (alone, now, ""), (of_all, now, ""), ("another family changed", now, build), ("older", now, "a" * 64),
        ("older", now, ""), (of_all, "12.9", digest_of(source, arch, "12.9")),
    ]  # fmt: skip
    kept = []
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        columns = BestColumns(store)
        assert columns.of(DEVICE).rows(None).tolist() == []
        for place, (kernels, nvrtc, digest) in enumerate(cases):
            asked = problem.resized(512 + 128 * place, 512, 512)
            by = replace(PROVENANCE, kernel_source_digest=kernels, nvrtc=nvrtc)
            study = store.begin_study(study_key(asked))
            taken = store.record(study.id, replace(measured(config, problem=asked), build_digest=digest), by)
            kept.append(Best(asked, DEVICE, "cuda", taken, None, None, None, 1, {}))
            store.set_bests(kept[-1:])
            # What was read before stays; the new one joins it.
            while None in (shown := columns.of(DEVICE).document()["columns"])["stale"]:
                time.sleep(0.01)
            stale = dict(zip(shown["key"], shown["stale"], strict=True))
            assert stale == {best.problem.key: bool(staleness(best, nvrtc_here())) for best in kept}
        assert [answer(best).source for best in kept] == ["measured"] * 3 + ["stale"] * 3
        (first, *_) = columns.of(DEVICE).weights(5)
        assert (first.n, first.k, first.ms) == (512, 512, (512, 640, 768, 896, 1024, 1152))


def test_what_another_compiler_built_is_stale_before_a_text_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upgrade of NVRTC these are all bests: to compare each one's text took most of a comparison."""

    def compared(*_: object) -> str:
        raise AssertionError("a text is compared")

    monkeypatch.setattr(best_rows, "change", compared)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        keep_best(store, by=replace(PROVENANCE, nvrtc="12.9"))
        keep_best(store, PROBLEM.resized(512, 512, 512))
        assert list(BestColumns(store).of(DEVICE).document()["columns"]["stale"]) == [True, False]


def test_each_moment_of_a_comparison_is_no_document_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages would wait for all rows to be written anew, dozens of times a second."""
    monkeypatch.setattr(bests, "_AT_ONCE_SECONDS", 0.0)
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        for m in (64, 128, 192, 256):
            keep_best(store, PROBLEM.resized(m, 256, 256))
        known = DeviceColumns(store, DEVICE)
        known.update(store.changed()["best"])
        seen = [(known._compare_some(), known.state) for _ in range(4)]
        assert [left for left, _ in seen] == [3, 2, 1, 0]
        first, second, third, last = (state for _, state in seen)
        assert first == second == third != last
        monkeypatch.setattr(bests, "_TOLD_SECONDS", 0.0)
        known = DeviceColumns(store, DEVICE)
        known.update(store.changed()["best"])
        assert len({(known._compare_some(), known.state) for _ in range(4)}) == 4


def test_pages_and_answers_agree_on_replays_of_earlier_kernels(tmp_path: Path) -> None:
    today = sources_digest(families_for(profile_named(DEVICE).arch.name))
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store:
        for place, kernels in enumerate((today, "older")):
            asked = PROBLEM.resized(512 + 128 * place, 512, 512)
            study = store.begin_study(replace(study_key(asked), device_kind="recorded"))
            by = replace(PROVENANCE, kernel_source_digest=kernels, nvrtc="12.9")
            taken = store.record(study.id, measured(FAMILY.config({}), problem=asked), by)
            store.set_bests([Best(asked, DEVICE, "recorded", taken, None, None, None, 1, {})])
        assert [answer(best).source for best in store.bests(DEVICE)] == ["measured", "stale"]
        assert list(BestColumns(store).of(DEVICE).document()["columns"]["stale"]) == [False, True]


@pytest.mark.parametrize("policy", [Policy.CHAIN, Policy.SUSTAINED])
@pytest.mark.parametrize("samples", [1, 2, 30])
@pytest.mark.parametrize("shape", ["256x256x256", "1024x2048x2048", "4096x4096x4096"])
def test_pages_and_answers_agree_on_a_times_interval(policy: Policy, samples: int, shape: str) -> None:
    problem = Gemm.parse(shape)
    with Store.open("sqlite://") as store:
        study = store.begin_study(study_key(problem))
        taken = measured(FAMILY.config({}), 200.0, problem, samples=samples, policy=policy)
        stored = store.record(study.id, taken, PROVENANCE)
        store.set_bests([Best(problem, DEVICE, "cuda", stored, None, None, None, 1, {})])
        shown = BestColumns(store).of(DEVICE).document()["columns"]
        assert [*shown["low_us"], *shown["high_us"]] == pytest.approx(median_interval_us(taken, DEVICE), rel=1e-12)


def test_a_column_written_in_blocks_is_the_text_of_the_whole() -> None:
    dice, written = np.random.default_rng(0), WrittenColumns()
    kept = dice.random(1_000)
    kept[::7] = np.nan
    for turn in range(60):
        place = int(dice.integers(len(kept)))
        kept = (np.insert(kept, place, [0.5, np.nan]), np.delete(kept, place),
                np.where(np.arange(len(kept)) == place, 1.5, kept))[turn % 3]  # fmt: skip
        for column in (kept, kept[: len(kept) // 2], kept[:0], dice.random(700), kept) if turn % 20 == 0 else (kept,):
            document = {"double": column, "columns": {"double": column * 2, "single": column.astype(np.float32)}}
            plain = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
            assert orjson.dumps(written.within(document)) == plain
