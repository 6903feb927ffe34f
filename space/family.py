"""Family: the plug that a kernel family puts into the tuner, and the registry of plugs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from space.arch import Arch, DeviceLimits, arch_named
from space.columns import Columns, Derived, FloatColumn, IntTable
from space.config import Config, assign, parse_knobs
from space.errors import FamilyError
from space.knobs import Knob, KnobValue
from space.problem import Problem
from space.rules import Rule

#: The same few come again and again in tables, reports and answers, and configs never change.
_KEPT_CONFIGS: Final = 16_384


@dataclass(frozen=True, eq=False)
class Family:
    """Knobs, rules, derived values and a time estimate of one kernel family.

    Equal to itself alone: what is kept by family is asked for too often to compare all knobs and rules.

    Attributes:
        name: as in `configs`, SQL and URLs.
        arch: the compile target of its kernel.
        knobs: in enumeration order; those that cut the product earliest come first.
        derived: in any order; they may read each other.
        rules: legal and worth rules together.
        estimate_us: predicted time of each row on a device, in microseconds. What it reads follows from the problem,
            not from the rows: rows that agree in it share an estimate.
        problem_constants: what the kernel's `Config` struct takes from the problem: dtypes, layout, epilogue.
        own: whether the kernel is ours; a library's is measured and served, but never compiled.
        grounded: whether enough measurements hold its estimate; one that is not ranks the family's own
            candidates, and answers for nothing that was not measured.
        structure: knobs that tell kernels of different build apart; the others only tune one.
    """

    name: str
    arch: str
    knobs: tuple[Knob, ...]
    derived: tuple[Derived, ...]
    rules: tuple[Rule, ...]
    estimate_us: Callable[[Columns, DeviceLimits], FloatColumn]
    problem_constants: Callable[[Problem, Config], Mapping[str, KnobValue]] = lambda problem, config: {}
    own: bool = True
    grounded: bool = True
    structure: tuple[str, ...] = ()
    _by_name: Mapping[str, Derived] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {value.name: value for value in self.derived})

    @cached_property
    def knob_named(self) -> dict[str, Knob]:
        """Knobs by name."""
        return {knob.name: knob for knob in self.knobs}

    @cached_property
    def places(self) -> dict[str, int]:
        """Of each knob, its place in a row of a table of configs."""
        return {knob.name: place for place, knob in enumerate(self.knobs)}

    @cached_property
    def codes(self) -> IntTable:
        """Of each knob, the codes of its values, in one row; of the narrower of two types that holds all of them."""
        values = max(len(knob.domain) for knob in self.knobs)
        codes = np.array([np.resize(knob.column(), values) for knob in self.knobs])
        return codes.astype(np.int16) if np.abs(codes).max() <= np.iinfo(np.int16).max else codes

    @cached_property
    def reads(self) -> dict[str, frozenset[str]]:
        """For each derived value, the knobs that it depends on, through other derived values too."""
        resolved: dict[str, frozenset[str]] = {knob.name: frozenset({knob.name}) for knob in self.knobs}

        def resolve(name: str) -> frozenset[str]:
            if name not in resolved:
                resolved[name] = frozenset().union(*(resolve(read) for read in self._by_name[name].reads))
            return resolved[name]

        for value in self.derived:
            resolve(value.name)
        return resolved

    def knobs_read(self, rule: Rule) -> frozenset[str]:
        """The knobs that a rule's verdict depends on."""
        return self._knobs_read[rule.id]

    @cached_property
    def _knobs_read(self) -> dict[str, frozenset[str]]:
        return {rule.id: frozenset().union(*(self.reads[name] for name in rule.reads)) for rule in self.rules}

    def takes(self, problem: Problem) -> bool:
        """Whether the legal rules that read no knob hold: without them no config is legal."""
        row = self.empty_columns(problem, arch_named(self.arch))
        return all(rule.mask(row).all() for rule in self.legal if not rule.reads)

    @cached_property
    def legal(self) -> tuple[Rule, ...]:
        """Legal rules, those first that the fewest values of knobs decide."""
        sizes = {knob.name: len(knob.domain) for knob in self.knobs}
        rules = (rule for rule in self.rules if rule.kind == "legal")
        return tuple(sorted(rules, key=lambda rule: sum(sizes[knob] for knob in self.knobs_read(rule))))

    @cached_property
    def free(self) -> tuple[Knob, ...]:
        """Knobs that no legal rule reads: every value of theirs is as legal as the others."""
        bound = frozenset[str]().union(*(self.knobs_read(rule) for rule in self.legal))
        return tuple(knob for knob in self.knobs if knob.name not in bound)

    def config(self, given: Mapping[str, object]) -> Config:
        """A config from some knobs; the rest take their defaults.

        Raises:
            ConfigError: an unknown knob or a value outside its domain.
        """
        return assign(self.name, self.knobs, given)

    def columns(self, problem: Problem, configs: Iterable[Config], arch: Arch | None = None) -> Columns:
        """Configs of this family as columns."""
        # Knob by knob: the configs of a whole space this way take a fraction of the time.
        cells = list(zip(*(config.values for config in configs), strict=True))
        if not cells:
            return self.rows_of(problem, np.empty((0, len(self.knobs)), dtype=self.codes.dtype), arch)
        codes = [knob.encoded([value for _, value in each]) for knob, each in zip(self.knobs, cells, strict=True)]
        return self.rows_of(problem, np.array(codes, dtype=self.codes.dtype).T.copy(), arch)

    def rows_of(self, problem: Problem, table: IntTable, arch: Arch | None = None) -> Columns:
        """Columns from `configs x knobs`, words as their codes (see `Knob.encode`)."""
        return Columns(problem, arch or arch_named(self.arch), self._by_name, self.places, table)

    def empty_columns(self, problem: Problem, arch: Arch, held: Iterable[Knob] = ()) -> Columns:
        """One row in which only the knobs `held` are known, at their defaults; enumeration starts here."""
        places = {knob.name: self.places[knob.name] for knob in held}
        table = np.zeros((1, len(self.knobs)), dtype=self.codes.dtype)
        for knob in held:
            table[0, places[knob.name]] = knob.encode(knob.default)
        return Columns(problem, arch, self._by_name, places, table)

    def config_at(self, columns: Columns, row: int) -> Config:
        """One row as a config."""
        numbers = columns.row(row)
        return Config(self.name, tuple((knob.name, knob.decode(numbers[knob.name])) for knob in self.knobs))

    def configs_of(self, columns: Columns) -> list[Config]:
        """Every row as a config."""
        cells: list[list[tuple[str, KnobValue]]] = []
        for knob in self.knobs:
            named = {number: (knob.name, knob.decode(number)) for number in knob.column().tolist()}
            cells.append([named[number] for number in columns[knob.name].tolist()])
        return [Config(self.name, values) for values in zip(*cells, strict=True)]

    def derive(self, problem: Problem, config: Config, arch: Arch | None = None) -> dict[str, int]:
        """All derived values of one config."""
        columns = self.columns(problem, [config], arch)
        return {value.name: int(columns[value.name][0]) for value in self.derived}

    def compile_constants(self, problem: Problem, config: Config) -> dict[str, KnobValue]:
        """What the kernel's `Config` struct holds: compile knobs and the derived values it asserts.

        Of the problem only dtypes, layout and epilogue are looked at, and what its extents are multiples of (up
        to 16), never an extent itself: one cubin serves every shape.
        """
        m, n, k = (math.gcd(extent, 16) for extent in (problem.m, problem.n, problem.k))
        alike = replace(problem, m=m, n=n, k=k, batch=min(problem.batch, 2))
        columns = self.columns(alike, [config])
        constants = {knob.name: config[knob.name] for knob in self.knobs if knob.decides == "compile"}
        constants |= {value.name: int(columns[value.name][0]) for value in self.derived if value.in_kernel}
        return constants | dict(self.problem_constants(alike, config))

    def structure_of(self, config: Config) -> tuple[KnobValue, ...]:
        """What two configs share that are one kernel tuned differently."""
        return (self.name, *(config[name] for name in self.structure))


def family_named(name: str) -> Family:
    """A registered family.

    Raises:
        FamilyError: unknown.
    """
    from space.families import FAMILIES

    if name not in FAMILIES:
        raise FamilyError(f"family {name!r} is unknown: use one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


@lru_cache(maxsize=_KEPT_CONFIGS)
def config_named(key: str) -> Config:
    """The config that `Config.key` gave this key.

    Raises:
        SpaceError: no family has such a config.
    """
    family, _, knobs = key.partition(":")
    return family_named(family).config(parse_knobs(knobs))


def families_for(arch: str, problem: Problem | None = None) -> tuple[Family, ...]:
    """Our own families whose kernels are built for `arch`, grounded ones first.

    Args:
        problem: leaves out those that have no config for it, whatever their knobs; if that is all of them, none is
            left out, so that whoever looks for candidates learns why there are none.

    Raises:
        FamilyError: no family has a kernel for it yet.
    """
    from space.families import FAMILIES

    own = [family for family in FAMILIES.values() if family.own]
    found = tuple(sorted((family for family in own if family.arch == arch), key=lambda family: not family.grounded))
    if not found:
        known = ", ".join(sorted({family.arch for family in own}))
        raise FamilyError(f"no kernel family is built for {arch}: families exist for {known}")
    if problem is None:
        return found
    return tuple(family for family in found if family.takes(problem)) or found


def family_for(arch: str) -> Family:
    """Our own family that answers on `arch` for what was not measured.

    Raises:
        FamilyError: no family has a kernel for it yet.
    """
    return families_for(arch)[0]


def family_with(arch: str, knobs: Iterable[str]) -> Family:
    """Our own family for `arch` that has all of these knobs; the first one where several have, or none.

    Raises:
        FamilyError: no family has a kernel for it yet.
    """
    families, named = families_for(arch), set(knobs)
    return next((family for family in families if named <= family.knob_named.keys()), families[0])
