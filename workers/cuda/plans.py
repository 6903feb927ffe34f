"""Plans: a launch as plain text, made without a driver, for programs that know nothing of configs.

A plan has the bytes of every argument of every pass, the boxes of its tensor maps, and the places where addresses and
scalars are written. `gemmtune.hpp` reads it; each line is a word and its fields, separated by spaces.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import astuple
from functools import partial
from typing import Any, Final

import numpy as np

from space.config import Config
from space.devices import DeviceProfile
from space.family import family_named
from space.instructions.tma import MAP_BYTES
from space.kinds.gemm import Gemm
from workers.cuda.copies import Copy, element_bytes
from workers.cuda.driver import PlannedFunction
from workers.cuda.families import prepared_launcher_of
from workers.cuda.families.prepared import Passes
from workers.cuda.families.shared import Box, Shared, TensorMap

SCHEMA: Final = "gemmtune.plan/1"
#: Any address that TMA takes; a plan's own addresses are written at each launch.
_NOWHERE: Final = 1 << 20


class _Program:
    """A program whose functions are only named."""

    def __init__(self, device: DeviceProfile) -> None:
        self._device = device

    def function(self, name: str) -> PlannedFunction:
        return PlannedFunction(name, lambda size: int(self._device.cluster_slots(np.array([size]))[0]))

    def unload(self) -> None:
        """Nothing was loaded."""


class _Planned(Shared):
    """Notes boxes and scratch memory in place of making them."""

    def __init__(self, device: DeviceProfile) -> None:
        super().__init__()
        self._device = device
        self.boxes: dict[int, Box] = {}
        self.wanted: dict[str, tuple[int, bool]] = {}
        self._held: list[TensorMap] = []

    def loaded(self, cubin: bytes, load: Callable[[bytes], Any]) -> Any:  # noqa: ANN401
        return _Program(self._device)

    def scratch(self, name: str, size_bytes: int, *, zeroed: bool = False) -> int:
        self.wanted[name] = size_bytes, zeroed
        return _NOWHERE

    def maps(self, box: Box) -> Callable[[int], TensorMap]:
        return partial(self._map, box)

    def _map(self, box: Box, address: int) -> TensorMap:
        made = ctypes.create_string_buffer(MAP_BYTES)
        self._held.append(made)
        self.boxes[ctypes.addressof(made)] = box
        return made


def plan_of(problem: Gemm, config: Config, build_digest: str, device: DeviceProfile) -> str:
    """The plan of a config on a device model.

    Args:
        build_digest: of the program that it launches.

    Raises:
        SpaceError: the config has no derived values for the problem.
    """
    shared = _Planned(device)
    launcher = prepared_launcher_of(family_named(config.family))(problem, config, b"", device, shared)
    passes = launcher.prepare(Copy(_NOWHERE, _NOWHERE, _NOWHERE))
    aligned = element_bytes(problem) | launcher.alignment_bytes
    lines = [SCHEMA, f"problem {problem.key}", f"cubin {build_digest}", f"multiprocessors {device.sm_count}"]
    lines += [f"scratch {name} {bytes_} {int(zeroed)}" for name, (bytes_, zeroed) in sorted(shared.wanted.items())]
    lines += [f"align {name} {bytes_}" for name, bytes_ in aligned.items()]
    for launch, arguments in passes:
        lines.append("pass " + " ".join(str(each) for each in launch.described()))
        if launch.most:
            # The driver tells at load how many blocks a multiprocessor holds.
            lines.append(f"most {launch.most}")
        lines += [f"value {bytes(value).hex()}" for value in arguments.values]
    lines += _places(launcher, passes, shared)
    return "\n".join([*lines, "end", ""])


def _places(launcher: Any, passes: Passes, shared: _Planned) -> list[str]:  # noqa: ANN401
    """Where addresses, descriptors and scalars stand: number of the pass and of the value, and offset."""
    at: dict[int, tuple[int, int, int]] = {}
    for turn, (_, arguments) in enumerate(passes):
        for number, value in enumerate(arguments.values):
            at[ctypes.addressof(value)] = turn, number, ctypes.sizeof(value)
    lines = []
    for name, place in sorted(launcher.places(passes).items()):
        for address in place.map_addresses:
            turn, number, _ = at[address]
            box = " ".join(str(field) for field in astuple(shared.boxes[address]))
            lines.append(f"map {name} {turn} {number} {box}")
        for address in place.word_addresses:
            lines.append(f"word {name} {_place_of(at, address)}")
    epilogue = launcher.epilogue(passes)
    for scalar in ("alpha", "beta"):
        address = ctypes.addressof(epilogue) + getattr(type(epilogue), scalar).offset
        lines.append(f"scalar {scalar} {_place_of(at, address)}")
    return lines


def _place_of(at: Mapping[int, tuple[int, int, int]], address: int) -> str:
    for begin, (turn, number, size) in at.items():
        if begin <= address < begin + size:
            return f"{turn} {number} {address - begin}"
    raise ValueError(f"no value holds the address {address:#x}")
