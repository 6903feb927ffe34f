"""Family: the plug that a kernel family puts into the tuner. `space.family` lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from space.columns import Columns, Derived, FloatColumn, IntTable
from space.config import Config, assign, parse_knobs
from space.devices import DEFAULT_DEVICE, DeviceProfile, profile_named, reference_profile
from space.errors import ConfigError, FamilyError
from space.knobs import Knob, KnobValue
from space.problem import Problem
from space.rules import Rule


@dataclass(frozen=True, eq=False)
class Family:
    """Knobs, rules, derived values and a time estimate of one kernel family.

    A family equals only itself: caches keyed by family are too hot to compare every knob and rule.

    Attributes:
        name: the name in configs, SQL and URLs, and of its folders (see `kernel` and `launcher`).
        targets: archs that its kernel compiles for.
        fallbacks: further archs that it compiles for, where another family is mostly faster: used there if it is named,
            if no other takes a problem, and beside others where it `competes`.
        competes: whether it may be the fastest for a problem on one of its fallbacks.
        knobs: knobs in enumeration order; those that let rules filter earliest come first.
        derived: derived values in any order; they may read each other.
        rules: legal and worth rules together.
        estimate_us: predicted time of each row on a device, in microseconds. Which knobs it reads may depend on the
            problem but not on the row: rows that agree in these knobs share an estimate.
        kinds: names of the problem kinds that it takes.
        problem_constants: members of the kernel's `Config` struct that follow from the problem: dtypes, layout,
            epilogue.
        own: whether the kernel is ours; a library's is measured and served, but never compiled.
        grounded: whether enough measurements support its estimate. Without them, the estimate ranks the family's own
            candidates but answers for nothing that was not measured.
        special: whether it takes few problems, and answers for them first where no estimate is grounded.
        structure: knobs that distinguish kernels of different structure; the others only tune one.
        together: knobs of which a text names all or none, as one says nothing without the others.
        kernel: module of the kernel's source; the default is `workers.kernels.<name>`. Unused if `own` is false.
        launcher: module of the launcher; the default is `workers.cuda.families.<name>`.
    """

    name: str
    targets: frozenset[str]
    knobs: tuple[Knob, ...]
    derived: tuple[Derived, ...]
    rules: tuple[Rule, ...]
    estimate_us: Callable[[Columns, DeviceProfile], FloatColumn]
    problem_constants: Callable[[Any, Config], Mapping[str, KnobValue]] = lambda problem, config: {}
    kinds: frozenset[str] = frozenset({"gemm"})
    own: bool = True
    grounded: bool = True
    special: bool = False
    structure: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    kernel: str = ""
    launcher: str = ""
    fallbacks: frozenset[str] = frozenset()
    competes: Callable[[Any], bool] = lambda problem: False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", self.kernel or f"workers.kernels.{self.name}")
        object.__setattr__(self, "launcher", self.launcher or f"workers.cuda.families.{self.name}")

    @cached_property
    def reference(self) -> DeviceProfile:
        """The device for questions that name none: the default one if it is a target, else that of the first target."""
        default = profile_named(DEFAULT_DEVICE)
        return default if default.arch.name in self.targets else reference_profile(min(self.targets))

    @cached_property
    def _by_name(self) -> dict[str, Derived]:
        return {value.name: value for value in self.derived}

    @cached_property
    def knob_named(self) -> dict[str, Knob]:
        return {knob.name: knob for knob in self.knobs}

    @cached_property
    def places(self) -> dict[str, int]:
        """Column of each knob in a table of configs."""
        return {knob.name: place for place, knob in enumerate(self.knobs)}

    @cached_property
    def codes(self) -> IntTable:
        """Codes of every knob's values, one row per knob, shorter domains repeated; int16 if that holds them all."""
        values = max(len(knob.domain) for knob in self.knobs)
        return np.array([np.resize(knob.column(), values) for knob in self.knobs], dtype=self.code_type)

    @cached_property
    def code_type(self) -> np.dtype[np.integer]:
        """The type of codes: int16 if that holds them all, else int64. Needs no list of a domain."""
        largest = max(
            max(abs(knob.domain[0]), abs(knob.domain[-1])) if isinstance(knob.domain, range)
            else int(np.abs(knob.column()).max())
            for knob in self.knobs
        )  # fmt: skip
        return np.dtype(np.int16 if largest <= np.iinfo(np.int16).max else np.int64)

    @cached_property
    def reads(self) -> dict[str, frozenset[str]]:
        """Knobs that each knob or derived value depends on, also through other derived values."""

        @cache
        def resolve(name: str) -> frozenset[str]:
            if name in self.knob_named:
                return frozenset({name})
            return frozenset().union(*map(resolve, self._by_name[name].reads))

        return {name: resolve(name) for name in (*self.knob_named, *self._by_name)}

    def knobs_read(self, rule: Rule) -> frozenset[str]:
        """Knobs that a rule's verdict depends on."""
        return self._knobs_read[rule.id]

    @cached_property
    def _knobs_read(self) -> dict[str, frozenset[str]]:
        return {rule.id: frozenset().union(*(self.reads[name] for name in rule.reads)) for rule in self.rules}

    def takes(self, problem: Problem, device: DeviceProfile | None = None) -> bool:
        """Whether the family takes the kind of a problem, and every legal rule that reads no knob holds for it."""
        if problem.kind not in self.kinds:
            return False
        row = self.empty_columns(problem, device or self.reference)
        return all(rule.mask(row).all() for rule in self.legal if not rule.reads)

    def competes_on(self, arch: str, problem: Problem) -> bool:
        """Whether the family competes for a problem of its kinds on an arch: on its targets always, on one of its
        fallbacks only where it may be the fastest.
        """
        return arch in self.targets or (arch in self.fallbacks and self.competes(problem))

    @cached_property
    def legal(self) -> tuple[Rule, ...]:
        """Legal rules, those whose knobs have the fewest values first."""
        sizes = {knob.name: len(knob.domain) for knob in self.knobs}
        rules = (rule for rule in self.rules if rule.kind == "legal")
        return tuple(sorted(rules, key=lambda rule: sum(sizes[knob] for knob in self.knobs_read(rule))))

    @cached_property
    def worth(self) -> tuple[Rule, ...]:
        """Worth rules."""
        return tuple(rule for rule in self.rules if rule.kind == "worth")

    @cached_property
    def free(self) -> tuple[Knob, ...]:
        """Knobs that no legal rule reads, so that all their values are legal."""
        bound = frozenset[str]().union(*(self.knobs_read(rule) for rule in self.legal))
        return tuple(knob for knob in self.knobs if knob.name not in bound)

    def config(self, given: Mapping[str, object]) -> Config:
        """A config from some knobs; the rest take their defaults.

        Raises:
            ConfigError: an unknown knob or a value outside its domain.
        """
        return assign(self.name, self.knobs, given)

    def parse(self, text: str) -> Config:
        """A config from `knob=value,…`, as `Config.knobs_text` writes it; knobs that it leaves out take their defaults.

        Raises:
            ConfigError: a part is not `knob=value`, a knob is unknown or named twice, a value is outside its domain, or
                some of `together` are named without the others.
        """
        # The recordings that ship hold five million parts, nearly all of them as this family writes them.
        known = [self._written.get(part) for part in text.split(",")]
        given = {} if None in known else {pair[0]: pair for pair in known if pair}
        if len(given) < len(known):
            return self.config(self._whole(parse_knobs(text)))
        return Config(self.name, tuple((self._defaults | given).values()))

    def _whole(self, named: dict[str, str]) -> dict[str, str]:
        """The knobs that a text names, none of `together` without the others."""
        lacking = [name for name in self.together if name not in named]
        if 0 < len(lacking) < len(self.together):
            raise ConfigError(
                f"a config of {self.name} names all of {', '.join(self.together)}, or none: this one lacks "
                f"{', '.join(lacking)}; give these too"
            )
        return named

    @cached_property
    def _written(self) -> dict[str, tuple[str, KnobValue]]:
        """What each `knob=value` means; none of a knob with a range, which may be too long to be listed."""
        listed = (knob for knob in self.knobs if not isinstance(knob.domain, range))
        return {f"{knob.name}={value}": (knob.name, value) for knob in listed for value in knob.domain}

    @cached_property
    def _defaults(self) -> dict[str, tuple[str, KnobValue]]:
        """What configs hold of the knobs that they do not name, in order."""
        return {knob.name: (knob.name, knob.default) for knob in self.knobs}

    def columns(self, problem: Problem, configs: Iterable[Config], device: DeviceProfile | None = None) -> Columns:
        """Configs of this family as columns."""
        # Encoding knob by knob is several times faster than config by config.
        cells = list(zip(*(config.values for config in configs), strict=True))
        if not cells:
            return self.rows_of(problem, np.empty((0, len(self.knobs)), dtype=self.code_type), device)
        codes = [knob.encoded([value for _, value in each]) for knob, each in zip(self.knobs, cells, strict=True)]
        return self.rows_of(problem, np.array(codes, dtype=self.code_type).T.copy(), device)

    def rows_of(self, problem: Problem, table: IntTable, device: DeviceProfile | None = None) -> Columns:
        """Columns from `configs x knobs`, words as their codes (see `Knob.encode`).

        Raises:
            FamilyError: the family does not take the problem's kind.
        """
        if problem.kind not in self.kinds:
            kinds = ", ".join(sorted(self.kinds))
            raise FamilyError(f"family {self.name} does not take {problem.kind} problems: it takes {kinds}")
        return Columns(problem, device or self.reference, self._by_name, self.places, table)

    def empty_columns(self, problem: Problem, device: DeviceProfile, held: Iterable[Knob] = ()) -> Columns:
        """One row in which only the knobs `held` are known, at their defaults: where enumeration starts."""
        places = {knob.name: self.places[knob.name] for knob in held}
        table = np.zeros((1, len(self.knobs)), dtype=self.code_type)
        for knob in held:
            table[0, places[knob.name]] = knob.encode(knob.default)
        return Columns(problem, device, self._by_name, places, table)

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

    def derive(self, problem: Problem, config: Config, device: DeviceProfile | None = None) -> dict[str, int]:
        """All derived values of one config."""
        columns = self.columns(problem, [config], device)
        return {value.name: columns.first(value.name) for value in self.derived}

    def compile_constants(
        self, problem: Problem, config: Config, device: DeviceProfile | None = None
    ) -> dict[str, KnobValue]:
        """Members of the kernel's `Config` struct: compile knobs, derived values that it asserts, problem constants.

        They are equal for all problems of one `Problem.class_of_alignment`, which thus share a build.
        """
        alike = problem.class_of_alignment()
        columns = self.columns(alike, [config], device)
        constants = {knob.name: config[knob.name] for knob in self.knobs if knob.decides == "compile"}
        constants |= {value.name: columns.first(value.name) for value in self.derived if value.in_kernel}
        return constants | dict(self.problem_constants(alike, config))

    def structure_of(self, config: Config) -> tuple[KnobValue, ...]:
        """What all configs of one kernel structure share: the family and its `structure` knobs."""
        return (self.name, *(config[name] for name in self.structure))
