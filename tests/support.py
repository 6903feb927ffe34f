"""Values that several tests need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from space.config import Config
from space.devices import find_profile
from space.errors import FamilyError
from space.family import families_for, family_named
from space.kinds.gemm import Gemm
from tuner.errors import NewerContent
from tuner.evidence import codec
from tuner.evidence.records import Best, Ratio, StoredMeasurement, StudyKey
from tuner.evidence.store import Store
from workers.kernels.source import sources_digest
from workers.measurement import (
    RECORDED_SCREENING,
    SCREENING,
    Clocks,
    DeviceFacts,
    Measurement,
    Outcome,
    Policy,
    Provenance,
    Stage,
    Verification,
)
from workers.recording import file_name, write_recording

FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("256x256x256")
DEVICE = "NVIDIA H200"
#: Of one program, whose tiles are small: it is compiled once, and soon.
SMALL_CONFIGS = [
    FAMILY.config({"tile_m": 64, "tile_n": 64, "consumer_warpgroups": 1, "producer_registers": 0, "raster": raster,
                   "raster_group": group})
    for raster in ("along_m", "along_n") for group in (1, 2, 4, 8)
]  # fmt: skip
#: The version that would compile here: what another one built is stale.
NVRTC = ".".join(version("nvidia-cuda-nvrtc").split(".")[:2])
#: Of measurements of `PROBLEM` with today's kernels.
PROVENANCE = Provenance(
    DEVICE, "GPU-0", "580.1", NVRTC, sources_digest(families_for("sm_90a", PROBLEM)), "130100", "0.1.0", 7
)
#: Of recordings, which are older.
RECORDED_PROVENANCE = replace(PROVENANCE, kernel_source_digest="d" * 64)
FACTS = DeviceFacts(DEVICE, "sm_90a", "cuda", "GPU-0", "580.1", 132, 60 * 2**20, 140 * 2**30)
CLOCKS = Clocks(1980, 3201, 400.0, 50, ("sw_power_cap",))


def measured(
    config: Config,
    us: float = 10.0,
    problem: Gemm = PROBLEM,
    stage: Stage = "screen",
    outcome: Outcome = Outcome.CORRECT,
    samples: int = 5,
    policy: Policy = SCREENING,
) -> Measurement:
    """A measurement of `config` whose samples lie around `us`."""
    if outcome is not Outcome.CORRECT:
        return Measurement(problem.key, config, stage, policy, outcome, detail=f"planted {outcome}")
    times = tuple(us * (1 + 0.001 * (place - samples // 2)) for place in range(samples))
    clean = Verification(problem.output_elements, 0, 0.5, "planted")
    return Measurement(problem.key, config, stage, policy, outcome, times, verification=clean, clocks=CLOCKS)


def study_key(problem: Gemm = PROBLEM, device: str = DEVICE) -> StudyKey:
    """A study of one problem."""
    return StudyKey(problem, device, "cuda", SCREENING, FAMILY.name, "source")


def today(problem: Gemm = PROBLEM, device: str = DEVICE) -> Provenance:
    """Provenance with today's kernels for a problem on a device."""
    profile = find_profile(device)
    if profile is None or profile.arch.name not in FAMILY.targets:
        return PROVENANCE
    try:
        competing = families_for(profile.arch.name, problem)
    except FamilyError:
        return PROVENANCE
    return replace(PROVENANCE, kernel_source_digest=sources_digest(competing))


def keep_best(
    store: Store, problem: Gemm = PROBLEM, device: str = DEVICE, us: float = 10.0, by: Provenance | None = None
) -> Best:
    """A best in the store, with the measurement behind it; by today's kernels unless `by` says otherwise."""
    study = store.begin_study(study_key(problem, device), fresh=True)
    stored = store.record(study.id, measured(FAMILY.config({}), us, problem), by or today(problem, device))
    best = Best(problem, device, "cuda", stored, Ratio(1.1, 1.05, 1.15, True), None, None, 1, {"compile": 2})
    store.set_bests([best])
    return best


def record_problem(folder: Path, configs: Sequence[Config], problem: Gemm = PROBLEM, finals: int = 4) -> Path:
    """A recording in which later configs are slower, every seventh failed, with a library baseline."""
    recorded = partial(measured, policy=RECORDED_SCREENING)
    rows = []
    for place, config in enumerate(configs):
        outcome = Outcome.TIMEOUT if place % 7 == 6 else Outcome.CORRECT
        rows.append((recorded(config, 10.0 + place, problem, outcome=outcome), RECORDED_PROVENANCE))
    rows += [(recorded(config, 10.0 + place, problem, "final", samples=11), RECORDED_PROVENANCE) for place, config in
             enumerate(configs[:finals])]  # fmt: skip
    library = family_named("cublaslt")
    rows += [(recorded(library.config({"rank": rank}), 12.0 - rank / 10, problem, "final", samples=11),
              RECORDED_PROVENANCE)
             for rank in (0, 3)]  # fmt: skip
    path = folder / file_name(problem)
    write_recording(path, problem, FACTS, rows)
    return path


def stored_key(stored: StoredMeasurement) -> tuple[str, str]:
    """The key that is unique within a study."""
    return stored.measurement.config.key, stored.measurement.stage


def only_newer_reads(patched: pytest.MonkeyPatch, config: Config) -> None:
    """Has stores hold a config as one that a newer version knows, and this one doesn't."""
    read = codec.config_of

    def unreadable(key: str) -> Config:
        if key == config.key:
            raise NewerContent("of another version")
        return read(key)

    patched.setattr(codec, "config_of", unreadable)
