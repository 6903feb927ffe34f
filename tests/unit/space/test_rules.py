"""Rules of sm90_wgmma: each breaks where it should, and the filter agrees with the explanation."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from space.arch import ARCHS, arch_named
from space.config import Config
from space.enumerate import Space, enumerate_space
from space.errors import ArchError
from space.explain import explain, is_legal, legal_mask
from space.family import family_named
from space.problem import Problem

FAMILY = family_named("sm90_wgmma")
SQUARE = Problem.parse("4096x4096x4096")

any_config = st.fixed_dictionaries({knob.name: st.sampled_from(knob.domain) for knob in FAMILY.knobs}).map(
    FAMILY.config
)
any_problem = st.builds(
    Problem.of,
    st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000),
    st.sampled_from(["bf16", "fp16"]), st.sampled_from(["nt", "nn"]),
)  # fmt: skip

#: (problem, knobs, the one rule that breaks)
BREAKS = [
    # 1,000 · 2 B = 2,000 B is a multiple of 16; 1,001 · 2 B is not.
    ("4096x4096x1001", {}, "tma.stride"),
    # The same for rows of C, which only the TMA epilogue cares about.
    ("4096x1001x4096", {"epilogue": "tma"}, "tma.store_stride"),
    # 192 rows over two warpgroups are 96 each, no multiple of 64.
    ("4096x4096x4096", {"tile_m": 192}, "wgmma.m"),
    # 256·256/(128·2) = 256 accumulators: more than a thread has registers.
    ("4096x4096x4096", {"tile_m": 256, "tile_n": 256, "stages": 2, "epilogue": "direct"}, "registers.accumulator"),
    # A stage of 48 KiB; five of them exceed 227 KiB.
    ("4096x4096x4096", {"tile_n": 256, "stages": 5, "epilogue": "direct"}, "smem.capacity"),
    # 4 x 4 blocks are a legal cluster only with the non-portable attribute.
    ("4096x4096x4096", {"cluster_m": 4, "cluster_n": 4}, "cluster.size"),
    # A K of 32 elements is 64 bytes: half a 128-byte swizzle span, for A and for B.
    ("4096x4096x4096", {"tile_k": 32, "swizzle_b": 64}, "swizzle.a"),
    ("4096x4096x4096", {"tile_k": 32, "swizzle_a": 64}, "swizzle.b"),
    # 40 rows of B over 2 blocks are 20, no multiple of the 8-row swizzle pattern.
    ("4096x4096x4096", {"tile_n": 40, "cluster_m": 2}, "multicast.slice_b"),
]


@pytest.mark.parametrize(("shape", "knobs", "rule"), BREAKS)
def test_each_rule_breaks_alone(shape: str, knobs: dict[str, object], rule: str) -> None:
    said = explain(FAMILY, Problem.parse(shape), FAMILY.config(knobs))
    assert [entry.rule for entry in said.broken] == [rule]


@pytest.mark.parametrize(
    ("problem", "arch", "rule"),
    [
        (Problem.of(64, 64, 64, "fp8_e4m3"), "sm_90a", "problem.dtype"),
        (Problem.of(64, 64, 64, "bf16", "nn"), "sm_90a", "problem.layout"),
        (Problem.of(64, 64, 64, batch=2), "sm_90a", "problem.batch"),
        (Problem.of(64, 64, 64), "sm_100a", "arch.wgmma"),
    ],
)
def test_rules_of_the_problem_empty_the_space(problem: Problem, arch: str, rule: str) -> None:
    said = explain(FAMILY, problem, FAMILY.config({}), arch_named(arch))
    assert rule in [entry.rule for entry in said.broken]
    assert said.nearest is None
    assert len(enumerate_space(FAMILY, problem, arch_named(arch))) == 0


@settings(max_examples=150)
@given(any_problem, any_config)
def test_filter_and_explanation_agree(problem: Problem, config: Config) -> None:
    said = explain(FAMILY, problem, config)
    assert said.legal == is_legal(FAMILY, problem, config)
    if said.nearest is not None:
        assert is_legal(FAMILY, problem, said.nearest)
        changed = {name for name, value in config.values if said.nearest[name] != value}
        assert len(changed) == 1


@settings(max_examples=20)
@given(st.lists(any_config, min_size=1, max_size=50))
def test_a_row_means_the_same_alone_and_among_others(configs: list[Config]) -> None:
    together = legal_mask(FAMILY, FAMILY.columns(SQUARE, configs))
    assert together.tolist() == [is_legal(FAMILY, SQUARE, config) for config in configs]


def test_the_enumeration_is_every_legal_config_and_counts_add_up() -> None:
    space = enumerate_space(FAMILY, SQUARE, pruned=False)
    assert space.total == np.prod([len(knob.domain) for knob in FAMILY.knobs])
    assert len(space) + sum(space.removed.values()) == space.total
    assert legal_mask(FAMILY, space.columns).all()


@settings(max_examples=150)
@given(any_config)
def test_nothing_legal_is_missing_from_the_enumeration(config: Config) -> None:
    space = _unpruned_square()
    rows = np.ones(len(space), dtype=bool)
    for knob in FAMILY.knobs:
        rows &= space.columns[knob.name] == knob.encode(config[knob.name])
    assert int(rows.sum()) == int(is_legal(FAMILY, SQUARE, config))


def test_pruning_removes_more_and_each_worth_rule_can_be_switched_off() -> None:
    pruned = enumerate_space(FAMILY, SQUARE)
    assert 300 <= len(pruned) < len(_unpruned_square())
    for rule in (rule for rule in FAMILY.rules if rule.kind == "worth" and rule.id in pruned.removed):
        assert len(enumerate_space(FAMILY, SQUARE, without=(rule.id,))) >= len(pruned), rule.id


def test_the_explanation_has_the_arithmetic_and_the_fix() -> None:
    said = explain(FAMILY, SQUARE, FAMILY.config({"tile_n": 256, "stages": 5, "epilogue": "direct"}))
    assert "(128·64 + 256·64)·2 B · 5 stages" in said.broken[0].numbers
    assert "232,448 B on sm_90a" in said.broken[0].numbers
    assert said.change == "stages=4"


@pytest.mark.parametrize("shape", ["64x64x64", "16x28672x4096", "128x128x65536", "1000x1000x1000", "333x4104x2056"])
def test_small_problems_keep_candidates(shape: str) -> None:
    assert len(enumerate_space(FAMILY, Problem.parse(shape))) >= 100


def test_even_the_smallest_problem_keeps_one() -> None:
    assert len(enumerate_space(FAMILY, Problem.parse("1x8x8"))) >= 1


def test_an_arch_is_never_without_its_suffix() -> None:
    with pytest.raises(ArchError, match="sm_90a"):
        arch_named("sm_90")
    with pytest.raises(ArchError, match="unknown"):
        arch_named("h100")
    assert arch_named("sm_90a") is ARCHS["sm_90a"]


@cache
def _unpruned_square() -> Space:
    return enumerate_space(FAMILY, SQUARE, pruned=False)
