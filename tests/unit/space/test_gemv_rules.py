"""Rules of gemv: each breaks where it should, and the filter agrees with the explanation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from space.arch import ARCHS
from space.config import Config
from space.devices import profile_named, reference_profile
from space.enumerate import enumerate_space
from space.explain import explain, is_legal, legal_mask
from space.family import families_for, family_for, family_named, family_with
from space.kinds.gemm import Gemm
from space.nearest import MAX_CHANGES
from space.rank import rank
from tests.strategies import configs_of, problems_up_to
from workers.builder import source_of

H200 = profile_named("NVIDIA H200")

FAMILY = family_named("gemv")
#: (shape, dtype and epilogue, layout, batch, knobs, the one rule that breaks)
BREAKS: list[tuple[str, str, str, int, dict[str, object], str]] = [
    ("5x64x64", "bf16", "nt", 1, {"rows": 4}, "problem.rows"),
    ("1x64x64", "bf16", "nn", 1, {}, "problem.layout"),
    ("1x64x64", "fp16_acc16", "nt", 1, {}, "problem.sums"),
    ("3x64x64", "bf16", "nt", 1, {"rows": 2}, "rows.match"),
    ("1x64x64", "tf32", "nt", 1, {"load_bytes": 2}, "load.element"),
    # 4,099 elements of 2 B are 8,198 B.
    ("1x64x4099", "bf16", "nt", 1, {"load_bytes": 4}, "load.alignment"),
    ("1x1x2147483647", "int8", "nt", 1, {"load_bytes": 1, "a_path": "cache"}, "load.pieces"),
    ("1x64x64", "bf16", "nt", 1, {"warps": 2, "split_warps": 4}, "team.warps"),
    # 16 loads of 16 B for each of 4 columns are 256 registers.
    ("1x64x8192", "bf16", "nt", 1, {"columns": 4, "unroll": 16}, "registers.held"),
    ("2x64x64", "bf16", "tt", 1, {"rows": 2, "a_path": "cache"}, "a.transposed"),
    # Four rows of 65,536 elements are 512 KiB.
    ("4x64x65536", "bf16", "nt", 1, {"rows": 4, "columns": 1}, "smem.capacity"),
    ("1x64x8", "bf16", "nt", 1, {"split_k": 2}, "split.k"),
    ("1x64x64", "fp8_e4m3/scaled", "nt", 1, {}, "epilogue.scales"),
    # 2^20 columns in 32 slices of 4 bytes are 128 MiB.
    ("1x1048576x4096", "bf16", "nt", 1, {"split_k": 32}, "split.workspace"),
]  # fmt: skip

any_config, any_problem = configs_of(FAMILY), problems_up_to(6, 9000, 70_000)


@pytest.mark.parametrize(("shape", "dtype", "layout", "batch", "knobs", "rule"), BREAKS)
def test_each_rule_breaks_alone(
    shape: str, dtype: str, layout: str, batch: int, knobs: dict[str, object], rule: str
) -> None:
    word, _, epilogue = dtype.partition("/")
    problem = Gemm.parse(shape, word, layout, batch, epilogue or "none")
    said = explain(FAMILY, problem, FAMILY.config(knobs))
    broken = [entry.rule for entry in said.broken]
    # Nothing has five rows: where A has more, the rows that are compiled in differ from them too.
    assert broken == ([rule, "rows.match"] if rule == "problem.rows" else [rule])


@pytest.mark.parametrize(
    ("device", "dtype", "epilogue", "rule", "fix"),
    [
        ("NVIDIA H200", "fp16_acc16", "none", "problem.sums", "use mma_sync, or f32 sums"),
        ("NVIDIA H200", "fp16_acc16", "none", "problem.rows", "use mma_sync"),
        # mma_sync leaves fp8 to wgmma, whose sums are f32.
        ("NVIDIA H200", "fp8_e4m3_acc16", "none", "problem.sums", "use f32 sums"),
        ("NVIDIA H200", "fp8_e4m3_acc16", "none", "problem.rows", "use sm90_wgmma"),
        ("NVIDIA L40S", "fp8_e4m3_acc16", "none", "problem.sums", "use mma_sync, or f32 sums"),
        ("NVIDIA H200", "fp8_e4m3", "scaled", "epilogue.scales", "sm90_wgmma reads scales"),
        ("NVIDIA L40S", "fp8_e4m3", "scaled", "epilogue.scales", "no kernel for sm_89 reads scales: use alpha"),
    ],
)
def test_the_fix_is_legal_on_the_device(device: str, dtype: str, epilogue: str, rule: str, fix: str) -> None:
    said = explain(FAMILY, Gemm.parse("64x64x64", dtype, "nt", 1, epilogue), FAMILY.config({}), profile_named(device))
    assert {entry.rule: entry.numbers.partition("; ")[2] for entry in said.broken}[rule] == fix


def test_every_rule_that_a_config_can_break_alone_is_broken_here() -> None:
    # Every arch with wgmma is a target, has griddepcontrol and converts fp8; 2,048 threads have 32 registers each,
    # fewer than one needs; sums of 2^31 tiles don't fit the workspace, and C of as many no GPU.
    beyond = {"arch.target", "pdl.griddepcontrol", "arch.fp8", "block.resident", "grid.tiles", "sums.range"}
    assert {rule.id for rule in FAMILY.rules if rule.kind == "legal"} == {rule for *_, rule in BREAKS} | beyond


def test_it_is_built_for_its_targets_alone() -> None:
    problem, config = Gemm.of(1, 64, 64), FAMILY.config({})
    assert {arch for arch in ARCHS if is_legal(FAMILY, problem, config, reference_profile(arch))} == FAMILY.targets
    said = explain(FAMILY, problem, config, reference_profile("sm_100a"))
    assert [entry.rule for entry in said.broken] == ["arch.target"]
    assert "sm_100a; it is built for sm_120a, " in said.broken[0].numbers


def test_without_griddepcontrol_no_launch_is_a_dependent_one() -> None:
    said = explain(FAMILY, Gemm.of(1, 64, 64), FAMILY.config({"pdl": 1}), reference_profile("sm_80"))
    assert [entry.rule for entry in said.broken] == ["pdl.griddepcontrol"]
    assert said.nearest is not None
    assert said.nearest["pdl"] == 0


@pytest.mark.parametrize("arch", sorted(FAMILY.targets))
def test_every_target_has_candidates_and_fp8_where_it_is_converted(arch: str) -> None:
    device = reference_profile(arch)
    assert len(enumerate_space(FAMILY, Gemm.of(2, 4096, 4096), device)) > 0
    fp8 = arch not in ("sm_80", "sm_86", "sm_87")
    assert FAMILY.takes(Gemm.of(2, 64, 64, "fp8_e4m3"), device) is fp8
    assert FAMILY.takes(Gemm.of(2, 64, 64, "bf16,bf16,fp8_e4m3,f32"), device) is fp8


def test_the_text_waits_for_earlier_kernels_only_where_the_target_can() -> None:
    for arch, waits in (("sm_86", False), ("sm_90a", True), ("sm_120a", True)):
        assert ("griddepcontrol.wait" in source_of(Gemm.of(1, 64, 64), FAMILY.config({}), arch)) is waits


@settings(max_examples=150)
@given(any_problem, any_config)
def test_filter_and_explanation_agree(problem: Gemm, config: Config) -> None:
    said = explain(FAMILY, problem, config)
    assert said.legal == is_legal(FAMILY, problem, config)
    if said.nearest is not None:
        assert is_legal(FAMILY, problem, said.nearest)
        assert 1 <= sum(said.nearest[name] != value for name, value in config.values) <= MAX_CHANGES


@pytest.mark.parametrize("shape", ["1x128256x4096", "4x4096x14336", "2x4097x4099", "1x1x1", "3x576x65536"])
@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp8_e4m3_promoted", "int8"])
@pytest.mark.parametrize("layout", ["nt", "tt"])
def test_every_problem_of_few_rows_has_candidates_worth_trying(shape: str, dtype: str, layout: str) -> None:
    problem = Gemm.parse(shape, dtype, layout)
    space = enumerate_space(FAMILY, problem)
    assert len(space)
    assert space.count + sum(space.removed.values()) == space.total
    assert legal_mask(FAMILY, space.columns).all()
    estimates = rank(space, H200).estimates_us
    assert (estimates > H200.launch_us).all()


#: A of 426 KB in shared memory of 99 KB, of 1.2 MB in 227 KB, of as much in batches whose sums the workspace limits,
#: and of the largest size that fits whole.
@pytest.mark.parametrize(
    ("device", "shape", "dtype", "batch"),
    [
        ("NVIDIA L4", "4x16384x53248", "bf16", 1),
        ("NVIDIA GB10", "1x16384x53248", "bf16", 1),
        ("NVIDIA H200", "4x18432x73728", "tf32", 1),
        ("NVIDIA H200", "4x18432x73728", "tf32", 64),
        ("NVIDIA L4", "4x262144x500000", "tf32", 1),
        ("NVIDIA L4", "1x16384x50680", "bf16", 1),
        ("NVIDIA L4", "1x16384x50688", "bf16", 1),
    ],
)
def test_an_a_that_does_not_fit_shared_memory_has_candidates(device: str, shape: str, dtype: str, batch: int) -> None:
    profile, problem = profile_named(device), Gemm.parse(shape, dtype, batch=batch)
    space = enumerate_space(FAMILY, problem, profile)
    assert len(space)
    assert legal_mask(FAMILY, space.columns).all()


def test_an_a_that_fits_neither_l1_nor_shared_memory_is_estimated_at_the_rate_of_l2() -> None:
    def us(k: int) -> float:
        config = FAMILY.config({"rows": 4, "a_path": "cache", "columns": 1})
        return float(FAMILY.estimate_us(FAMILY.columns(Gemm.of(4, 4096, k), [config]), H200)[0])

    # 64 KiB, and eight elements more.
    assert us(8192 + 8) > 1.5 * us(8192)


#: (rule, problem, knobs within its limit, knobs beyond it), on the H200's 132 multiprocessors.
WORTH: list[tuple[str, str, dict[str, object], dict[str, object]]] = [
    # Rows are multiples of 8 B.
    ("load_bytes", "1x65536x4100", {"load_bytes": 8}, {"load_bytes": 4}),
    ("team", "1x65536x4096", {"split_warps": 2}, {"split_warps": 2, "lanes": 16}),
    # Eight loads of 16 B are a line; of a row of 120 B, which has none, eight of 8 B are more than half.
    ("lanes", "1x65536x4096", {"lanes": 8}, {"lanes": 4}),
    ("lanes", "1x65536x60", {"lanes": 8, "load_bytes": 8}, {"lanes": 4, "load_bytes": 8}),
    # 128 and 256 KiB; 12 and 8 KiB; 8 KiB that are all of a row, and half of it.
    ("in_flight", "1x65536x4096", {"warps": 16, "columns": 1, "unroll": 8}, {"warps": 16, "unroll": 8}),
    ("in_flight", "1x65536x4096", {"warps": 4, "columns": 1, "unroll": 2, "blocks_per_sm": 3},
     {"warps": 4, "columns": 1, "unroll": 2}),
    ("in_flight", "1x65536x512", {"warps": 4, "columns": 1, "unroll": 2}, {"warps": 4, "columns": 1, "unroll": 1}),
    # Two tiles for each multiprocessor, and one.
    ("in_flight", "1x4224x4096", {"unroll": 1}, {"unroll": 1, "lanes": 16}),
    # 33 loads of a row by 32 lanes and by 128.
    ("steps", "1x65536x264", {"unroll": 1}, {"unroll": 1, "split_warps": 4}),
    ("threads", "1x65536x4096", {"warps": 4}, {"warps": 2}),
    # 114 KB for each of two blocks, and of three.
    ("resident", "1x65536x57000", {}, {"blocks_per_sm": 3}),
    # 528 blocks of half rows for 264 at once; slices of two steps and of one; 1,056 blocks.
    ("split_k", "1x4224x4096", {"split_k": 2}, {"split_k": 4}),
    ("split_k", "1x64x1024", {"split_k": 2, "unroll": 1}, {"split_k": 4, "unroll": 1}),
    ("split_k", "1x4224x4096", {"split_k": 2}, {"split_k": 2, "warps": 4}),
    ("persistent", "1x4240x4096", {"persistent": 1}, {"persistent": 1, "blocks_per_sm": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "shape", "within", "beyond"), WORTH)
def test_worth_rules_remove_what_exceeds_their_limits(
    rule: str, shape: str, within: dict[str, object], beyond: dict[str, object]
) -> None:
    columns = FAMILY.columns(Gemm.parse(shape), [FAMILY.config(knobs) for knobs in (within, beyond)], H200)
    (worth,) = (each for each in FAMILY.rules if each.id == f"worth.{rule}")
    assert worth.mask(columns).tolist() == [True, False]


@pytest.mark.parametrize(("k", "kept"), [(32768, True), (32776, False), (116216, False), (116224, True)])
def test_a_is_read_through_l1_where_it_fits_or_nothing_else_holds_it(k: int, kept: bool) -> None:
    # 64 KiB; 227 KiB less the 16 B of a sum and a flag.
    (worth,) = (each for each in FAMILY.rules if each.id == "worth.a_path")
    config = FAMILY.config({"a_path": "cache"})
    assert worth.mask(FAMILY.columns(Gemm.of(1, 65536, k), [config], H200)).tolist() == [kept]


def test_families_are_those_that_take_the_problem_and_the_grounded_one_answers() -> None:
    def names(shape: str, layout: str = "nt") -> list[str]:
        return [family.name for family in families_for("sm_90a", Gemm.parse(shape, "bf16", layout))]

    assert names("1x4096x4096") == names("4x64x64", "nt") == ["sm90_wgmma", "gemv"]
    assert names("4x64x64", "tt") == ["sm90_wgmma", "gemv", "mma_sync"]
    assert names("5x4096x4096") == names("1x64x64", "nn") == ["sm90_wgmma"]
    assert family_for("sm_90a").name == "sm90_wgmma"


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_120a"])
def test_without_a_grounded_estimate_few_rows_are_answered_by_gemv(arch: str) -> None:
    for rows, layout, name in ((1, "nt", "gemv"), (4, "tt", "gemv"), (1, "nn", "mma_sync"), (5, "nt", "mma_sync")):
        assert family_for(arch, Gemm.of(rows, 4096, 4096, layout=layout)).name == name
    assert family_for(arch).name == family_with(arch, []).name == "mma_sync"


def test_a_family_is_told_by_its_knobs() -> None:
    assert family_with("sm_90a", ["lanes", "split_k"]).name == "gemv"
    assert family_with("sm_90a", ["split_k"]).name == family_with("sm_90a", ["nonsense"]).name == "sm90_wgmma"


def test_long_pieces_of_a_row_are_expected_to_be_faster() -> None:
    # Either has more bytes in flight than memory answers in its latency.
    tile = {"rows": 1, "warps": 4, "lanes": 8, "columns": 1, "blocks_per_sm": 16, "a_path": "cache"}
    configs = [FAMILY.config({**tile, "unroll": loads}) for loads in (2, 8)]
    short, long = FAMILY.estimate_us(FAMILY.columns(Gemm.of(1, 128256, 4096), configs, H200), H200)
    assert 1.02 < short / long < 1.04
