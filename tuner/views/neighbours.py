"""Neighbours: what every single change of a config does, and what the config takes of a multiprocessor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from space.config import Config
from space.devices import DeviceProfile
from space.explain import Explanation, explain
from space.knobs import KnobValue
from space.plug import Family
from space.problem import Problem


@dataclass(frozen=True, slots=True)
class ValueState:
    """A config with one knob at this value.

    Attributes:
        rules: up to three rules that it breaks: legal ones if it is illegal, else worth ones.
        current: whether it is the config's own value.
    """

    value: KnobValue
    state: Literal["legal", "not_worth", "illegal"]
    rules: tuple[str, ...]
    current: bool


@dataclass(frozen=True, slots=True)
class KnobStates:
    """A knob with the state of each of its values."""

    name: str
    value: KnobValue
    default: KnobValue
    decides: Literal["compile", "launch"]
    meaning: str
    free: bool
    values: tuple[ValueState, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a block's shared memory."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """A block's shared memory against its limit."""

    limit_bytes: int
    used_bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Registers:
    """Registers of a block against those of a multiprocessor, and what one thread holds."""

    limit: int
    used: int
    per_thread: int
    held: int
    most_per_thread: int


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A config explained, with the state of every value of every knob."""

    explanation: Explanation
    knobs: tuple[KnobStates, ...]
    smem: SharedMemory | None
    registers: Registers | None
    expected_us: float | None


#: Domains longer than this are not listed, as that of a library's algorithm number.
_MOST_VALUES: Final = 200
_MOST_RULES: Final = 3


def neighbours(family: Family, problem: Problem, config: Config, device: DeviceProfile) -> Neighbours:
    """What every single change of a config does."""
    knobs = [knob for knob in family.knobs if len(knob.domain) <= _MOST_VALUES]
    moves = [(knob, value) for knob in knobs for value in knob.domain]
    configs = [config.changed({knob.name: value}) for knob, value in moves]
    columns = family.columns(problem, configs, device)
    held = {rule.id: rule.mask(columns) for rule in family.rules}
    states: dict[str, list[ValueState]] = {knob.name: [] for knob in knobs}
    for row, (knob, value) in enumerate(moves):
        illegal = [rule.id for rule in family.legal if not held[rule.id][row]]
        not_worth = [rule.id for rule in family.worth if not held[rule.id][row]]
        state: Literal["legal", "not_worth", "illegal"] = (
            "illegal" if illegal else "not_worth" if not_worth else "legal"
        )
        broken = tuple((illegal or not_worth)[:_MOST_RULES])
        states[knob.name].append(ValueState(value, state, broken, value == config[knob.name]))
    said, own = explain(family, problem, config, device), family.columns(problem, [config], device)
    expected = float(family.estimate_us(own, device)[0]) if said.legal else None
    return Neighbours(
        said,
        tuple(KnobStates(knob.name, config[knob.name], knob.default, knob.decides, knob.meaning, knob in family.free,
                         tuple(states[knob.name])) for knob in knobs),
        _shared_memory(said.derived, config, device), _registers(said.derived, device),
        expected if expected is not None and math.isfinite(expected) else None,
    )  # fmt: skip


def _shared_memory(derived: Mapping[str, int], config: Config, device: DeviceProfile) -> SharedMemory | None:
    if "shared_memory_bytes" not in derived:
        return None
    used, parts = derived["shared_memory_bytes"], list[Part]()
    if {"tile_a_bytes", "stage_bytes", "staged_bytes"} <= derived.keys() and "stages" in config.knobs:
        stages = config.number("stages")
        parts = [Part("stages of A", stages * derived["tile_a_bytes"]),
                 Part("stages of B", stages * (derived["stage_bytes"] - derived["tile_a_bytes"])),
                 Part("staged C", derived["staged_bytes"])]  # fmt: skip
        parts.append(Part("barriers and padding", used - sum(part.bytes for part in parts)))
    return SharedMemory(device.arch.smem_per_block_bytes, used, tuple(parts))


def _registers(derived: Mapping[str, int], device: DeviceProfile) -> Registers | None:
    if not {"threads", "entry_registers", "held_registers"} <= derived.keys():
        return None
    per_thread = derived["entry_registers"]
    return Registers(device.arch.registers_per_block, derived["threads"] * per_thread, per_thread,
                     derived["held_registers"], device.arch.registers_per_thread)  # fmt: skip
