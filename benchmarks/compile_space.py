"""Compiles random legal configs of every dtype and layout, to check that the compiler accepts what the rules allow.

python -m benchmarks.compile_space --family sm90_wgmma --samples 500 --out benchmarks/results/F.md
python -m benchmarks.compile_space --family mma_sync --arch sm_89 --samples 300

A sample fails if NVRTC refuses it, registers spill, wgmma is serialised, setmaxnreg is ignored, it uses more registers
than the rules assume, or its shared memory differs from the value that `space` derives (the kernel asserts it).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from benchmarks.command import WrongInput, as_command, positive
from benchmarks.published import add_out, publish
from space.config import Config
from space.devices import DeviceProfile, reference_profile
from space.explain import legal_mask
from space.family import family_named
from space.kinds.gemm import DTYPES, LAYOUTS, Gemm
from space.plug import Family
from workers.build import BuildFailure, compile_source, nvrtc_version
from workers.builder import source_of

#: Extents that meet every rule on divisibility and are large enough for every cluster and split; for few rows, also
#: values of K that need narrower loads.
SHAPES = {
    "sm90_wgmma": ((4096, 4096, 8192),),
    "gemv": tuple((m, 4096, k) for k in (8192, 8188, 8190, 8191) for m in (1, 2, 3, 4)),
    "mma_sync": ((4096, 4096, 8192), (4096, 4104, 8196), (4100, 4096, 8190), (4098, 4097, 8191)),
}
EPILOGUES = ("none", "alpha", "alpha+beta", "bias+gelu", "relu", "beta+gelu", "beta+bias+gelu", "alpha+beta+bias+silu")
#: Of 8-bit floats, where the family takes them.
SCALED = ("scaled", "scaled_rowwise", "scaled+bias+gelu", "scaled_rowwise+bias")
OUTPUTS = {"f32": ("f32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"), "s32": ("s32", "int8", "bf16", "f32")}
DRAWS = 60_000


def main() -> None:
    """Prints the table and writes it with its command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--family", choices=sorted(SHAPES), default="sm90_wgmma")
    options.add_argument("--arch", help="compile target; by default that of the family's reference device")
    options.add_argument("--samples", type=positive, default=500)
    options.add_argument("--seed", type=int, default=1)
    add_out(options)
    given = options.parse_args()
    started = time.perf_counter()
    rng = np.random.default_rng(given.seed)
    family = family_named(given.family)
    device = reference_profile(given.arch) if given.arch else family.reference
    check_target(family, device)
    drawn = list(samples(family, given.samples, rng, device))
    with ThreadPoolExecutor() as pool:
        verdicts = list(pool.map(lambda sample: verdict(sample[0], sample[1], device), drawn))
    lines = list(report(drawn, verdicts, device.arch.name, time.perf_counter() - started))
    print("\n".join(lines))
    publish("compile_space", given.out, "\n".join(lines))
    sys.exit(any(verdicts))


def check_target(family: Family, device: DeviceProfile) -> None:
    """Checks that a family has kernels for a device.

    Raises:
        WrongInput: it has none.
    """
    if device.arch.name not in family.targets:
        known = ", ".join(sorted(family.targets))
        raise WrongInput(f"{family.name} has no kernel for {device.arch.name}: it compiles for {known}")


def samples(
    family: Family, count: int, rng: np.random.Generator, device: DeviceProfile | None = None
) -> Iterator[tuple[Gemm, Config]]:
    """Problems of every dtype and layout that the device has, in turn, each with a legal config drawn evenly over the
    legal rows."""
    shapes = SHAPES[family.name]
    layouts = [layout for layout in LAYOUTS if family.takes(Gemm.of(*shapes[0], layout=layout))]
    dtypes = [dtype for dtype in DTYPES if family.takes(Gemm.of(*shapes[0], dtype, layouts[0]), device)]
    problems = [(dtype, layout) for dtype in dtypes for layout in layouts]
    for place in range(count):
        dtype, layout = problems[place % len(problems)]
        drawn = draw_dtypes(family, dtype, layout, shapes[0], rng, device)
        # Shapes cycle out of step with dtypes and layouts.
        shape = shapes[(place + place // len(problems)) % len(shapes)]
        problem = Gemm.of(*shape, drawn, layout, epilogue=str(rng.choice(EPILOGUES)))
        if problem.dtype_a.startswith("fp8"):
            scaled = replace(problem, epilogue=str(rng.choice(SCALED)))
            problem = scaled if place % 2 and family.takes(scaled, device) else problem
        yield problem, legal_config(family, problem, rng, device)


def draw_dtypes(
    family: Family, dtype: str, layout: str, shape: tuple[int, int, int], rng: np.random.Generator,
    device: DeviceProfile | None,
) -> str:  # fmt: skip
    """All four dtypes of a product, as `Gemm.of` takes them, with one of the outputs that the family has."""
    a, b, _, acc = DTYPES[dtype]
    words = [f"{a},{b},{output},{acc}" for output in OUTPUTS["s32" if acc == "s32" else "f32"]]
    return str(rng.choice([word for word in words if family.takes(Gemm.of(*shape, word, layout), device)]))


def legal_config(
    family: Family, problem: Gemm, rng: np.random.Generator, device: DeviceProfile | None = None
) -> Config:
    """One legal row of large random draws from the product of the domains."""
    while True:
        draws = np.stack([rng.choice(knob.column(), DRAWS) for knob in family.knobs], axis=1)
        columns = family.rows_of(problem, draws, device)
        rows = np.flatnonzero(legal_mask(family, columns))
        if len(rows):
            return family.config_at(columns, int(rng.choice(rows)))


def verdict(problem: Gemm, config: Config, device: DeviceProfile | None = None) -> str:
    """Describes what is wrong with a build; empty if nothing is."""
    family = family_named(config.family)
    arch = (device or family.reference).arch.name
    made = compile_source(source_of(problem, config, arch), arch, None)
    if isinstance(made, BuildFailure):
        return made.reason
    bound = family.derive(problem, config, device)["entry_registers"]
    return f"{made.registers} registers > {bound} at entry" if made.registers > bound else ""


def report(drawn: list[tuple[Gemm, Config]], verdicts: list[str], arch: str, seconds: float) -> Iterator[str]:
    """The table, one row per dtype, followed by the failures."""
    yield f"NVRTC {nvrtc_version()}, {arch}, {len(drawn)} legal configs in {seconds:.0f} s."
    yield ""
    yield "| A × B → sum | samples | failures |"
    yield "| --- | --- | --- |"
    words = [f"{problem.dtype_a} × {problem.dtype_b} → {problem.dtype_acc}" for problem, _ in drawn]
    failures = Counter(word for word, said in zip(words, verdicts, strict=True) if said)
    for word, count in Counter(words).items():
        yield f"| {word} | {count} | {failures[word]} |"
    yield f"| all | {len(drawn)} | {sum(failures.values())} |"
    for (problem, config), said in zip(drawn, verdicts, strict=True):
        if said:
            yield f"\n- `{problem.key}` `{config.knobs_text}`: {said}"


if __name__ == "__main__":
    as_command(main)
