"""Candidates: the configs worth trying for a problem on a device, best estimate first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from space.columns import Columns
from space.config import Config
from space.devices import DeviceProfile
from space.enumerate import Space, enumerate_all
from space.explain import legal_mask
from space.family import Family
from space.knobs import KnobValue
from space.problem import Problem
from space.rank import rank
from space.registry import config_named, families_for, family_named
from tuner.errors import NothingCorrect
from tuner.evidence.picks import enumeration_order
from tuner.hints import flags_of
from workers.ports import Worker

#: Only candidates whose estimate is within this many times the best estimate are proposed.
WITHIN_ESTIMATE: Final = 2.0


def candidates_for(problem: Problem, worker: Worker, without: Collection[str] = ()) -> list[Config]:
    """Legal candidates of all families that compete, those that the worker can measure, best estimate first.

    Args:
        without: ids of worth rules to switch off; what a recording holds is tried in any case.

    Raises:
        FamilyError: `without` names no worth rule.
        NothingCorrect: there is none, with the rules that emptied the space.
    """
    families = families_for(worker.facts.arch, problem)
    limits = worker.facts.profile
    spaces = enumerate_all(families, problem, limits, without=without)
    if not any(map(len, spaces)):
        raise NothingCorrect(_emptied(spaces[0], problem))
    measurable = worker.measurable(problem)
    if measurable is not None:
        found = _recorded_candidates(families, problem, measurable, limits)
    else:
        found = [
            (float(estimate), config)
            for ranked in (rank(space, limits, within=WITHIN_ESTIMATE) for space in spaces)
            for estimate, config in zip(ranked.estimates_us, ranked.configs(), strict=True)
        ]
    # Stable: each family's own order stays.
    return [config for _, config in sorted(found, key=lambda each: each[0])]


def spread(ranked: Sequence[Config], most: int) -> list[Config]:
    """`most` of the ranked candidates: half from the top, half one of each structure in turn."""
    chosen = dict.fromkeys(ranked[: most // 2])
    groups: dict[tuple[KnobValue, ...], list[Config]] = {}
    for config in ranked:
        groups.setdefault(family_named(config.family).structure_of(config), []).append(config)
    for config in _in_turn(list(groups.values())):
        if len(chosen) >= most:
            break
        chosen.setdefault(config)
    return list(chosen)


def _emptied(space: Space, problem: Problem) -> str:
    # Rules are applied as soon as they can be: the last to remove anything removed all that was left.
    last = {rule.id: rule for rule in space.family.rules}[next(reversed(space.removed))]
    return (
        f"no {space.family.name} config is legal for {problem.title}: rule {last.id} "
        f"({last.sentence}) leaves none; `gemmtune space {problem.shape}{flags_of(problem)}` counts what each removes"
    )


def _recorded_candidates(
    families: Sequence[Family], problem: Problem, keys: frozenset[str], limits: DeviceProfile
) -> list[tuple[float, Config]]:
    """Estimate and config of what was recorded and is legal now."""
    found: list[tuple[float, Config]] = []
    recorded, broken = 0, list[str]()
    for family in families:
        own = [config_named(key) for key in sorted(keys) if _is_of(key, family)]
        if not own:
            continue
        columns = family.columns(problem, own, limits)
        legal, estimates = legal_mask(family, columns), family.estimate_us(columns, limits)
        order = sorted(range(len(own)), key=lambda row: (estimates[row], enumeration_order(own[row])))
        found += [(float(estimates[row]), own[row]) for row in order if legal[row]]
        recorded += len(own)
        broken.append(_broken_by(family, columns))
    if not recorded:
        raise NothingCorrect(
            f"the recording holds nothing of {problem.title}: "
            f"`gemmtune doctor` lists what was recorded, `gemmtune best {problem.shape}{flags_of(problem)}` predicts"
        )
    if not found:
        raise NothingCorrect(
            f"the recording of {problem.title} holds {recorded} candidates and "
            f"none that is legal now: rules {', '.join(broken)} leave none; record the problem again"
        )
    return found


def _is_of(key: str, family: Family) -> bool:
    return key.startswith(f"{family.name}:")


def _broken_by(family: Family, columns: Columns) -> str:
    """The legal rules that most candidates break."""
    broken = {rule.id: int((~rule.mask(columns)).sum()) for rule in family.rules if rule.kind == "legal"}
    return ", ".join(rule for rule in sorted(broken, key=lambda rule: -broken[rule])[:3] if broken[rule])


def _in_turn(groups: Sequence[Sequence[Config]]) -> Iterator[Config]:
    for depth in range(max(map(len, groups), default=0)):
        yield from (group[depth] for group in groups if depth < len(group))
