"""Coordinates: how candidates stand in an Optuna study, of one family or of several that compete.

A config of a family alone stands there by its knobs. Where several families compete, `family` is one parameter more,
knobs are named `family.knob`, and those of the other families stand at their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from optuna.distributions import BaseDistribution, CategoricalDistribution

from space.config import Config
from space.family import Family
from space.registry import FAMILIES
from tuner.prediction.pool import distribution_of

FAMILY = "family"
_VALUE: Final = itemgetter(1)


@dataclass(frozen=True)
class Coordinates:
    """See the module.

    Attributes:
        families: in the order of the registry.
    """

    families: tuple[Family, ...]

    @classmethod
    def of(cls, configs: Iterable[Config]) -> Coordinates:
        """Those of the families that occur."""
        names = {config.family for config in configs}
        return cls(tuple(family for name, family in FAMILIES.items() if name in names))

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Of every parameter."""
        found: dict[str, BaseDistribution] = {}
        if len(self.families) > 1:
            found[FAMILY] = CategoricalDistribution(tuple(family.name for family in self.families))
        for family in self.families:
            found |= {self._name(family, knob.name): distribution_of(knob.domain) for knob in family.knobs}
        return found

    def params(self, config: Config) -> dict[str, Any]:
        """A config's parameters, in the order of `distributions`."""
        if len(self.families) == 1:
            return dict(config.values)
        return {**self._defaults, FAMILY: config.family,
                **{f"{config.family}.{name}": value for name, value in config.values}}  # fmt: skip

    def values(self, config: Config) -> tuple[Any, ...]:
        """The values of `params` alone."""
        if len(self.families) == 1:
            return tuple(map(_VALUE, config.values))
        before, after = self._around[config.family]
        return (config.family, *before, *map(_VALUE, config.values), *after)

    def config(self, params: Mapping[str, Any]) -> Config:
        """The inverse of `params`."""
        family = self.families[0]
        if len(self.families) > 1:
            family = next(one for one in self.families if one.name == params[FAMILY])
        return family.config({knob.name: params[self._name(family, knob.name)] for knob in family.knobs})

    @cached_property
    def _around(self) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """For each family, the defaults that stand before and after its own knobs."""
        knobs = [tuple(knob.default for knob in family.knobs) for family in self.families]
        return {
            family.name: (tuple(chain(*knobs[:place])), tuple(chain(*knobs[place + 1 :])))
            for place, family in enumerate(self.families)
        }

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        knobs = {self._name(family, knob.name): knob.default for family in self.families for knob in family.knobs}
        return {FAMILY: self.families[0].name, **knobs}

    def _name(self, family: Family, knob: str) -> str:
        return knob if len(self.families) == 1 else f"{family.name}.{knob}"
