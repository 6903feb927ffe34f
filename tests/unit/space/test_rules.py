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
from space.problem import DTYPES, LAYOUTS, Problem
from tests.broken_configs import BREAKS

FAMILY = family_named("sm90_wgmma")
SQUARE = Problem.parse("4096x4096x4096")
#: Few tiles of it are small enough for the tests that look through the whole space.
TINY = Problem.parse("64x40x256")

any_config = st.fixed_dictionaries({knob.name: st.sampled_from(knob.domain) for knob in FAMILY.knobs}).map(
    FAMILY.config
)
any_problem = st.builds(
    Problem.of,
    st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000),
    st.sampled_from(list(DTYPES)), st.sampled_from(LAYOUTS), st.sampled_from([1, 3]),
    st.sampled_from(["none", "alpha+beta", "bias+gelu"]),
)  # fmt: skip

@pytest.mark.parametrize(("shape", "dtype", "layout", "knobs", "rule"), BREAKS)
def test_each_rule_breaks_alone(shape: str, dtype: str, layout: str, knobs: dict[str, object], rule: str) -> None:
    said = explain(FAMILY, Problem.parse(shape, dtype, layout), FAMILY.config(knobs))
    assert [entry.rule for entry in said.broken] == [rule]


def test_every_rule_that_a_config_can_break_alone_is_broken_here() -> None:
    # Without wgmma nothing can be chosen; 32-bit tile counts, 1,024 threads, 16 blocks and 256 lines are beyond
    # what the knobs reach, and multicast of A divides every tile_m.
    beyond = {"arch.wgmma", "registers.instruction", "block.threads", "cluster.size", "multicast.slice_a", "tma.box",
              "grid.tiles"}  # fmt: skip
    assert {rule.id for rule in FAMILY.rules if rule.kind == "legal"} == {rule for *_, rule in BREAKS} | beyond


def test_without_wgmma_the_space_is_empty() -> None:
    problem, arch = Problem.of(64, 64, 64), arch_named("sm_100a")
    said = explain(FAMILY, problem, FAMILY.config({}), arch)
    assert "arch.wgmma" in [entry.rule for entry in said.broken]
    assert said.nearest is None
    assert len(enumerate_space(FAMILY, problem, arch)) == 0


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
    space = _unpruned_square()
    assert space.total == np.prod([len(knob.domain) for knob in FAMILY.knobs])
    assert space.count + sum(space.removed.values()) == space.total
    assert legal_mask(FAMILY, space.columns).all()


@settings(max_examples=150)
@given(any_config)
def test_nothing_legal_is_missing_from_the_enumeration(config: Config) -> None:
    space = _unpruned_square()
    rows = np.arange(len(space))
    for knob in FAMILY.knobs:
        value = knob.default if knob in FAMILY.free else config[knob.name]
        rows = rows[space.columns[knob.name][rows] == knob.encode(value)]
    assert len(rows) == int(is_legal(FAMILY, SQUARE, config))


def test_pruning_removes_more_and_each_worth_rule_can_be_switched_off() -> None:
    pruned = enumerate_space(FAMILY, SQUARE)
    assert 300 <= len(pruned) < _unpruned_square().count
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
