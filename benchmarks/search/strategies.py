"""Strategies: each returns the order in which it measures a replay's candidates."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import numpy as np

from benchmarks.search.deepgemm import rule_order
from benchmarks.search.kernel_tuner import kernel_tuner_order
from benchmarks.search.nvmmh import nvmmh_order
from benchmarks.search.replay import Replay
from benchmarks.search.setting import Setting, Split, without_class, without_problem, without_tenth
from space.devices import profile_named
from tuner.studying.guidance import Guidance, order_for
from tuner.studying.screening import batch_size

#: (replay, setting, seed, most) to places in `replay.configs`, first measured first.
Strategy = Callable[[Replay, Setting, int, int], list[int]]

#: Strategies of Kernel Tuner, run through its own simulation.
KERNEL_TUNER: Final = (
    "genetic_algorithm", "simulated_annealing", "bayes_opt", "hybrid_vndx", "adaptive_tabu_greywolf"
)  # fmt: skip


def guided(split: Split | None) -> Strategy:
    """Our search in a study's batches, with a model of the split's training data or with the analytic model."""

    def order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
        guidance = Guidance()
        if split is not None:
            teachers = split(replay, setting.replays)
            guidance = Guidance(setting.model(teachers, seed), setting.winners(replay, teachers))
        return _asked(replay, guidance, most)

    return order


def ranked(split: Split | None) -> Strategy:
    """The expected order alone, which shows what learning from results adds."""

    def order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
        columns = setting.family.columns(replay.problem, replay.configs)
        if split is None:
            expected = setting.family.estimate_us(columns, profile_named(replay.device))
        else:
            expected = setting.model(split(replay, setting.replays), seed).predict(replay.problem, columns).time_us
        return [int(place) for place in np.argsort(expected, kind="stable")[:most]]

    return order


def chance(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
    """A random order."""
    places = list(range(len(replay.configs)))
    random.Random(seed).shuffle(places)
    return places[:most]


#: Learning strategies with their splits; only their forests depend on the seed.
SPLITS: Final[dict[str, Split]] = {
    "guided": without_problem,
    "guided, tenth left out": without_tenth,
    "guided, class left out": without_class,
    "learned order": without_problem,
    "learned order, class left out": without_class,
}
STRATEGIES: Final[dict[str, Strategy]] = {
    "guided": guided(SPLITS["guided"]),
    "guided, tenth left out": guided(SPLITS["guided, tenth left out"]),
    "guided, class left out": guided(SPLITS["guided, class left out"]),
    "guided, analytic": guided(None),
    "learned order": ranked(SPLITS["learned order"]),
    "learned order, class left out": ranked(SPLITS["learned order, class left out"]),
    "analytic order": ranked(None),
    "random": chance,
    **{f"Kernel Tuner {name}": kernel_tuner_order(name) for name in KERNEL_TUNER},
    "nvMatmulHeuristics": nvmmh_order,
    "DeepGEMM's rule": rule_order,
}
#: Strategies without a random choice: one seed is enough.
FIXED: Final = frozenset({"guided, analytic", "analytic order", "nvMatmulHeuristics", "DeepGEMM's rule"})


def _asked(replay: Replay, guidance: Guidance, most: int) -> list[int]:
    """What a study tries, batch by batch, each batch's recorded times told before the next one."""
    place_of = {config: place for place, config in enumerate(replay.configs)}
    tried = order_for(guidance, replay.problem, replay.configs, replay.device)
    order: list[int] = []
    while batch := tried.take(min(batch_size(len(order)), most - len(order))):
        order += [place_of[config] for config in batch]
        for config in batch:
            tried.tell(config, float(replay.time_us[place_of[config]]))
    return order
