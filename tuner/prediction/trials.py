"""How a config is spelled in an Optuna trial: each knob is a parameter named `family.knob`."""

from __future__ import annotations

from itertools import pairwise

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from space.config import Config
from space.knobs import Knob, KnobValue
from space.plug import Family


def params_of(config: Config) -> dict[str, KnobValue]:
    """The parameters of a config's trial; those of other families that compete are not part of it."""
    return {f"{config.family}.{name}": value for name, value in config.values}


def distributions_of(family: Family) -> dict[str, BaseDistribution]:
    """The distribution of each parameter of a family."""
    return {f"{family.name}.{knob.name}": distribution_of(knob) for knob in family.knobs}


def distribution_of(knob: Knob) -> BaseDistribution:
    """Evenly stepped integers keep their order; every other domain is categorical."""
    whole = [value for value in knob.domain if isinstance(value, int) and not isinstance(value, bool)]
    steps = {after - before for before, after in pairwise(whole)}
    if len(whole) == len(knob.domain) and len(steps) == 1:
        return IntDistribution(whole[0], whole[-1], step=steps.pop())
    return CategoricalDistribution(tuple(knob.domain))
