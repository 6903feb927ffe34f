"""Config: one point of a family's space; hashable, with a canonical key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from space.errors import ConfigError
from space.knobs import Knob, KnobValue


@dataclass(frozen=True, slots=True)
class Config:
    """A full assignment of a family's knobs.

    `Family.config` makes one and checks names and domains. Whether a config is *legal* for a problem is another
    question; `explain` answers it.

    Attributes:
        family: name of the kernel family.
        values: (knob, value) in the family's knob order.
    """

    family: str
    values: tuple[tuple[str, KnobValue], ...]

    @property
    def key(self) -> str:
        """Canonical text `family:knob=value,…`; equal for equal configs, and never changed once published."""
        return f"{self.family}:{self.knobs_text}"

    @property
    def knobs_text(self) -> str:
        """`knob=value,…`, as `--config` takes it."""
        return ",".join(f"{name}={value}" for name, value in self.values)

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """The assignment as a dict."""
        return dict(self.values)

    def __getitem__(self, knob: str) -> KnobValue:
        for name, value in self.values:
            if name == knob:
                return value
        raise KeyError(knob)

    def number(self, knob: str) -> int:
        """The value of a numeric knob.

        Raises:
            ConfigError: the value is a word.
        """
        value = self[knob]
        if not isinstance(value, int):
            raise ConfigError(f"{knob} = {value!r} is a word, not a number")
        return value

    def changed(self, values: Mapping[str, KnobValue]) -> Config:
        """The config with other values for some knobs; they must be in the domains."""
        return Config(self.family, tuple((name, values.get(name, value)) for name, value in self.values))

    def __str__(self) -> str:
        return self.key


def parse_knobs(text: str) -> dict[str, str]:
    """`tile_m=128,stages=4` as a dict, values still text.

    Raises:
        ConfigError: a part is not `knob=value`, or a knob is named twice.
    """
    knobs: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not (name and equals and value):
            raise ConfigError(f"{part.strip()!r} is not knob=value: write tile_m=128,tile_n=256")
        family, colon, knob = name.partition(":")
        if colon:  # a config's key, as tables and messages show it
            raise ConfigError(f"{name[:80]!r} names a family too: give that apart, as in --family {family[:40]}, and "
                              f"begin with {knob[:40]}={value[:40]}")  # fmt: skip
        if name in knobs:
            raise ConfigError(f"{name} is given twice in {text!r}: name each knob once")
        knobs[name] = value
    return knobs


def assign(family: str, knobs: tuple[Knob, ...], given: Mapping[str, object]) -> Config:
    """A config from the values given; the other knobs take their defaults.

    Raises:
        ConfigError: an unknown knob, or a value outside its domain.
    """
    names = [knob.name for knob in knobs]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is not a knob of {family}: its knobs are {', '.join(names)}")
    return Config(family, tuple([(knob.name, knob.check(given.get(knob.name, knob.default))) for knob in knobs]))
