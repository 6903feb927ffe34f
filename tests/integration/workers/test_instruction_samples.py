"""The instruction tables against the compiler: legal forms assemble, neighbours are refused for what they break.

A sample; `python -m benchmarks.assemble_instructions` asks about everything.
"""

from __future__ import annotations

import random
from functools import cache

import pytest

from benchmarks.instruction_ptx import wgmma_ptx
from benchmarks.instruction_samples import Sample, refusal, refusals, samples
from space.arch import ARCHS
from space.instructions.wgmma import WGMMA, wgmma_for

#: Of one rule of one instruction, legal or broken.
MOST_OF_A_RULE = 2


@cache
def drawn() -> list[tuple[Sample, str]]:
    """Up to `MOST_OF_A_RULE` samples of each rule, with what the compiler says."""
    pool, groups = samples(), {}
    random.Random(11).shuffle(pool)
    for sample in pool:
        groups.setdefault((sample.instruction, sample.rule, sample.legal), []).append(sample)
    chosen = [sample for group in groups.values() for sample in group[:MOST_OF_A_RULE]]
    # Small tables are tested completely, and so is every type pair of wgmma, at three N.
    chosen += [sample for sample in pool if sample.instruction == "arch"]
    chosen += [Sample("sm_90a", "wgmma", "n", True, wgmma_ptx(row, n)) for row in WGMMA
               for n in (row.n[0], row.n[len(row.n) // 2], row.n[-1])]  # fmt: skip
    return list(zip(chosen, refusals(chosen), strict=True))


def test_what_the_tables_state_assembles() -> None:
    assert [(sample, said) for sample, said in drawn() if sample.legal and said] == []


def test_what_the_tables_exclude_is_refused() -> None:
    assert [sample for sample, said in drawn() if not sample.legal and not said] == []


def test_a_broken_sample_is_well_formed_beside_the_rule_that_it_breaks() -> None:
    assert [(sample, said) for sample, said in drawn() if "yntax error" in said or "Undefined" in said] == []


def test_every_instruction_arch_and_rule_is_asked_both_ways() -> None:
    asked = {(sample.instruction, sample.rule, sample.legal) for sample, _ in drawn()}
    assert len(asked) >= 40
    for instruction in ("wgmma", "mma.sync", "tcgen05", "arch"):
        assert {legal for name, _, legal in asked if name == instruction} == {True, False}
    assert {sample.arch for sample, said in drawn() if sample.legal and not said} == set(ARCHS)


@pytest.mark.parametrize("n", [40, 56, 72, 88, 104, 248])
def test_an_integer_n_that_a_float_may_have_is_refused_by_name(n: int) -> None:
    row = wgmma_for("int8", "int8", "s32")
    assert row is not None
    assert f"m64n{n}k32" in refusal(Sample("sm_90a", "wgmma", "n", False, wgmma_ptx(row, n)))
