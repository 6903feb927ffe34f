"""The space of a problem: how many configs there are, and what each rule removes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal

import orjson

from space.devices import DeviceProfile
from space.enumerate import Space, enumerate_space
from space.errors import FamilyError
from space.family import FAMILIES, families_for, family_named
from space.knobs import KnobValue
from space.plug import Family
from space.problem import Problem
from space.rank import rank
from space.rules import Rule
from tuner.errors import CountFailed
from tuner.hints import flags_of
from tuner.studying.candidates import WITHIN_ESTIMATE
from tuner.views.cells import Cells, cells_of

#: Counting every legal config takes seconds, and may take no longer than this.
COUNT_SECONDS: Final = 120.0
_EVERY: Final = [sys.executable, "-m", "gemmtune", "space"]


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """A rule in words."""

    id: str
    family: str
    kind: Literal["legal", "worth"]
    sentence: str
    source: str
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """Configs that a rule is the first to remove."""

    rule: str
    kind: Literal["legal", "worth"]
    sentence: str
    source: str
    count: int


@dataclass(frozen=True, slots=True)
class KnobFacts:
    """A knob and its values; `free` if no legal rule reads it."""

    name: str
    values: tuple[KnobValue, ...]
    default: KnobValue
    decides: Literal["compile", "launch"]
    meaning: str
    free: bool


@dataclass(frozen=True, slots=True)
class FamilySpace:
    """The space of one family.

    Attributes:
        product: size of the product of all domains.
        legal: configs that break no legal rule; None if they were not counted.
        worth: legal configs that are worth trying.
        pool: those among them whose expected time is within twice the best one, which a search considers.
        removed: by every rule, in the order in which they apply.
        legal_removed: the same with legal rules alone; None if the legal configs were not counted.
    """

    family: str
    product: int
    legal: int | None
    worth: int
    pool: int
    removed: tuple[Removed, ...]
    legal_removed: tuple[Removed, ...] | None
    knobs: tuple[KnobFacts, ...]


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    """The space of a problem on a device; `cells` are of the first family that has both knobs."""

    problem: Problem
    device: str
    arch: str
    families: tuple[FamilySpace, ...]
    cells: Cells | None


def rules(family: str | None = None) -> list[RuleFacts]:
    """The rules of all families, or of one.

    Raises:
        FamilyError: the family is unknown.
    """
    plugs = FAMILIES.values() if family is None else [family_named(family)]
    return [
        RuleFacts(rule.id, plug.name, rule.kind, rule.sentence, rule.source, rule.reads)
        for plug in plugs for rule in plug.rules
    ]  # fmt: skip


def rule_near(wrong: str, known: Sequence[RuleFacts]) -> str:
    """The rule whose id resembles `wrong` most; empty if none does."""
    return next(iter(get_close_matches(wrong, [rule.id for rule in known], n=1)), "")


def space_of(
    problem: Problem, device: DeviceProfile, families: Sequence[Family], x: str | None, y: str | None,
    legal: Mapping[str, Any] | None,
) -> SpaceFacts:  # fmt: skip
    """Counts of the configs worth trying, with cells over two knobs.

    Args:
        legal: what `legal_counts` found; None leaves the legal configs uncounted.

    Raises:
        FamilyError: no family has both knobs.
    """
    spaces = [enumerate_space(family, problem, device) for family in families]
    found = tuple(_family_space(space, device, (legal or {}).get(space.family.name)) for space in spaces)
    cells = None
    if x is not None and y is not None:
        having = [space for space in spaces if {x, y} <= space.family.knob_named.keys()]
        cells = cells_of((having or spaces)[0], device, x, y)
    return SpaceFacts(problem, device.name, device.arch.name, found, cells)


def legal_counts(problem: Problem, device: str, family: str | None) -> dict[str, Any]:
    """Number of legal configs, and what each rule removes, by family.

    A process of its own counts them: it takes seconds of arithmetic, and gigabytes for a moment.

    Raises:
        CountFailed: the process failed, or took too long.
    """
    words = [*_EVERY, problem.shape, *flags_of(problem).split(), "--device", device, "--unpruned", "--json"]
    try:
        done = subprocess.run([*words, *(["--family", family] if family else [])], capture_output=True, check=True,
                              timeout=COUNT_SECONDS)  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise CountFailed(f"the legal configs of {problem.title} could not be counted ({error}): leave out legal=true"
                          ) from error  # fmt: skip
    return {found["family"]: found for found in orjson.loads(done.stdout)["families"]}


def _family_space(space: Space, device: DeviceProfile, legal: Mapping[str, Any] | None) -> FamilySpace:
    family = space.family
    by_id = {rule.id: rule for rule in family.rules}
    removed = {each["rule"]: each["removed"] for each in legal["removed"]} if legal else None
    return FamilySpace(
        family.name, space.total, legal["left"] if legal else None, space.count,
        len(rank(space, device, within=WITHIN_ESTIMATE)), _removed(by_id, space.removed),
        _removed(by_id, removed) if removed is not None else None,
        tuple(KnobFacts(knob.name, tuple(knob.domain), knob.default, knob.decides, knob.meaning, knob in family.free)
              for knob in family.knobs),
    )  # fmt: skip


def _removed(rules_: Mapping[str, Rule], counts: Mapping[str, int]) -> tuple[Removed, ...]:
    found = ((rules_[name], count) for name, count in counts.items())
    return tuple(Removed(rule.id, rule.kind, rule.sentence, rule.source, count) for rule, count in found)


def own_families(problem: Problem, device: DeviceProfile, family: str | None) -> tuple[Family, ...]:
    """The family of that name, or the arch's own that take the problem.

    Raises:
        FamilyError: the name is unknown, or no family takes the problem.
    """
    if family is None:
        return families_for(device.arch.name, problem)
    if family not in FAMILIES or not FAMILIES[family].own:
        own = ", ".join(name for name, plug in FAMILIES.items() if plug.own)
        raise FamilyError(f"family {family!r} has no space of ours: use one of {own}")
    return (FAMILIES[family],)
