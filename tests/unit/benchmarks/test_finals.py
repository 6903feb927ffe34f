"""What kept finals say, where the answer is known."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.deployed_table import Row
from benchmarks.finals import (
    again,
    against_torch,
    beside_torch,
    blocks,
    energy,
    first_choices,
    leaders,
    loads,
    orders,
    policies,
    seconds,
    unlisted,
)
from benchmarks.finals_kept import CLASSES, Finals, finals_of
from benchmarks.restored import restored
from space.families.cublaslt import NOT_LISTED
from space.family import family_named, is_own
from space.kinds.gemm import Gemm
from tests.support import PROVENANCE, measured, study_key
from tuner.evidence.picks import bests_of
from tuner.evidence.store import Store
from workers.cuda.regimes import order_of
from workers.measurement import Measurement, Outcome, Policy, Verification

CLEAN = Verification(elements=1, mismatches=0, worst_ratio=0.1, reference="test")
PROBLEM = Gemm.parse("4096x4096x4096")
#: By tile_n: bursts and sustained blocks of ours; the library is last.
TIMES = {64: (100.0, [112.0, 112.0]), 128: (101.0, [110.0, 110.0]), 192: (102.0, [108.0, 109.0]),
         256: (103.0, [106.0]), 0: (104.0, [104.0, 104.0])}  # fmt: skip


def taken(tile_n: int, policy: Policy, samples: list[float]) -> Measurement:
    config = family_named("sm90_wgmma").config({"tile_n": tile_n}) if tile_n else family_named("cublaslt").config({})
    joules = samples[0] * 700 / 1e6 if policy is Policy.SUSTAINED else None
    return Measurement(PROBLEM.key, config, "final", policy, Outcome.CORRECT, tuple(samples), verification=CLEAN,
                       product_joules=joules)  # fmt: skip


@pytest.fixture
def finals() -> Finals:
    by_policy: dict[Policy, dict[str, Measurement]] = {}
    for tile_n, (burst, sustained) in TIMES.items():
        turns = {Policy.BURST: [burst], Policy.CHAIN: [burst], Policy.ROUNDS: [300 - burst]}
        for policy, each in (turns | {Policy.SUSTAINED: sustained}).items():
            one = taken(tile_n, policy, each)
            by_policy.setdefault(policy, {})[one.config.key] = one
    return Finals(PROBLEM, PROVENANCE.device, CLASSES[0], by_policy)


def test_orders_are_compared_rival_by_rival(finals: Finals) -> None:
    assert finals.correlation(Policy.BURST) == pytest.approx(-1)
    assert finals.correlation(Policy.ROUNDS) == finals.correlation(None) == pytest.approx(1)
    assert "| power decides | 1 | -1.00 | -1.00 | 1.00 | 1.00 |" in [*orders([finals])]


def test_fewer_leaders_cost_what_their_best_is_behind(finals: Finals) -> None:
    losses = [finals.loss(*few) for few in ((1, 1), (1, 4), (3, 3))]
    # Over the passes that both took part in.
    assert losses == pytest.approx([112 / 106 - 1, 0, 108 / 106 - 1])
    assert "| 3 | 4 | 0.000% | 0.00% | 0.000% | 0.00% |  |  |" in [*leaders([finals])]
    # Where `chain` decides, whose order is that by bursts here, the first is the best.
    assert Finals(finals.problem, finals.device, CLASSES[1], finals.by_policy).loss(1, 1) == 0


def test_what_loads_cost_is_fitted_where_configs_load_differently(finals: Finals) -> None:
    ours = [(tile_n, *times) for tile_n, times in TIMES.items() if tile_n]
    logs = [math.log(statistics.median(blocks_us) / burst_us) for _, burst_us, blocks_us in ours]
    slope = np.polyfit([1 / tile_n for tile_n, _, _ in ours], logs, 1)[0]
    (fitted,) = loads([finals])
    assert fitted.startswith(f"`sustained` over `burst` rises by {slope:.2f} for")
    assert "in 4 configs" in fitted
    alone = {policy: dict([*each.items()][:1]) for policy, each in finals.by_policy.items()}
    (none,) = loads([Finals(finals.problem, finals.device, CLASSES[0], alone)])
    assert none.startswith("No two configs")


@pytest.mark.parametrize(("burst", "sustained", "said"), [
    (104.5, 102.0, "within 1% of its best in 1 finals where power decides, was faster in 1 (at most 1.96%)."),
    (104.5, 105.0, "within 1% of its best in 1 finals where power decides, was faster in 0 (at most 0.00%)."),
    (106.5, 102.0, "farther behind in 1 finals where power decides, was faster in 1 (at most 1.96%)."),
])  # fmt: skip
def test_the_librarys_second_is_held_against_its_best(
    finals: Finals, burst: float, sustained: float, said: str
) -> None:
    assert [*seconds([finals])] == [], "the library's first choice is alone"
    for policy, us in ((Policy.BURST, burst), (Policy.SUSTAINED, sustained)):
        second = replace(taken(0, policy, [us]), config=family_named("cublaslt").config({"rank": 1}))
        finals.by_policy[policy][second.config.key] = second
    assert [line.partition("choice, ")[2] for line in seconds([finals])] == [said]
    ours = {policy: {one.config.key: one for one in of.values() if is_own(one.config)}
            for policy, of in finals.by_policy.items()}  # fmt: skip
    assert [*seconds([replace(finals, by_policy=ours)])] == [], "the library took no part"


def test_what_the_library_does_not_list_is_held_against_what_it_lists(finals: Finals) -> None:
    assert [*unlisted([finals])] == [], "nothing that is not listed took part"
    config = family_named("cublaslt").config({"rank": 1})
    other = replace(taken(0, Policy.BURST, [100.0]), config=config, note=f"algorithm 66, {NOT_LISTED}")
    finals.by_policy[Policy.BURST][config.key] = other
    assert [*unlisted([finals])][2:] == ["| power decides | 1 | 1 | 1 | 1.040 | 1.040 |"]
    # The library's fastest, beside ours and in torch, is of those that it lists.
    assert [one.config for one in finals.fastest()][1] == family_named("cublaslt").config({})


def test_the_fastest_under_one_policy_is_compared_under_all(finals: Finals) -> None:
    _, _, sustained, burst, chain = policies([finals])
    # The library took 104 us under each; `256` is the fastest under `sustained`, `64` in bursts.
    assert sustained == f"| sustained | 1 | {104 / 106:.3f} | {104 / 103:.3f} | {104 / 103:.3f} |"
    assert burst == chain.replace("chain", "burst") == f"| burst | 1 | {104 / 112:.3f} | 1.040 | 1.040 |"
    finals.by_policy[Policy.SUSTAINED].popitem()
    assert [*policies([finals])] == [], "without the library nothing is compared"


def test_blocks_are_compared_by_place_and_a_single_one_is_not(finals: Finals) -> None:
    ratios = {1.0, 108 / 109}
    assert {ratio for _, ratio in finals.places()} == ratios
    places = {place: number for place, number in enumerate(order_of(0, 5))}
    assert {place for place, _ in finals.places()} == {place for place, number in places.items() if number != 3}
    assert "| power decides | 4 | 0.33% |" in [*blocks([finals])]
    (medians,) = [line for line in blocks([finals]) if "by place" in line]
    # The fourth in `TIMES` has one block; the third's first is faster.
    assert sorted(medians.rpartition(": ")[2].rstrip(".").split(", ")) == ["+0.00%"] * 3 + ["-0.92%"]


def test_a_winner_that_is_far_ahead_wins_again_and_one_that_just_ties_does_so_half_of_the_time(finals: Finals) -> None:
    sustained = finals.by_policy[Policy.SUSTAINED]
    for place, (key, one) in enumerate([*sustained.items()]):
        sustained[key] = replace(one, samples_us=(100.0, 101.0) if place == 1 else (120.0, 120.0))
    assert "| 1 | 100% |  |  |" in [*again([finals])]
    (_, _), (second, one), (third, other) = [*sustained.items()][:3]
    sustained[third] = replace(other, samples_us=(100.0, 101.0))
    # Behind by the percent within which they tie, so that scatter decides.
    sustained[second] = replace(one, samples_us=(101.0, 102.01))
    line = next(line for line in again([finals]) if line.startswith("| 64 |"))
    assert 30 <= int(line.split("|")[2].strip(" %")) <= 70
    assert line.endswith("| 1.00% | 1.00% |")
    sustained[second] = replace(one, samples_us=(100.0, 101.0))
    assert next(line for line in again([finals]) if line.startswith("| 64 |")) == "| 64 | 100% |  |  |"


def test_energy_is_that_of_the_fastest(finals: Finals) -> None:
    (said,) = energy([finals])
    assert "5 rivals: 700 W (median)" in said
    assert f"takes {106 * 700 / PROBLEM.flops * 1e6:.3f} pJ a flop (median of 1)" in said


def test_energy_is_that_of_long_products_whose_counter_said_something(finals: Finals) -> None:
    hungry = replace(next(iter(finals.by_policy[Policy.SUSTAINED].values())), product_joules=None)
    finals.by_policy[Policy.SUSTAINED][hungry.config.key] = hungry
    # The frugal one is not the fastest.
    frugal = finals.own()[1]
    finals.by_policy[Policy.SUSTAINED][frugal.config.key] = replace(frugal, product_joules=1e-9)
    short = Finals(finals.problem, finals.device, CLASSES[1], finals.by_policy)
    (said,) = energy([finals, short])
    assert "4 rivals: 698 W (median), nine of ten between 0 and 700." in said
    assert f"takes {106 * 700 / PROBLEM.flops * 1e6:.3f} pJ a flop (median of 1)" in said
    assert [*energy([short])] == []
    assert [line.rpartition("| ")[0] for line in orders([finals])][-1].endswith("| 1.00 ")


@pytest.mark.parametrize("own", [False, True])
def test_energy_of_one_side_alone_is_compared_with_nothing(finals: Finals, own: bool) -> None:
    sustained = finals.by_policy[Policy.SUSTAINED]
    for key, one in sustained.items():
        if is_own(one.config) is not own:
            sustained[key] = replace(one, product_joules=None)
    (said,) = energy([finals])
    assert f"{4 if own else 1} rivals: 700 W (median)" in said
    assert "flop" not in said


def in_torch(own: float, library: float) -> Row:
    us = {"torch": {}, "own": {"alone": own, "chain": 1.0}, "library": {"alone": library, "chain": 1.0}}
    return Row("sq4096_bf16", "square", "4096x4096x4096", "bf16", 1.0, "", us, {}, 1.0)


@pytest.mark.parametrize(("own", "line"), [
    # 104 µs for 106, in blocks that scatter by 0.3 %: the interval is 0.7 % wide on each side.
    (106.0, "| power decides | 1 | 1 | 1 | 0.0% | 0.0% | +0.00% |"),
    (106.5, "| power decides | 1 | 1 | 0 | 0.5% | 0.5% | +0.47% |"),
    (105.0, "| power decides | 1 | 0 | 0 | 0.9% | 0.9% | -0.94% |"),
])  # fmt: skip
def test_finals_are_held_against_torch(finals: Finals, own: float, line: str) -> None:
    assert [*against_torch(beside_torch([finals], [in_torch(own, 104.0)]))][2:] == [line]


def test_where_chain_decides_its_times_are_held_against_torch(finals: Finals) -> None:
    short = Finals(finals.problem, finals.device, CLASSES[2], finals.by_policy)
    # 104 µs for 100, in torch as fast.
    assert [*against_torch(beside_torch([short], [in_torch(1.0, 2.0)]))][2:] == [
        "| memory sets the pace | 1 | 0 | 0 | 4.0% | 4.0% | +4.00% |"
    ]
    assert len([*against_torch(beside_torch([short], []))]) == 2


@pytest.mark.parametrize(("torch", "said", "lines"), [
    # The first choice takes 104 µs, the library's fastest 80.
    (80.0, "for 0 of 1 problems", ["| bf16 nt 4096x4096x4096 | 1.30 |"]),
    (160.0, "for 0 of 1 problems", ["| bf16 nt 4096x4096x4096 | 0.65 |"]),
    (103.0, "for 1 of 1 problems", []),
])  # fmt: skip
def test_what_torch_runs_is_held_against_the_first_choice(
    finals: Finals, torch: float, said: str, lines: list[str]
) -> None:
    sustained = finals.by_policy[Policy.SUSTAINED]
    (first,) = (one for one in sustained.values() if one.config.family == "cublaslt")
    second = replace(first, config=family_named("cublaslt").config({"rank": 1}), samples_us=(80.0, 80.0))
    sustained[second.config.key] = second
    row = in_torch(1.0, 80.0)
    row = replace(row, us={**row.us, "torch": {"alone": torch}})
    sentence, *table = first_choices(beside_torch([finals], [row]))
    assert said in sentence
    assert table[3:] == lines
    assert "for 0 of 0 problems" in next(first_choices(beside_torch([finals], [])))


def test_finals_are_those_of_the_served_best_and_correct(tmp_path: Path) -> None:
    problem, url = Gemm.parse("16x4096x4096"), f"sqlite:///{tmp_path}/store.db"
    own, other = (family_named("sm90_wgmma").config({"tile_n": width}) for width in (64, 256))
    with Store.open(url, create=True) as store:
        study = store.begin_study(study_key(problem))
        taken = [measured(own, 9.0, problem, "final", policy=policy) for policy in (Policy.CHAIN, Policy.BURST)]
        wrong = measured(other, 1.0, problem, "final", Outcome.WRONG_RESULT, policy=Policy.CHAIN)
        store.set_bests(bests_of(problem, store.record_many(study.id, [*taken, wrong], PROVENANCE), 2, {}))
        store.backup(tmp_path / "backup.jsonl.gz")
    with restored(tmp_path / "backup.jsonl.gz", tmp_path) as kept:
        (found,) = finals_of(kept)
    assert (found.problem, found.group, found.decides) == (problem, CLASSES[2], Policy.CHAIN)
    assert {policy: [*keys] for policy, keys in found.by_policy.items()} == {
        Policy.CHAIN: [own.key], Policy.BURST: [own.key]
    }  # fmt: skip
