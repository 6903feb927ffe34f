"""Candidates: the configs worth trying for a problem on a device, best estimate first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from space.columns import Columns
from space.config import Config
from space.devices import DeviceProfile
from space.enumerate import Space, enumerate_all
from space.explain import legal_among, legal_mask
from space.families.common import plain_twin, starts_early
from space.family import config_named, families_for
from space.plug import Family
from space.problem import Problem
from space.rank import rank
from space.structures import by_structure
from tuner.errors import NothingCorrect
from tuner.evidence.picks import enumeration_order
from tuner.hints import device_option, flags_of
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import first_choice
from tuner.settings import settings
from tuner.studying.open_worker import devices_with
from workers.ports import Worker

#: Candidates with a longer estimate than this multiple of the best are not proposed.
WITHIN_ESTIMATE: Final = 2.0


def candidates_for(
    problem: Problem, worker: Worker, without: Collection[str] = (), model: LearnedModel | None = None,
    also: Sequence[Config] = (),
) -> list[Config]:  # fmt: skip
    """Legal candidates of all competing families that the worker can measure, best estimate first.

    Args:
        without: ids of worth rules to switch off; recorded candidates are exempt from worth rules.
        model: its first choice is always a candidate, even against worth rules: it is the answer before anything is
            measured.
        also: candidates where they are legal, even against worth rules and far from the best estimate.

    Raises:
        FamilyError: `without` names no worth rule.
        NothingCorrect: there is none; the message names the rules that emptied the space.
    """
    families = families_for(worker.facts.arch, problem)
    limits = worker.facts.profile
    spaces = enumerate_all(families, problem, limits, without=without)
    if not any(map(len, spaces)):
        raise NothingCorrect(_emptied(spaces[0], problem, limits.name))
    measurable = worker.measurable(problem)
    if measurable is not None:
        found = _recorded_candidates(families, problem, measurable, limits)
    else:
        found = ranked(spaces, limits)
    # A stable sort keeps each family's own order.
    listed = [config for _, config in sorted(found, key=lambda each: each[0])]
    if measurable is not None:
        return listed
    predicted = first_choice(model, problem, limits) if model else None
    further = [predicted.config] if predicted else []
    competing = {family.name for family in families}
    further += [plain_twin(config) for config in also if config.family in competing]
    legal = legal_among(problem, further, limits)
    return list(dict.fromkeys([*listed, *(config for config in further if config in legal)]))


def ranked(spaces: Sequence[Space], limits: DeviceProfile) -> list[tuple[float, Config]]:
    """Estimate and config of what may be proposed, family by family, best estimate first in each."""
    return [
        (float(estimate), config)
        for of_space in (rank(space, limits, within=WITHIN_ESTIMATE) for space in spaces)
        for estimate, config in zip(of_space.estimates_us, of_space.configs(), strict=True)
    ]


def count_worth_trying(problem: Problem, worker: Worker, without: Collection[str] = ()) -> int:
    """Number of legal candidates that the worth rules leave, measurable or not.

    Raises:
        FamilyError: `without` names no worth rule.
    """
    families = families_for(worker.facts.arch, problem)
    return sum(map(len, enumerate_all(families, problem, worker.facts.profile, without=without)))


def spread(ranked: Sequence[Config], most: int) -> list[Config]:
    """`most` of the ranked candidates: half from the top, half by taking turns among structures."""
    chosen = dict.fromkeys(ranked[: most // 2])
    for config in _in_turn(list(by_structure(ranked, lambda config: config).values())):
        if len(chosen) >= most:
            break
        chosen.setdefault(config)
    return list(chosen)


def _emptied(space: Space, problem: Problem, device: str) -> str:
    # The enumeration applies each rule as early as possible, so the last active rule removed all that was left.
    last = {rule.id: rule for rule in space.family.rules}[next(reversed(space.removed))]
    return (
        f"no {space.family.name} config is legal for {problem.title}: rule {last.id} ({last.sentence}) leaves none; "
        f"`gemmtune space {problem.shape}{flags_of(problem)}{device_option(device)}` counts what each removes"
    )


def unmeasurable(problem: Problem, worker: Worker) -> str:
    """Why a recorded device has no candidate of a problem; empty where it has some, or measures whatever it gets."""
    measurable = worker.measurable(problem)
    if measurable is None:
        return ""
    if not measurable:
        return f"not recorded on {worker.facts.name}"
    try:
        _recorded_candidates(families_for(worker.facts.arch, problem), problem, measurable, worker.facts.profile)
    except NothingCorrect as nothing:
        return str(nothing)
    return ""


def _recorded_candidates(
    families: Sequence[Family], problem: Problem, keys: frozenset[str], limits: DeviceProfile
) -> list[tuple[float, Config]]:
    """Estimate and config of each recorded candidate that is legal now."""
    found: list[tuple[float, Config]] = []
    recorded, broken = 0, list[str]()
    for family in families:
        known = (config_named(key) for key in sorted(keys) if key.startswith(f"{family.name}:"))
        own = [config for config in known if not starts_early(config)]
        if not own:
            continue
        columns = family.columns(problem, own, limits)
        legal, estimates = legal_mask(family, columns), family.estimate_us(columns, limits)
        order = sorted(range(len(own)), key=lambda row: (estimates[row], enumeration_order(own[row])))
        found += [(float(estimates[row]), own[row]) for row in order if legal[row]]
        recorded += len(own)
        broken.append(_broken_by(family, columns))
    if not recorded and any(not starts_early(config_named(key)) for key in keys):
        raise NothingCorrect(
            f"the recording of {problem.title} holds {len(keys)} candidates, none of a family that competes for "
            f"it by now ({', '.join(family.name for family in families)}): record the problem again"
        )
    if not recorded and keys:
        raise NothingCorrect(
            f"the recording of {problem.title} holds {len(keys)} candidates, all of them with an early launch (pdl=1), "
            f"which a tune times only beside other neighbours: `gemmtune best {problem.shape}{flags_of(problem)}` has "
            "the recorded best"
        )
    if not recorded and (others := devices_with(problem, settings())):
        raise NothingCorrect(
            f"the recording holds nothing of {problem.title}, but other sets do (--device {', '.join(others)}): "
            "use one of them"
        )
    if not recorded:
        raise NothingCorrect(
            f"the recording holds nothing of {problem.title}: `gemmtune recordings list` shows what was recorded, "
            f"`gemmtune best {problem.shape}{flags_of(problem)}` answers without a measurement"
        )
    if not found:
        raise NothingCorrect(
            f"the recording of {problem.title} holds {recorded} candidates and "
            f"none that is legal now: rules {', '.join(broken)} leave none; record the problem again"
        )
    return found


def _broken_by(family: Family, columns: Columns) -> str:
    """The legality rules that most candidates break."""
    broken = {rule.id: int((~rule.mask(columns)).sum()) for rule in family.legal}
    return ", ".join(rule for rule in sorted(broken, key=lambda rule: -broken[rule])[:3] if broken[rule])


def _in_turn(groups: Sequence[Sequence[Config]]) -> Iterator[Config]:
    for depth in range(max(map(len, groups), default=0)):
        yield from (group[depth] for group in groups if depth < len(group))
