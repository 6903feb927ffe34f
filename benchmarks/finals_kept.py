"""The finals that stores keep, and what can be asked of each."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.deployed_table import arm_of
from benchmarks.sustained_order import rank_correlation
from space.devices import find_profile
from space.family import is_own
from space.problem import Problem
from space.rank import at_power_limit_us, may_reach_power_limit, power_decides
from space.structures import best_of_structures
from tuner.evidence.picks import DEPLOYED, Rivals, ahead, standings, versus
from tuner.evidence.store import Store
from workers.cuda.regimes import order_of
from workers.measurement import Measurement, Outcome, Policy

CLASSES: Final = ("power decides", "power may limit the clock", "memory sets the pace")


@dataclass(frozen=True)
class Finals:
    """The finals of one problem: measurements by policy, then by config's key, in the order of the rivals."""

    problem: Problem
    device: str
    group: str
    by_policy: dict[Policy, dict[str, Measurement]]

    @property
    def decides(self) -> Policy:
        """The policy under which the winner is picked."""
        return Policy.SUSTAINED if self.group == CLASSES[0] else Policy.CHAIN

    @property
    def sustained(self) -> list[Measurement]:
        return list(self.by_policy.get(Policy.SUSTAINED, {}).values())

    def own(self, *, loads: bool = False) -> list[Measurement]:
        """Ours under `sustained`, fastest by bursts first, or by bursts and what each config loads."""
        bursts = self.by_policy[Policy.BURST]

        def expected_us(one: Measurement) -> float:
            burst_us = bursts[one.config.key].median_us
            return at_power_limit_us(one.config, burst_us) if loads else burst_us

        return sorted((one for one in self.sustained if is_own(one.config)), key=expected_us)

    def correlation(self, policy: Policy | None) -> float:
        """Spearman's, of times under `sustained` with those under another policy, or with joules."""
        if policy is None:
            others = [one.product_joules or math.nan for one in self.sustained]
        else:
            rivals = [self.by_policy[policy][one.config.key] for one in self.sustained]
            others = [one.behind for one in standings(rivals, self.device)]
        return rank_correlation([one.median_us for one in self.sustained], others)

    def loss(self, fastest: int, most: int, *, loads: bool = False) -> float:
        """How much longer the fastest of fewer leaders of ours takes than the fastest of all of them."""
        decides, own = self.by_policy[self.decides], self.own(loads=loads)
        chosen = best_of_structures(own, lambda one: one.config, fastest, most)
        few, all_of_them = (ahead([decides[one.config.key] for one in some])[0] for some in (chosen, own))
        return max(versus(few, all_of_them, self.device).value - 1, 0.0)

    def fastest(self) -> list[Measurement]:
        """The fastest of ours and of what the library lists under the policy that decides, where there are both."""
        rivals = list(self.by_policy[self.decides].values())
        arms = ([one for one in rivals if arm_of(one) == arm] for arm in ("own", "library"))
        return [ahead(arm)[0] for arm in arms if arm]

    def gain_over_first(self) -> float:
        """How many times as fast as the library's first choice the fastest that it lists is under the policy that
        decides; nan where there is none."""
        theirs = [one for one in self.by_policy[self.decides].values() if arm_of(one) == "library"]
        return max((versus(theirs[0], one, self.device).value for one in theirs), default=math.nan)

    def gain_of_unlisted(self) -> float | None:
        """How many times as fast by bursts the library's fastest is that its heuristic doesn't list as the fastest that
        it lists; None where there are not both."""
        bursts = self.by_policy[Policy.BURST].values()
        listed, others = ([one for one in bursts if arm_of(one) == arm] for arm in ("library", "unlisted"))
        return versus(ahead(listed)[0], ahead(others)[0], self.device).value if listed and others else None

    def gains(self, policy: Policy) -> list[float]:
        """How many times as fast as the library's first choice the fastest of our leaders under a policy is, under each
        of `DEPLOYED`; empty where ours or the library took no part."""
        leaders = [self.by_policy[policy][one.config.key] for one in self.own()]
        library = [one for one in self.sustained if not is_own(one.config)]
        if not leaders or not library:
            return []
        ours, first = ahead(leaders)[0].config.key, library[0].config.key
        return [versus(self.by_policy[each][first], self.by_policy[each][ours], self.device).value for each in DEPLOYED]

    def winner_drawn(self, generator: random.Random, scatter: float) -> Measurement:
        """The winner if blocks scattered so around each rival's time."""
        drawn = {
            key: replace(one, samples_us=tuple(one.median_us * generator.gauss(1, scatter) for _ in one.samples_us))
            for key, one in self.by_policy[Policy.SUSTAINED].items()
        }  # fmt: skip
        by_policy = {**self.by_policy, Policy.SUSTAINED: drawn}
        finals = [one for taken in by_policy.values() for one in taken.values()]
        won = Rivals(self.problem, self.device, finals).winner(Policy.SUSTAINED)
        return self.by_policy[Policy.SUSTAINED][won.config.key]

    def places(self) -> Iterator[tuple[int, float]]:
        """Of each rival with two blocks or more: its place in the first pass, and its first block over its second."""
        for place, number in enumerate(order_of(0, len(self.sustained))):
            blocks = self.sustained[number].samples_us
            if len(blocks) > 1:
                yield place, blocks[0] / blocks[1]


def finals_of(store: Store) -> Iterator[Finals]:
    """The finals that a store holds."""
    for best in store.bests():
        profile = find_profile(best.device)
        if profile is None:
            continue
        by_policy: dict[Policy, dict[str, Measurement]] = {}
        for one in (stored.measurement for stored in store.final_series(best.winner.study_id)):
            if one.outcome is Outcome.CORRECT:
                by_policy.setdefault(one.policy, {})[one.config.key] = one
        known = (power_decides(best.problem, profile), may_reach_power_limit(best.problem, profile), True)
        yield Finals(best.problem, best.device, CLASSES[known.index(True)], by_policy)
