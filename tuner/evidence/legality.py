"""Legality: whether today's rules accept what was measured. A rule may be newer than a measurement."""

from __future__ import annotations

from collections.abc import Iterable

from space.config import Config
from space.devices import find_profile
from space.explain import first_broken
from space.family import family_named, is_own
from space.problem import Problem


def forbidden(problem: Problem, config: Config, device: str) -> str:
    """The rule that a measured config breaks today, with its numbers; empty if it breaks none.

    The library checks its own configs, and nothing is known of the limits of an unknown card.
    """
    family, profile = family_named(config.family), find_profile(device)
    if profile is None or not family.own:
        return ""
    return first_broken(family, problem, config, profile)


def forbidden_among(problem: Problem, configs: Iterable[Config], device: str) -> dict[Config, str]:
    """The configs that a rule forbids by now, each with the rule."""
    return {config: rule for config in set(configs) if (rule := forbidden(problem, config, device))}


def all_forbidden(problem: Problem, finals: Iterable[Config], device: str) -> bool:
    """Whether finals had configs of ours, and rules forbid each of them by now: others of the screening may stand."""
    own = [config for config in finals if is_own(config)]
    return bool(own) and all(forbidden(problem, config, device) for config in own)
