"""Groups of measurements whose times are known, and the model that learned from them."""

from __future__ import annotations

from functools import cache

import numpy as np

from space.devices import profile_named
from space.enumerate import enumerate_space
from space.kinds.gemm import Gemm
from space.rank import rank
from tests.support import FAMILY
from tuner.prediction.examples import Group
from tuner.prediction.learned import LearnedModel
from tuner.prediction.train import train

H200 = profile_named("NVIDIA H200")
H100 = "NVIDIA H100 80GB HBM3"

#: Enough trees to show a knob's effect, and fast to train.
TREES = 48
SHAPES = ("1024x1024x1024", "2048x1024x1024", "1024x2048x2048", "2048x2048x1024", "512x1024x2048")


@cache
def group(problem: Gemm) -> Group:
    """Times that the analytic model has wrong by a third wherever C is stored directly, and by a fifth overall; as
    repeatable as a GPU's."""
    ranked = rank(enumerate_space(FAMILY, problem), H200)
    configs = [ranked.config(place) for place in range(0, len(ranked), 150)][:60]
    columns = FAMILY.columns(problem, configs)
    direct = np.array([config["epilogue"] == "direct" for config in configs])
    noise = np.exp(0.01 * np.random.default_rng(problem.k + problem.n).standard_normal(len(configs)))
    times = FAMILY.estimate_us(columns, H200) * 1.2 * (1 + direct / 3) * noise
    return Group(problem, H200.name, tuple(configs), times)


@cache
def taught() -> LearnedModel:
    """A model of all shapes."""
    return train([group(Gemm.parse(shape)) for shape in SHAPES], FAMILY, H200.name, trees=TREES)


def predicted(model: LearnedModel, held: Group) -> np.ndarray:
    return model.predict(held.problem, FAMILY.columns(held.problem, held.configs)).time_us
