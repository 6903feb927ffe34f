"""Strategies: each gives the order in which it would measure a replay's candidates."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Final
from unittest import mock

import numpy as np
import optuna
from optuna.trial import TrialState

from benchmarks.search.deepgemm import rule_order
from benchmarks.search.kernel_tuner import kernel_tuner_order
from benchmarks.search.nvmmh import nvmmh_order
from benchmarks.search.replay import Replay
from benchmarks.search.setting import Setting, Split, without_class, without_problem
from space.devices import profile_named
from tuner.prediction.coordinates import Coordinates
from tuner.studying.batches import batch_size
from tuner.studying.choice import GUIDED, Guidance, sampler_for

#: (replay, setting, seed, most) to places in `replay.configs`, first measured first.
Strategy = Callable[[Replay, Setting, int, int], list[int]]

#: Strategies of Kernel Tuner, run through its own simulation.
KERNEL_TUNER: Final = (
    "genetic_algorithm", "simulated_annealing", "bayes_opt", "hybrid_vndx", "adaptive_tabu_greywolf"
)  # fmt: skip


def guided(split: Split | None) -> Strategy:
    """Ours, in the batches of a study; with what the split lets it learn, or the analytic model alone."""

    def order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
        guidance = Guidance(GUIDED)
        if split is not None:
            teachers = split(replay, setting.replays)
            model, winners = setting.model(teachers, seed), setting.winners(replay, teachers)
            guidance = replace(guidance, model=model, winners=winners)
        return _asked(replay, setting, guidance, most, batch_size)

    return order


def optuna_sampler(name: str) -> Strategy:
    """One of Optuna's, one trial at a time: it sees each result before it is asked again."""

    def order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
        with _no_device_mode() if name == "gp" else nullcontext():
            return _asked(replay, setting, Guidance(name, seed), most, lambda tried: 1)

    return order


@contextmanager
def _no_device_mode() -> Iterator[None]:
    """Inside, Optuna's GP sampler does not ask PyTorch for the processor, where it is anyway.

    Asking makes PyTorch call Python at each of its operations: two fifths of a run, for the same proposals.
    """
    try:
        import torch
        from optuna.samplers._gp import sampler
    except ImportError:
        # Whoever needs it says so.
        yield
        return

    class Plain:
        """PyTorch, but for its mode."""

        def __getattr__(self, name: str) -> object:
            return getattr(torch, name)

        def device(self, name: str) -> nullcontext[None]:
            return nullcontext()

    with mock.patch.object(sampler, "torch", Plain()):
        yield


def ranked(split: Split | None) -> Strategy:
    """No search: the order of what is expected, to tell what refining it adds."""

    def order(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
        columns = setting.family.columns(replay.problem, replay.configs)
        if split is None:
            expected = setting.family.estimate_us(columns, profile_named(replay.device))
        else:
            expected = setting.model(split(replay, setting.replays), seed).predict(replay.problem, columns).time_us
        return [int(place) for place in np.argsort(expected, kind="stable")[:most]]

    return order


def chance(replay: Replay, setting: Setting, seed: int, most: int) -> list[int]:
    """Without replacement, every order as likely."""
    places = list(range(len(replay.configs)))
    random.Random(seed).shuffle(places)
    return places[:most]


#: Strategies that learn, and what they may learn from. Their forests differ by seed, nothing else does.
SPLITS: Final[dict[str, Split]] = {
    "guided": without_problem,
    "guided, class left out": without_class,
    "learned order": without_problem,
    "learned order, class left out": without_class,
}
STRATEGIES: Final[dict[str, Strategy]] = {
    "guided": guided(SPLITS["guided"]),
    "guided, class left out": guided(SPLITS["guided, class left out"]),
    "guided, analytic": guided(None),
    "learned order": ranked(SPLITS["learned order"]),
    "learned order, class left out": ranked(SPLITS["learned order, class left out"]),
    "analytic order": ranked(None),
    "random": chance,
    "Optuna TPE": optuna_sampler("tpe"),
    "Optuna GP": optuna_sampler("gp"),
    "Optuna CMA-ES": optuna_sampler("cmaes"),
    **{f"Kernel Tuner {name}": kernel_tuner_order(name) for name in KERNEL_TUNER},
    "nvMatmulHeuristics": nvmmh_order,
    "DeepGEMM's rule": rule_order,
}
#: They make no random choice: one seed says it all.
FIXED: Final = frozenset({"guided, analytic", "analytic order", "nvMatmulHeuristics", "DeepGEMM's rule"})
#: They fit a model anew before each measurement.
SLOW: Final = frozenset({"Optuna GP"})


def _asked(
    replay: Replay, setting: Setting, guidance: Guidance, most: int, size_of: Callable[[int], int]
) -> list[int]:
    """What a sampler proposes in an Optuna study, told each batch's recorded times before the next one."""
    place_of = {config: place for place, config in enumerate(replay.configs)}
    sampler = sampler_for(guidance, replay.problem, replay.configs, replay.device)
    study = optuna.create_study(sampler=sampler)
    stand = Coordinates.of(replay.configs)
    order: list[int] = []
    while (left := min(most, len(replay.configs)) - len(order)) > 0:
        trials = [study.ask(stand.distributions) for _ in range(min(size_of(len(order)), left))]
        for trial in trials:
            place = place_of[stand.config(trial.params)]
            order.append(place)
            time_us = float(replay.time_us[place])
            if np.isfinite(time_us):
                study.tell(trial, time_us)
            else:
                study.tell(trial, state=TrialState.FAIL)
    return order
