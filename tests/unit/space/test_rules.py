"""Rules of sm90_wgmma: each breaks where it should, and the filter agrees with the explanation."""

from __future__ import annotations

import re
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from space.arch import ARCHS, arch_named
from space.config import Config
from space.devices import reference_profile
from space.enumerate import MOST_ROWS, Space, enumerate_space
from space.errors import ArchError, FamilyError
from space.explain import explain, is_legal, legal_among, legal_mask
from space.families.common import early_twin, plain_twin, rows_anywhere, starts_early
from space.family import family_named
from space.kinds.gemm import Gemm
from space.knobs import Knob
from space.nearest import MAX_CHANGES, Neighbourhood
from tests.broken_configs import BREAKS
from tests.strategies import configs_of, problems_up_to

FAMILY = family_named("sm90_wgmma")
SQUARE = Gemm.parse("4096x4096x4096")
#: Few tiles of it are small enough for the tests that look through the whole space.
TINY = Gemm.parse("64x40x256")
any_config, any_problem = configs_of(FAMILY), problems_up_to(9000, 9000, 9000)


@pytest.mark.parametrize(("shape", "dtype", "layout", "knobs", "rule"), BREAKS)
def test_each_rule_breaks_alone(shape: str, dtype: str, layout: str, knobs: dict[str, object], rule: str) -> None:
    said = explain(FAMILY, Gemm.parse(shape, dtype, layout), FAMILY.config(knobs))
    assert [entry.rule for entry in said.broken] == [rule]


def test_every_rule_that_a_config_can_break_alone_is_broken_here() -> None:
    # Without wgmma nothing can be chosen; 32-bit tile counts, 16 blocks and 256 lines are beyond what the
    # knobs reach, multicast of A divides every tile_m, and halves of C may overlap where nothing reads it.
    beyond = {"arch.wgmma", "registers.instruction", "cluster.size", "multicast.slice_a", "tma.box", "epilogue.half",
              "grid.tiles", "grid.edge", "pack.pitch", "sums.range"}  # fmt: skip
    assert {rule.id for rule in FAMILY.rules if rule.kind == "legal"} == {rule for *_, rule in BREAKS} | beyond


@pytest.mark.parametrize(
    ("family", "problem", "tiles"),
    [
        # Each a multiple of 2^64.
        ("sm90_wgmma", Gemm.of(2**31 - 8, 2**31 - 8, 8, batch=2**30), 2**78),
        ("mma_sync", Gemm.of(2**31 - 8, 2**31 - 8, 8, batch=2**30), 2**78),
        # And 2^57, which does not need so many.
        ("gemv", Gemm.of(1, 2**31 - 8, 8, batch=2**30), 2**57),
    ],
)
def test_more_tiles_than_64_bits_hold_are_too_many(family: str, problem: Gemm, tiles: int) -> None:
    plug = family_named(family)
    said = explain(plug, problem, plug.config({}))
    assert [entry.numbers for entry in said.broken if entry.rule == "grid.tiles"] == [
        f"{tiles:,} tiles, each slice of K counted, > 1,073,741,824"
    ]
    assert said.nearest is None
    assert not len(enumerate_space(plug, problem, pruned=False))


@pytest.mark.parametrize(
    ("family", "within", "beyond"),
    [
        ("sm90_wgmma", Gemm.of(2, 64, 2**30 - 65), Gemm.of(2, 64, 2**30 - 1)),
        ("sm90_wgmma", Gemm.of(2, 64, 2**29 - 33, "tf32"), Gemm.of(2, 64, 2**29 - 1, "tf32")),
        ("mma_sync", Gemm.of(2, 64, 2**31 - 128, "int8", "tt"), Gemm.of(2, 64, 2**31 - 127, "int8", "tt")),
        # Rows of 2^31 bytes that need no packing.
        ("sm90_wgmma", Gemm.of(2, 64, 2**30), Gemm.of(2, 64, 2**30 + 1)),
    ],
)
def test_packed_rows_whose_bytes_32_bits_do_not_count_are_too_long(family: str, within: Gemm, beyond: Gemm) -> None:
    plug = family_named(family)
    assert "pack.pitch" not in [entry.rule for entry in explain(plug, within, plug.config({})).broken]
    (numbers,) = [one.numbers for one in explain(plug, beyond, plug.config({})).broken if one.rule == "pack.pitch"]
    assert re.match("rows of 2,147,483,[67][0-9]{2} B: multiply slices of K", numbers)
    assert not len(enumerate_space(plug, beyond, pruned=False))


def test_without_wgmma_the_space_is_empty() -> None:
    problem, arch = Gemm.of(64, 64, 64), reference_profile("sm_100a")
    said = explain(FAMILY, problem, FAMILY.config({}), arch)
    assert "arch.wgmma" in [entry.rule for entry in said.broken]
    assert said.nearest is None
    assert len(enumerate_space(FAMILY, problem, arch)) == 0


@settings(max_examples=150)
@given(any_problem, any_config)
def test_filter_and_explanation_agree(problem: Gemm, config: Config) -> None:
    said = explain(FAMILY, problem, config)
    assert said.legal == is_legal(FAMILY, problem, config)
    if said.nearest is not None:
        assert is_legal(FAMILY, problem, said.nearest)
        changed = {name for name, value in config.values if said.nearest[name] != value}
        assert 1 <= len(changed) <= MAX_CHANGES
        assert said.change == ",".join(f"{name}={said.nearest[name]}" for name, _ in config.values if name in changed)


@settings(max_examples=20)
@given(st.lists(any_config, min_size=1, max_size=50))
def test_a_row_means_the_same_alone_and_among_others(configs: list[Config]) -> None:
    together = legal_mask(FAMILY, FAMILY.columns(SQUARE, configs))
    alone = [is_legal(FAMILY, SQUARE, config) for config in configs]
    assert together.tolist() == alone
    # Of a family for which the problem is too large.
    other = family_named("gemv").config({})
    assert legal_among(SQUARE, [*configs, other]) == {
        config for config, legal in zip(configs, alone, strict=True) if legal
    }


def test_the_enumeration_is_every_legal_config_and_counts_add_up() -> None:
    space = _unpruned_square()
    assert space.total == np.prod([len(knob.domain) for knob in FAMILY.knobs])
    assert space.count + sum(space.removed.values()) == space.total
    # Every 37th: a prime, so that all values of all knobs are among them.
    assert legal_mask(FAMILY, space.columns.take(np.arange(0, len(space), 37))).all()


@settings(max_examples=150)
@given(any_config)
def test_nothing_legal_is_missing_from_the_enumeration(config: Config) -> None:
    space = _unpruned_square()
    rows = _rows_of_tile_n(int(config["tile_n"]))
    for knob in FAMILY.knobs:
        value = knob.default if knob in FAMILY.free else config[knob.name]
        rows = rows[space.columns[knob.name][rows] == knob.encode(value)]
    assert len(rows) == int(is_legal(FAMILY, SQUARE, config))


def test_pruning_removes_more_and_each_worth_rule_can_be_switched_off() -> None:
    pruned = enumerate_space(FAMILY, SQUARE)
    assert 300 <= len(pruned) < _unpruned_square().count
    for rule in (rule for rule in FAMILY.rules if rule.kind == "worth" and rule.id in pruned.removed):
        wider = enumerate_space(FAMILY, SQUARE, without=(rule.id,))
        assert rule.id not in wider.removed
        assert len(wider) >= len(pruned), rule.id


@pytest.mark.parametrize(
    ("knobs", "change"),
    [
        ({"tile_n": 256, "stages": 5, "epilogue": "direct"}, "stages=4"),
        # Three consumers don't play ping-pong, and two have too many accumulators in tiles of 128 rows.
        ({"schedule": "pingpong", "consumer_warpgroups": 3, "tile_n": 256}, "tile_m=64,consumer_warpgroups=2"),
        # Beside these two 256 columns leave room for three stages only.
        ({"schedule": "pingpong", "consumer_warpgroups": 3, "tile_n": 256, "stages": 16},
         "tile_m=64,consumer_warpgroups=2,stages=4"),
        ({"schedule": "pingpong", "consumer_warpgroups": 3, "tile_n": 256, "tile_m": 192, "tile_k": 256,
          "swizzle_a": 0, "a_source": "registers", "producer_registers": 0, "split_k": 16}, ""),
    ],
)  # fmt: skip
def test_the_nearest_legal_change_takes_as_few_knobs_as_it_can(knobs: dict[str, object], change: str) -> None:
    said = explain(FAMILY, SQUARE, FAMILY.config(knobs))
    assert (said.legal, said.change) == (False, change)
    assert (said.nearest is None) == (change == "")


@settings(max_examples=5)
@given(any_config)
def test_no_change_of_two_knobs_is_missed(config: Config) -> None:
    knobs = [knob for knob in FAMILY.knobs if knob not in FAMILY.free]
    places = [knob.domain.index(config[knob.name]) for knob in knobs]
    values = [[(knob.name, value, abs(at - place)) for at, value in enumerate(knob.domain)]
              for knob, place in zip(knobs, places, strict=True)]  # fmt: skip
    pairs = [(one, two) for a, b in combinations(values, 2) for one in a for two in b]
    columns = FAMILY.columns(SQUARE, [FAMILY.config(config.knobs | {one[0]: one[1], two[0]: two[1]})
                                      for one, two in pairs])  # fmt: skip
    legal = [pairs[row] for row in np.flatnonzero(legal_mask(FAMILY, columns))]
    change = Neighbourhood(FAMILY, SQUARE, config).nearest_legal(most=2)
    nearest = config if is_legal(FAMILY, SQUARE, config) else config.changed(change) if change else None
    assert (nearest is not None) == bool(legal)
    if nearest is not None and nearest != config:
        fewest = min(((one[2] > 0) + (two[2] > 0), one[2] + two[2]) for one, two in legal)
        moved = [abs(knob.domain.index(nearest[knob.name]) - place) for knob, place in zip(knobs, places, strict=True)]
        assert (sum(map(bool, moved)), sum(moved)) == fewest


def test_what_no_knob_changes_has_no_change() -> None:
    said = explain(FAMILY, SQUARE, FAMILY.config({}), reference_profile("sm_100a"))
    assert (said.legal, said.nearest, said.change) == (False, None, "")


def test_only_worth_rules_can_be_switched_off() -> None:
    said = r"'smem\.capacity' is a hard limit and cannot be switched off.*worth\.stages"
    with pytest.raises(FamilyError, match=said):
        enumerate_space(FAMILY, SQUARE, without=("worth.stages", "smem.capacity"))
    with pytest.raises(FamilyError, match=r"'worth\.stage' is unknown to sm90_wgmma.*worth\.stages"):
        enumerate_space(FAMILY, SQUARE, without=("worth.stage",))


def test_a_space_too_large_to_list_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("space.enumerate.MOST_ROWS", rows := len(enumerate_space(FAMILY, SQUARE)))
    assert len(enumerate_space(FAMILY, SQUARE)) == rows
    said = rf"more than {rows:,} configs of sm90_wgmma remain for bf16 nt 4096x4096x4096.* fewer worth rules"
    with pytest.raises(FamilyError, match=said):
        enumerate_space(FAMILY, SQUARE, without=("worth.pdl",))


def test_a_knob_of_billions_of_values_is_counted_but_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    library = family_named("cublaslt")
    counted = enumerate_space(library, SQUARE, pruned=False)
    assert counted.count == counted.total
    listed = Knob.column

    def column(knob: Knob) -> npt.NDArray[np.int64]:
        assert len(knob.domain) <= MOST_ROWS
        return listed(knob)

    monkeypatch.setattr(Knob, "column", column)
    with pytest.raises(FamilyError, match="configs of cublaslt remain"):
        enumerate_space(library, SQUARE)


def test_the_explanation_has_the_arithmetic_and_the_fix() -> None:
    said = explain(FAMILY, SQUARE, FAMILY.config({"tile_n": 256, "stages": 5, "epilogue": "direct"}))
    assert "(128·64 + 256·64)·2 B · 5 stages" in said.broken[0].numbers
    assert "232,448 B on sm_90a" in said.broken[0].numbers
    assert said.change == "stages=4"


def test_tiles_that_end_within_a_swizzle_pattern_are_explained_by_the_bytes_of_a_stage() -> None:
    """200 columns of an N-major B take four spans of 64."""
    config = FAMILY.config({"tile_m": 256, "tile_n": 200, "stages": 5, "epilogue": "tma_half"})
    (said,) = explain(FAMILY, Gemm.parse("4096x4096x4096", layout="nn"), config).broken
    assert said.numbers.startswith("65,536 B in whole swizzle patterns · 5 stages + 256·104·2 B of C + barriers = ")


@pytest.mark.parametrize(
    ("dtype", "epilogue", "knobs", "said"),
    [
        ("bf16", "none", {"tile_n": 256, "tile_m": 256}, "256 accumulators per thread > 200 of its 232 registers"),
        ("bf16", "bias+gelu", {"tile_n": 192},
         "96 accumulators per thread, 208 with what the epilogue needs, > 184 of its 232 registers"),
        ("bf16", "none", {"tile_n": 256, "tile_k": 256, "a_source": "registers"},
         "128 accumulators per thread, 208 with fragments of A, > "),
        ("fp8_e4m3_promoted", "bias", {"tile_n": 128, "tile_k": 128},
         "64 accumulators per thread, 232 with a second set of sums and what the epilogue needs, > "),
    ],
)  # fmt: skip
def test_registers_are_explained_by_what_holds_them(
    dtype: str, epilogue: str, knobs: dict[str, object], said: str
) -> None:
    config = FAMILY.config({"stages": 2, "epilogue": "direct"} | knobs)
    broken = explain(FAMILY, Gemm.parse("4096x4096x4096", dtype, epilogue=epilogue), config).broken
    assert next(entry.numbers for entry in broken if entry.rule == "registers.held").startswith(said)


def test_a_ping_pong_with_few_registers_left_does_not_leave_a_k_major_a_transposed() -> None:
    """ptxas spills 4 bytes there, and nowhere else where such a tile leaves by halves."""
    lean = {"swap_ab": 1, "tile_m": 128, "tile_n": 208, "schedule": "pingpong", "consumer_warpgroups": 2, "stages": 4,
            "producer_registers": 24, "epilogue": "tma_half"}  # fmt: skip
    said = explain(FAMILY, SQUARE, FAMILY.config(lean))
    assert [entry.rule for entry in said.broken] == ["registers.lean"]
    assert said.broken[0].numbers.endswith("use swap_ab=0")
    for kept in ({"schedule": "cooperative", "tile_m": 256, "stages": 3}, {"swap_ab": 0}):
        assert explain(FAMILY, SQUARE, FAMILY.config(lean | kept)).legal
    assert explain(FAMILY, Gemm.parse("4096x4096x4096", layout="nn"), FAMILY.config(lean)).legal


@pytest.mark.parametrize(
    ("shape", "dtype", "knobs", "advice"),
    [
        ("4096x4096x4096", "bf16", {"epilogue": "tma"}, "epilogue=tma_half"),
        ("4096x4096x4096", "bf16", {"epilogue": "direct", "swap_ab": 1}, "epilogue=tma_half"),
        ("4096x4096x4096", "bf16,bf16,f32,f32", {"epilogue": "direct", "swap_ab": 1}, "swap_ab=0"),
        ("4096x4096x4096", "bf16,bf16,fp8_e4m3,f32", {"epilogue": "tma"}, "epilogue=direct"),
        ("4096x4096x4096", "bf16", {"epilogue": "direct", "split_k": 2}, "a smaller tile_n"),
        ("4096x4095x4096", "bf16", {"epilogue": "direct"}, "a smaller tile_n"),
    ],
)
def test_the_advice_for_a_tile_with_few_registers_left_is_one_that_helps(
    shape: str, dtype: str, knobs: dict[str, object], advice: str
) -> None:
    problem = Gemm.parse(shape, dtype)
    config = FAMILY.config({"tile_m": 256, "tile_n": 208, "stages": 2, "producer_registers": 24} | knobs)
    (said,) = (entry for entry in explain(FAMILY, problem, config).broken if entry.rule == "registers.lean")
    assert said.numbers.endswith(f"use {advice}")
    knob, equals, value = advice.partition("=")
    assert not equals or explain(FAMILY, problem, FAMILY.config(config.knobs | {knob: value})).legal


@pytest.mark.parametrize("shape", ["64x64x64", "16x28672x4096", "128x128x65536", "1000x1000x1000", "333x4104x2056"])
def test_small_problems_keep_candidates(shape: str) -> None:
    assert len(enumerate_space(FAMILY, Gemm.parse(shape))) >= 100


def test_even_the_smallest_problem_keeps_one() -> None:
    assert len(enumerate_space(FAMILY, Gemm.parse("1x8x8"))) >= 1


def test_an_arch_is_never_without_its_suffix() -> None:
    with pytest.raises(ArchError, match="sm_90a"):
        arch_named("sm_90")
    with pytest.raises(ArchError, match="unknown"):
        arch_named("h100")
    assert arch_named("sm_90a") is ARCHS["sm_90a"]


@cache
def _rows_of_tile_n(tile_n: int) -> npt.NDArray[np.intp]:
    return np.flatnonzero(_unpruned_square().columns["tile_n"] == tile_n)


@cache
def _unpruned_square() -> Space:
    return enumerate_space(FAMILY, SQUARE, pruned=False)


@pytest.mark.parametrize(
    ("shape", "dtype", "early"),
    [
        ("16x4096x4096", "bf16", True),
        ("8192x8192x8192", "bf16", False),
        ("64x65536x1024", "bf16", False),  # 143 MB, 9 GFLOP
        ("4096x4096x7168", "fp8_e4m3", True),
        ("4096x4096x8192", "fp8_e4m3", False),  # 101 MB, 275 GFLOP
    ],
)
def test_a_twin_starts_early_where_half_a_microsecond_counts(shape: str, dtype: str, early: bool) -> None:
    config = FAMILY.config({})
    twin = early_twin(Gemm.parse(shape, dtype), config)
    assert (twin is not None) == early
    assert twin is None or (starts_early(twin), twin.changed({"pdl": 0})) == (True, config)
    assert early_twin(Gemm.parse(shape), family_named("cublaslt").config({"rank": 0})) is None


def test_a_plain_twin_prefetches_nothing_behind_kernels_that_allow_no_early_start() -> None:
    early = FAMILY.config({"pdl": 1, "prefetch_stages": 4})
    assert plain_twin(early) == FAMILY.config({"pdl": 0, "prefetch_stages": 0})
    late = FAMILY.config({"pdl": 0, "prefetch_stages": 4})
    assert plain_twin(late) == late


def test_only_16_bit_rows_of_c_start_anywhere() -> None:
    odd = {dtype_c: rows_anywhere(Gemm.of(16, 257, 16, f"fp8_e4m3,fp8_e4m3,{dtype_c},f32"))
           for dtype_c in ("f32", "bf16", "fp16", "fp8_e4m3")}  # fmt: skip
    assert odd == {"f32": False, "bf16": True, "fp16": True, "fp8_e4m3": False}
    assert not rows_anywhere(Gemm.of(16, 264, 16))
