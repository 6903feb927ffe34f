"""Samples for checking the instruction tables against the compiler: legal forms, and forms that break one rule.

A table is right when every legal sample assembles and every broken one is refused. What the compiler does not
check (M, N and types of `tcgen05.mma`, cluster sizes) is not here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from benchmarks.instruction_ptx import (
    FEATURE_PTX,
    kernel,
    mma_sync_ptx,
    tcgen05_ptx,
    tmem_alloc_ptx,
    tmem_load_ptx,
    wgmma_ptx,
)
from space.arch import ARCHS, Feature
from space.instructions import wgmma
from space.instructions.mma_sync import MMA_SYNC, MmaSync
from space.instructions.operand import FP8, INT8
from space.instructions.tcgen05 import TCGEN05, TMEM_ALLOCATIONS, TMEM_LOAD_REPEATS, Tcgen05
from space.instructions.wgmma import WGMMA, wgmma_for
from workers.build import BuildFailure, compile_source

#: Targets that lack the suffix their instruction needs, and one older than all of ours.
PLAIN_TARGETS: Final = ("sm_75", "sm_90", "sm_100", "sm_120")
#: Features that no target has without its suffix.
SUFFIXED: Final[tuple[Feature, ...]] = ("setmaxnreg", "wgmma", "tcgen05", "matrix_b8", "mma_fp4")
_WORDS: Final = ("bf16", "fp16", "tf32", *FP8, *INT8)
_ACCUMULATORS: Final = ("f32", "fp16", "s32")
_REFUSAL: Final = re.compile(r"(error|fatal)\s*:")


@dataclass(frozen=True, slots=True)
class Sample:
    """One kernel to assemble.

    Attributes:
        arch: compile target.
        instruction: `wgmma`, `mma.sync`, `tcgen05` or `arch`.
        rule: the one that it breaks; of a legal sample, the one that it shows.
        legal: whether it must assemble.
        ptx: body of the kernel.
    """

    arch: str
    instruction: str
    rule: str
    legal: bool
    ptx: str


def refusal(sample: Sample) -> str:
    """The compiler's first error; empty where the sample assembles."""
    built = compile_source(kernel(sample.ptx), sample.arch, None)
    if isinstance(built, BuildFailure) and _REFUSAL.search(built.log):
        return built.reason
    return ""


def refusals(asked: Sequence[Sample]) -> list[str]:
    """`refusal` of each sample, on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(refusal, asked))


def samples() -> list[Sample]:
    """All samples."""
    return [*_features(), *_wgmma_legal(), *_wgmma_broken(), *_mma_sync_legal(), *_mma_sync_broken(), *_tcgen05()]


def _features() -> Iterator[Sample]:
    for arch in ARCHS.values():
        for feature, ptx in FEATURE_PTX.items():
            yield Sample(arch.name, "arch", feature, feature in arch.features, ptx)
    for target, feature in product(PLAIN_TARGETS, SUFFIXED):
        yield Sample(target, "arch", feature, False, FEATURE_PTX[feature])


def _wgmma_legal() -> Iterator[Sample]:
    def legal(rule: str, ptx: str) -> Sample:
        return Sample(wgmma.ARCHS[0], "wgmma", rule, True, ptx)

    for row in WGMMA:
        for n in row.n:
            yield legal("n", wgmma_ptx(row, n))
            yield legal("a in registers", wgmma_ptx(row, n, a_in_registers=True))
        if row.saturates:
            yield legal("satfinite", wgmma_ptx(row, row.n[-1], satfinite=True))
        if row.transposes:
            for pair in product((0, 1), repeat=2):
                yield legal("major modes", wgmma_ptx(row, 128, transposes=pair))
            yield legal("major modes", wgmma_ptx(row, 128, a_in_registers=True, transposes=(1,)))


def _wgmma_broken() -> Iterator[Sample]:
    def broken(rule: str, ptx: str, arch: str = wgmma.ARCHS[0]) -> Sample:
        return Sample(arch, "wgmma", rule, False, ptx)

    for row in WGMMA:
        for n in sorted({4, 12, 20, 252, 264, 512, *range(8, 257, 8)} - set(row.n)):
            yield broken("n", wgmma_ptx(row, n))
        for k in (row.k // 2, row.k * 2):
            yield broken("k", wgmma_ptx(replace(row, k=k), 64))
        for registers in (row.accumulator_registers(64) // 2, row.accumulator_registers(64) * 2):
            yield broken("accumulators", wgmma_ptx(row, 64, registers=registers))
        if not row.saturates:
            yield broken("satfinite", wgmma_ptx(row, 64, satfinite=True))
        if not row.negates:
            yield broken("negation", wgmma_ptx(row, 64, scales=True))
        if row.transposes:
            yield broken("a in registers", wgmma_ptx(row, 64, a_in_registers=True, transposes=(0, 0)))
        elif row.negates:
            yield broken("major modes", wgmma_ptx(row, 64, transposes=(0, 1)))
        for arch in (*(name for name in ARCHS if name not in row.archs), *PLAIN_TARGETS):
            yield broken("arch", wgmma_ptx(row, 64), arch)
    for a, b, acc in product(_WORDS, _WORDS, _ACCUMULATORS):
        like = next(row for row in WGMMA if row.dtype_a == a)
        if wgmma_for(a, b, acc) is None:
            yield broken("dtypes", wgmma_ptx(replace(like, dtype_b=b, dtype_acc=acc), 64))


def _mma_sync_legal() -> Iterator[Sample]:
    for row in MMA_SYNC:
        for arch in row.archs:
            yield Sample(arch, "mma.sync", row.kind or "shape", True, mma_sync_ptx(row))
            if row.saturates:
                yield Sample(arch, "mma.sync", "satfinite", True, mma_sync_ptx(row, satfinite=True))


def _mma_sync_broken() -> Iterator[Sample]:
    def broken(rule: str, row: MmaSync, arch: str, *, satfinite: bool = False) -> Sample:
        return Sample(arch, "mma.sync", rule, False, mma_sync_ptx(row, satfinite=satfinite))

    stated = {_identity(row) for row in MMA_SYNC}
    for row in MMA_SYNC:
        last = row.archs[-1]
        # Two operands of fp8 assemble under kind::f8f6f4 elsewhere too; a narrower one does not.
        fp8_only = row.kind == "f8f6f4" and {row.dtype_a, row.dtype_b} <= set(FP8)
        for arch in ARCHS:
            if arch not in row.archs and not fp8_only:
                yield broken("arch", row, arch)
        neighbours = [("k", replace(row, k=row.k * 2))]
        neighbours += [("dtypes", replace(row, dtype_acc=acc)) for acc in _ACCUMULATORS]
        if row.scale_vec:
            neighbours += [("scale vector", replace(row, scale_vec=count)) for count in (1, 2, 4)]
            neighbours += [("scale dtype", replace(row, scale_dtype=word)) for word in ("ue8m0", "ue4m3")]
        for rule, neighbour in neighbours:
            if _identity(neighbour) not in stated:
                yield broken(rule, neighbour, last)
        if not row.saturates and not row.scale_vec:
            yield broken("satfinite", row, last, satfinite=True)
    for a, b in product(_WORDS, repeat=2):
        # K of the narrower type, so that neither fragment is less than one register.
        like = max((row for row in MMA_SYNC if row.dtype_a in (a, b) and not row.kind), key=lambda row: row.k)
        if not any((row.dtype_a, row.dtype_b) == (a, b) for row in MMA_SYNC):
            yield broken("dtypes", replace(like, dtype_a=a, dtype_b=b), "sm_120a")


def _identity(row: MmaSync) -> tuple[object, ...]:
    return (row.dtype_a, row.dtype_b, row.dtype_acc, row.m, row.n, row.k, row.kind, row.scale_dtype, row.scale_vec)


def _tcgen05() -> Iterator[Sample]:
    def sample(rule: str, legal: bool, ptx: str, arch: str = "sm_100a") -> Sample:
        return Sample(arch, "tcgen05", rule, legal, ptx)

    forms = {row.mnemonic: row for row in TCGEN05}
    for row in forms.values():
        for in_tmem in (False, True):
            yield sample("kind", True, tcgen05_ptx(row, a_in_tmem=in_tmem))
        for arch in (*(name for name in ARCHS if name not in row.archs), *PLAIN_TARGETS):
            yield sample("arch", False, tcgen05_ptx(row), arch)
        for rule, neighbour in _tcgen05_neighbours(row):
            if neighbour.mnemonic not in forms:
                yield sample(rule, False, tcgen05_ptx(neighbour))
    for columns in (*TMEM_ALLOCATIONS, 0, 8, 16, 48, 96, 384, 1024):
        yield sample("tmem columns", columns in TMEM_ALLOCATIONS, tmem_alloc_ptx(columns))
    for shape, repeats in TMEM_LOAD_REPEATS.items():
        for repeat in (*repeats, 3, repeats[-1] * 2):
            yield sample("tmem load", repeat in repeats, tmem_load_ptx(shape, repeat))


def _tcgen05_neighbours(row: Tcgen05) -> Iterator[tuple[str, Tcgen05]]:
    yield "cta_group", replace(row, cta_group=3)
    if row.weight_stationary:
        yield "weight stationary", replace(row, cta_group=2)
    if row.scale_vec:
        yield "weight stationary", replace(row, weight_stationary=True)
    for count in (1, 2, 4):
        yield "scale vector", replace(row, scale_vec=count)
