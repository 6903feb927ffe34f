"""What training says of its own errors, on problems that it held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from space.kinds.gemm import Gemm
from tests.support import FAMILY
from tests.unit.tuner.prediction.groups import H100, H200, SHAPES, TREES, group, predicted, taught
from tuner.prediction.judge import _Held, judge
from tuner.prediction.learned import LearnedModel
from tuner.prediction.train import train


@pytest.fixture(scope="module")
def model() -> LearnedModel:
    return taught()


def test_its_numbers_on_held_out_problems_are_those_of_models_that_never_saw_them(model: LearnedModel) -> None:
    shares = []
    for shape in SHAPES:
        held = group(Gemm.parse(shape))
        rest = [group(Gemm.parse(other)) for other in SHAPES if other != shape]
        first = int(np.argmin(predicted(train(rest, FAMILY, H200.name, trees=TREES), held)))
        shares.append(held.time_us.min() / held.time_us[first])
    assert model.facts.held_out_share == pytest.approx(float(np.exp(np.mean(np.log(shares)))), abs=0.03)


def test_a_held_out_problem_is_judged_with_the_trust_that_the_others_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [group(Gemm.parse(shape)) for shape in SHAPES[:3]]
    estimates = [FAMILY.estimate_us(FAMILY.columns(one.problem, one.configs), H200) for one in groups]
    # Of the first problem the estimate has the order upside down, of the others it is right.
    times = [1 / estimates[0], *estimates[1:]]
    groups = [dataclasses.replace(one, time_us=us) for one, us in zip(groups, times, strict=True)]

    def held_out(tasks: Sequence[Any], *_: object) -> list[Any]:
        """Corrections that are right for the first problem, and misplace one candidate of each other."""
        slower = [np.where(us == us[us > 1.04 * us.min()].min(), -5.0, 0.0) for us in times]
        return [_Held(fold, task, slower[fold] if fold else task.error, 0.0) for fold, task in enumerate(tasks)]

    monkeypatch.setattr("tuner.prediction.judge._held_out", held_out)
    facts = judge(groups, FAMILY, H200.name).facts
    assert facts["trust"] == 1.0
    assert facts["held_out_worst"] == pytest.approx(times[0].min() / times[0].max())


def test_a_judgement_made_once_serves_every_forest_of_the_same_problems(model: LearnedModel) -> None:
    groups = [group(Gemm.parse(shape)) for shape in SHAPES]
    judgement = judge(groups, FAMILY, H200.name, trees=TREES)
    again = train(groups, FAMILY, H200.name, trees=TREES, judgement=judgement)
    assert again.facts == model.facts
    assert np.array_equal(again.levels, model.levels)
    other = train(groups, FAMILY, H200.name, seed=1, trees=TREES, judgement=judgement)
    assert other.facts == model.facts
    assert not np.array_equal(other.forest.value, model.forest.value)


def test_nothing_of_a_held_out_problem_reaches_the_numbers_that_scale_it(model: LearnedModel) -> None:
    """The same problem with times a hundred times longer changes its own judgement, never the others' forests."""
    groups = [group(Gemm.parse(shape)) for shape in SHAPES]
    absurd = dataclasses.replace(groups[0], time_us=groups[0].time_us * 100)
    held = train([absurd, *groups[1:]], FAMILY, H200.name, trees=TREES)
    # Its level alone is absurd: how candidates of one problem differ is the same as before.
    assert held.facts.held_out_share == pytest.approx(model.facts.held_out_share, abs=0.02)
    assert held.facts.doubt == pytest.approx(model.facts.doubt, abs=0.02)
    assert held.facts.high > model.facts.high + 1


def test_a_problem_is_left_out_on_all_cards_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [group(Gemm.parse(shape)) for shape in SHAPES]
    there = [dataclasses.replace(each, device=H100) for each in here]
    asked = []
    monkeypatch.setattr("tuner.prediction.judge.smoothed", lambda rows, *_: asked.append(len(rows)) or 0.0)
    judge([*here, *there], FAMILY, H200.name, trees=2)
    assert set(asked) == {2 * len(SHAPES) - 2}
