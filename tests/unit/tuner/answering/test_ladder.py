"""Ladders: every M of one weight, tuned so that each has neighbours, and a table without cliffs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from space.devices import profile_named
from space.errors import ProblemError
from space.explain import is_legal
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.support import FAMILY
from tuner.answering.ladder import MOST_MS, MS, Cliff, Rung, cliffs, problems
from workers.measurement import Policy

H200 = profile_named("NVIDIA H200")
WEIGHT = Gemm.parse("1x4096x4096")
CONFIGS = {m: FAMILY.config({"tile_n": 64 + 8 * place}) for place, m in enumerate(MS)}


def table(**changed: float) -> list[Rung]:
    """Times that grow with M, some of them changed: `m64=99.0`."""
    times = {m: changed.get(f"m{m}", 10.0 + m / 20) for m in MS}
    return [Rung(problem, CONFIGS[problem.m], times[problem.m], Policy.CHAIN) for problem in problems(WEIGHT)]


def test_a_ladder_is_one_weight_from_1_to_16384() -> None:
    ladder = problems(WEIGHT)
    assert [ladder[0].m, ladder[-1].m] == [1, 16384]
    assert {(problem.n, problem.k, problem.dtype) for problem in ladder} == {(4096, 4096, "bf16")}
    assert [problem.m for problem in problems(WEIGHT, (64, 8, 64))] == [8, 64]
    assert len(problems(WEIGHT, range(1, MOST_MS + 1))) == MOST_MS >= 256
    for wrong in ((), (0,), (-4,), range(1, MOST_MS + 2)):
        with pytest.raises(ProblemError):
            problems(WEIGHT, wrong)


def test_a_table_that_can_be_right_has_no_cliffs() -> None:
    assert cliffs(table(), H200) == []
    assert cliffs(table(m64=13.3), H200) == []  # slower than M = 96 would allow by less than the band


def test_a_small_m_that_takes_longer_than_a_large_one_is_measured_again_with_its_neighbours() -> None:
    (cliff,) = cliffs(table(m64=40.0), H200)
    assert (cliff.kind, cliff.suspect.problem.m, cliff.witness.problem.m) == ("inversion", 64, 96)
    assert cliff.bound_us == pytest.approx(10 + 96 / 20)
    assert cliff.again == (CONFIGS[64], CONFIGS[48], CONFIGS[96])
    assert "M = 64 takes 40.00 µs" in cliff.sentence


def test_runners_up_beside_it_are_measured_again_too() -> None:
    second = FAMILY.config({"tile_n": 64, "stages": 3})
    rungs = [replace(rung, runner_up=second) if rung.problem.m == 48 else rung for rung in table(m64=40.0)]
    (cliff,) = cliffs(rungs, H200)
    assert cliff.again == (CONFIGS[64], CONFIGS[48], second, CONFIGS[96])


def test_a_large_m_that_takes_longer_than_repeating_a_small_one_is_found_too() -> None:
    found: list[Cliff] = cliffs(table(m16384=5_000.0), H200)
    (cliff,) = found
    assert (cliff.kind, cliff.suspect.problem.m, cliff.witness.problem.m) == ("jump", 16384, 8192)
    assert cliff.bound_us == pytest.approx(2 * (10 + 8192 / 20))


def test_times_of_two_policies_bound_each_other_nowhere() -> None:
    long = {1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384}
    warmer = table(**{f"m{m}": 1.3 * (10.0 + m / 20) for m in long})
    assert cliffs(warmer, H200)
    told = [replace(one, policy=Policy.SUSTAINED) if one.problem.m in long else one for one in warmer]
    assert cliffs(told, H200) == []


def test_the_worst_cliff_comes_first_and_illegal_configs_are_not_measured_again() -> None:
    rungs = table(m64=40.0, m512=100.0)
    broken = FAMILY.config({"tile_n": 256, "stages": 16})
    rungs = [Rung(r.problem, r.config, r.time_us, r.policy, broken if r.problem.m == 96 else None) for r in rungs]
    found = cliffs(rungs, H200)
    assert [cliff.suspect.problem.m for cliff in found] == [64, 512]
    # By the share that is lost, whichever is shorter.
    assert [cliff.suspect.problem.m for cliff in cliffs(table(m64=15.5, m512=100.0), H200)] == [512, 64]
    assert broken not in found[0].again


def test_what_is_measured_again_is_what_the_device_can_run_and_not_the_familys_own() -> None:
    mma, a100 = family_named("mma_sync"), profile_named("A100 80GB SXM")
    # Seven stages take 112 KiB: more than a block of the family's reference has.
    deep, shallow = mma.config({"stages": 7}), mma.config({"stages": 2})
    slow, beside = (Gemm(m, 4096, 4096) for m in (512, 1024))
    assert not is_legal(mma, slow, deep)
    (cliff,) = cliffs([Rung(slow, deep, 50.0, Policy.CHAIN), Rung(beside, shallow, 40.0, Policy.CHAIN)], a100)
    assert cliff.again == (deep, shallow)
