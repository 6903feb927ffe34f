"""Runs the mma_sync kernel's own text on the CPU, with `ptx/` replaced."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from space.config import Config
from space.devices import DeviceProfile
from space.explain import explain
from space.families.common import SEMAPHORE_BYTES
from space.families.mma_sync.operands import line_elements, needs_packing, pitch_bytes
from space.family import family_named
from space.instructions.tma import MAP_BYTES
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from tests.elements import encoded, numbers, product
from tests.on_cpu import HEADERS, compiled
from workers.cuda import bounds, operands
from workers.cuda.families import mma_sync as launcher
from workers.cuda.families.shared import Box
from workers.cuda.kinds import runtime_of
from workers.kernels.flatten import flatten
from workers.kernels.source import source_of_family

FAMILY = family_named("mma_sync")
#: Files whose replacements come first.
_REPLACED = ("common/types.cuh", *(f"ptx/{name}.cuh" for name in
             ("atomic", "barrier", "convert", "cp_async", "ld_shared", "ldmatrix", "matrix", "mbarrier", "mma_sync",
              "setmaxnreg", "tid", "tma", "tma_cta")))  # fmt: skip
#: Bytes around every array that nothing may write, and that no result may depend on.
_MARGIN = 512

_ENTRY = """extern "C" int run{number}(const CUtensorMap* maps, const MmaSyncArguments* args, unsigned blocks,
                                  unsigned smem, int early) {{
    on_cpu::may_hang = true;
    named_meeting = {{}};
    copies_arrive_early = early;
    on_cpu::copies.clear();
    on_cpu::refused = 0;
    run_grid(blocks, [=] {{ gemm{number}({maps}*args); }}, Config{number}::kThreads, smem);
    return on_cpu::refused + on_cpu::hung;
}}"""


class BoxOnCpu(ctypes.Structure):
    """Mirrors `BoxOnCpu` of mma_sync_on_cpu.h, as long as a tensor map."""

    _fields_ = (
        ("from_", ctypes.c_void_p), ("pitch", ctypes.c_longlong), ("batch_pitch", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in ("element_bytes", "columns", "lines", "batch", "box_columns", "box_lines",
                                            "swizzle_bytes")),
        ("rest", ctypes.c_char * (MAP_BYTES - 52)),
    )  # fmt: skip

    @classmethod
    def of(cls, box: Box, address: int) -> BoxOnCpu:
        """The box at an address."""
        return cls(
            address, box.pitch_bytes, box.batch_pitch_bytes, box.element_bytes, box.columns, box.lines, box.batch,
            box.box_columns, box.box_lines, box.swizzle_bytes,
        )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One problem, one legal config for it, and the card whose limits it keeps."""

    problem: Gemm
    config: Config
    device: DeviceProfile

    @classmethod
    def of(
        cls, device: DeviceProfile, shape: str, dtype: str, layout: str, batch: int, epilogue: str,
        knobs: dict[str, object],
    ) -> Case:  # fmt: skip
        case = cls(Gemm.parse(shape, dtype, layout, batch, epilogue), FAMILY.config(knobs), device)
        broken = explain(FAMILY, case.problem, case.config, device).broken
        assert broken == (), broken
        return case


def program(cases: Sequence[Case], folder: Path, faults: Sequence[tuple[str, str]] = ()) -> ctypes.CDLL:
    """One library: the kernel's text, and each case's Config with an entry `run<number>`.

    Args:
        faults: for each case, a passage of the text and what stands in its place.
    """
    head, kernel = _texts()
    parts = [head] if faults else [head, kernel]
    for number, case in enumerate(cases):
        constants = FAMILY.compile_constants(case.problem, case.config, case.device)
        source = source_of_family(FAMILY).render({**constants, "packs": 0})
        own = source[source.index('#line 1 "Config"') :]
        own = re.sub(r"extern __shared__.*\n", "", own).replace("dynamic_smem", "dynamic_shared()")
        own = own.replace(" gemm(const", f" gemm{number}(const")
        own = re.sub(r"\bConfig\b", f"Config{number}", own) + _ENTRY.format(
            number=number, maps="maps[0], maps[1], " if case.config["copies"] == "tma" else ""
        )
        if faults:
            old, new = faults[number]
            assert old in kernel, old
            own = f"namespace fault{number} {{\n{kernel.replace(old, new)}{own}\n}}"
        parts.append(own)
    return compiled("\n".join(parts), folder)


def word_offsets(rows: int, folder: Path) -> np.ndarray:
    """Where each lane of a warp reads its word of the first eight rows of a tile of MN-major tf32, in bytes."""
    entry = f"""extern "C" void offsets(u32* to) {{
        for (threadIdx.x = 0; threadIdx.x < kWarpSize; ++threadIdx.x) {{
            to[threadIdx.x] = FragmentRows<Operand<{rows}, 16, 4, true, true>, 1, true>(0).rows[0];
        }}
    }}"""
    found = np.zeros(32, np.uint32)
    compiled("\n".join((*_texts(), entry)), folder).offsets(ctypes.c_void_p(found.ctypes.data))
    return found


def _texts() -> tuple[str, str]:
    """What replaces `ptx/`, and the kernel's text without its entry."""
    replacements = "".join((HEADERS / name).read_text() for name in ("ptx_on_cpu.h", "mma_sync_on_cpu.h"))
    flat = flatten("mma_sync/tma_entry.cuh", dict.fromkeys(_REPLACED, "//"))
    return flatten("replacements", {"replacements": replacements}), flat[: flat.rindex("#line")]


class Run:
    """One case with random operands; packed operands are packed as the pass before the kernel would."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, p = case, case.problem
        rng = np.random.default_rng(seed)
        self.held: dict[str, np.ndarray] = {}
        addresses: dict[str, int] = {}
        for part in operands.parts_of(p):
            values = rng.standard_normal(part.elements) * (40 if part.dtype in ("int8", "uint8", "s32") else 1)
            own = None if part.name == "c" else encoded(values, part.dtype)
            addresses[part.name] = self._put(part.name, part.size_bytes, own)
        self.copy: Any = runtime_of(p).copy(p, addresses, 4711)
        self.derived = FAMILY.derive(p, case.config, case.device)
        self._partials = np.full(self.derived["workspace_bytes"] // 4 + 4, np.nan, np.float32)
        tiles = self.derived["tiles_m"] * self.derived["tiles_n"] * p.batch
        self.semaphores = np.zeros(tiles * SEMAPHORE_BYTES // 8, np.uint64)
        self.args = launcher.arguments_of(
            p, case.config, self.derived, self.copy, self._partials.ctypes.data, self.semaphores.ctypes.data
        )
        for name, own_name in launcher.operands_of(case.config).items():
            if needs_packing(p, own_name):
                setattr(self.args, name, self._packed(own_name, addresses[own_name]))

        boxes = [
            BoxOnCpu.of(launcher.box_of(p, case.config, name, own_name), getattr(self.args, name))
            for name, own_name in launcher.operands_of(case.config).items()
        ]
        self._maps = (BoxOnCpu * 2)(*boxes)

    def _put(self, name: str, size: int, values: np.ndarray | None) -> int:
        """Room at a multiple of 256 bytes among bytes of NaN."""
        raw = np.full(size + 2 * _MARGIN + 256, 0xFF, np.uint8)
        start = _MARGIN + -(raw.ctypes.data + _MARGIN) % 256
        if values is not None:
            raw[start : start + size] = values
        self.held[name] = raw
        return raw.ctypes.data + start

    def _packed(self, name: str, address: int) -> int:
        p, size = self.case.problem, DTYPE_BYTES[self.case.problem.dtype_a]
        rows, pitch = line_elements(p, name), pitch_bytes(p, name)
        raw = np.frombuffer(ctypes.string_at(address, p.batch * p.k * rows * size), np.uint8)
        columns = raw.reshape(p.batch, p.k, rows, size).swapaxes(1, 2).reshape(p.batch, rows, p.k * size)
        packed = np.full((p.batch, rows, pitch), 0xFF, np.uint8)
        packed[:, :, : p.k * size] = columns
        return self._put(f"packed_{name}", packed.size, packed.ravel())

    @property
    def blocks(self) -> int:
        """Blocks of the launch; a persistent grid is as large as a card with a single multiprocessor would make it."""
        number = self.case.config.number
        if shared := self.derived["sharing_blocks"]:
            return shared
        tiles = int(self.args.grid.tiles)
        return min(tiles, number("blocks_per_sm")) if number("persistent") else tiles

    def launch(self, kernels: ctypes.CDLL, number: int, *, early: bool) -> np.ndarray:
        """Runs entry `number` over a poisoned C and returns it as float64.

        `refused` then is the number of accesses that hardware would refuse.
        """
        p = self.case.problem
        count = p.batch * p.m * p.n
        self._c[:] = 0xFF
        self.refused = getattr(kernels, f"run{number}")(
            self._maps, ctypes.byref(self.args), ctypes.c_uint(self.blocks),
            ctypes.c_uint(self.derived["shared_memory_bytes"]), ctypes.c_int(early),
        )  # fmt: skip
        return numbers(self.copy.c, count, p.dtype_c).reshape(p.batch, p.m, p.n)

    @property
    def _c(self) -> np.ndarray:
        p = self.case.problem
        start = self.copy.c - self.held["c"].ctypes.data
        return self.held["c"][start : start + p.batch * p.m * p.n * DTYPE_BYTES[p.dtype_c]]

    @property
    def wrote_only_c(self) -> bool:
        """Whether the bytes around C are as they were, and split-K's semaphores are zero again."""
        start = self.copy.c - self.held["c"].ctypes.data
        around = np.delete(self.held["c"], np.s_[start : start + self._c.size])
        return bool((around == 0xFF).all()) and not self.semaphores.any()

    def wrong(self, got: np.ndarray) -> int:
        """Elements of C that differ from NumPy's in float64 by more than the derived bound."""
        p = self.case.problem
        right = product(p, self.copy)
        form, share = bounds.FORMATS[p.dtype_c], bounds.bounds_of(p)
        error = 1.13 * abs(self.copy.alpha) * share.accumulation * self._norms() + 1e-5 * (np.abs(right) + 1)
        allowed = form.rounding * (np.abs(right) + error) + error + form.smallest
        return int((~(np.abs(got - np.clip(right, form.least, form.most)) <= allowed)).sum())

    def _norms(self) -> np.ndarray:
        p = self.case.problem
        a = numbers(self.copy.a, p.m * p.k * p.batch, p.dtype_a)
        b = numbers(self.copy.b, p.n * p.k * p.batch, p.dtype_b)
        a = a.reshape(p.batch, p.k, p.m).swapaxes(1, 2) if p.layout[0] == "t" else a.reshape(p.batch, p.m, p.k)
        b = b.reshape(p.batch, p.k, p.n).swapaxes(1, 2) if p.layout[1] == "n" else b.reshape(p.batch, p.n, p.k)
        norms: np.ndarray = np.linalg.norm(a, axis=2)[:, :, None] * np.linalg.norm(b, axis=2)[:, None, :]
        return norms
