"""Plants recordings of as many problems as a storm needs, with made-up times.

They serve to count and to inject faults, never to compare speeds, because nothing here is measured.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from space.config import Config
from space.devices import DEFAULT_DEVICE, profile_named
from space.enumerate import enumerate_space
from space.family import family_named
from space.kinds.gemm import Gemm
from space.rank import rank
from workers.measurement import Clocks, DeviceFacts, Measurement, Outcome, Policy, Provenance, Stage, Verification
from workers.recording import file_name, write_recording

_PROVENANCE: Final = Provenance("NVIDIA H200", "GPU-planted", "580.0", "13.0", "0" * 64, "130100", "0.1.0", 1)
_FACTS: Final = DeviceFacts(
    "NVIDIA H200", "sm_90a", "cuda", "GPU-planted", "580.0", 132, 60 * 2**20, 140 * 2**30
)  # fmt: skip
_CLOCKS: Final = Clocks(1_980, 3_201, 400.0, 50)


_LIBRARY: Final = tuple(family_named("cublaslt").config({"rank": rank}) for rank in (0, 2))


def planted_us(candidates: int) -> dict[str, float]:
    """Time of every planted config in microseconds, by its key; the same for all problems."""
    ours = {config.key: 200.0 + place for place, config in enumerate(some_configs(candidates))}
    return ours | {config.key: 210.0 - 2 * place for place, config in enumerate(_LIBRARY)}


def plant(folder: Path, problems: int, candidates: int) -> list[Gemm]:
    """Writes recordings of `problems` problems with `candidates` candidates each; the problems.

    All problems share few cubins, so that a storm spends its time on rounds and not on compiling.
    """
    made, configs = list[Gemm](), some_configs(candidates)
    for number in range(problems):
        problem = Gemm(4096 + 128 * (number % 20), 4096 + 128 * (number // 20), 4096)
        times = planted_us(candidates)
        rows = [measured(config, problem, times[config.key], "screen") for config in configs]
        # Whichever a search sends to the finals was timed there.
        rows += [measured(config, problem, times[config.key], "final") for config in (*configs, *_LIBRARY)]
        write_recording(folder / file_name(problem), problem, _FACTS, [(row, _PROVENANCE) for row in rows])
        made.append(problem)
    return made


@cache
def some_configs(count: int) -> tuple[Config, ...]:
    """Configs that are legal for every problem whose extents are multiples of 64 from 4096 on."""
    space = enumerate_space(family_named("sm90_wgmma"), Gemm.parse("4096x4096x4096"))
    return tuple(_sharing(rank(space, profile_named(DEFAULT_DEVICE)).configs(2_000), count))


def _sharing(ranked: list[Config], count: int) -> list[Config]:
    """The first `count` configs that differ in launch knobs from one of few sets of compile knobs."""
    family = family_named("sm90_wgmma")
    groups: dict[tuple[object, ...], list[Config]] = {}
    compile_knobs = [knob.name for knob in family.knobs if knob.decides == "compile"]
    for config in ranked:
        groups.setdefault(tuple(config[name] for name in compile_knobs), []).append(config)
    largest = sorted(groups.values(), key=len, reverse=True)
    return [config for group in largest for config in group][:count]


def measured(config: Config, problem: Gemm, us: float, stage: Stage) -> Measurement:
    """A made-up measurement of about `us` microseconds."""
    samples = tuple(us * (1 + 0.001 * (place - 5)) for place in range(11))
    check = Verification(problem.m * problem.n, 0, 0.5, "planted")
    return Measurement(
        problem.key, config, stage, Policy.ROUNDS, Outcome.CORRECT, samples, verification=check, clocks=_CLOCKS
    )
