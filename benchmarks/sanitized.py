"""Runs random legal configs under compute-sanitizer's memcheck and racecheck.

python -m benchmarks.sanitized --family mma_sync --configs 20 --out benchmarks/results/sanitized_mma_sync_h200.md

Every dtype and layout has its turn, on small products with edges in every extent. Each operand is an allocation of its
own, exactly as long as it is, so that memcheck sees any byte beyond: first it must see a planted read of rows beyond A.
The tools slow kernels down by some hundred times; the kernels are compiled before.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from cuda.bindings import driver as cu

from benchmarks.command import as_command, positive
from benchmarks.compile_space import EPILOGUES, check_target, draw_dtypes, legal_config
from benchmarks.published import add_out, publish
from space.config import Config
from space.devices import DeviceProfile, profile_named
from space.family import family_named
from space.kinds.gemm import DTYPES, LAYOUTS, Gemm
from space.problem import DTYPE_BYTES
from tuner.settings import settings
from workers.build import Build, compile_source
from workers.builder import source_of
from workers.cuda.calls import Call
from workers.cuda.device import open_device
from workers.cuda.driver import Buffer, Stream, check

SANITIZER: Final = "compute-sanitizer"
#: What each tool ends with.
SUMMARIES: Final = {"memcheck": r"ERROR SUMMARY: (\d+) error", "racecheck": r"RACECHECK SUMMARY: (\d+) hazard"}
#: Small, with edges; the last has the most steps of K.
SHAPES: Final = ((129, 200, 264), (256, 136, 192), (65, 77, 129), (40, 320, 520))
SECONDS: Final = 240
#: Launches of each config: the second finds the semaphores that the first left.
LAUNCHES: Final = 2
#: What copies of rows beyond an operand look like in a kernel, and a product whose A ends within a tile.
UNMASKED: Final = {"mma_sync": ("ahead < lines, left);", "true, left);")}
UNMASKED_SHAPE: Final = (129, 200, 264)


def drawn(family_name: str, count: int, seed: int, device: DeviceProfile) -> list[tuple[Gemm, Config]]:
    """Problems of every dtype and layout that the device has, in turn, each with a legal config."""
    family, rng = family_named(family_name), np.random.default_rng(seed)
    turns = [(dtype, layout) for layout in LAYOUTS for dtype in DTYPES
             if family.takes(Gemm.of(*SHAPES[0], dtype, layout), device)]  # fmt: skip
    # Neighbours differ in both, and few draws see all.
    places = rng.permutation(len(turns))
    found = []
    for number in range(count):
        dtype, layout = turns[places[number % len(turns)]]
        shape = SHAPES[number % len(SHAPES)]
        dtypes = draw_dtypes(family, dtype, layout, shape, rng, device)
        problem = Gemm.of(*shape, dtypes, layout, 1 + number % 2, str(rng.choice(EPILOGUES)))
        found.append((problem, legal_config(family, problem, rng, device)))
    return found


def planted(family_name: str) -> tuple[Gemm, Config]:
    """The product and the config that a fault is planted in."""
    return Gemm.of(*UNMASKED_SHAPE), family_named(family_name).config({})


def build(sample: tuple[Gemm, Config], arch: str, fault: tuple[str, str] = ("", "")) -> Build:
    """The kernel of a config, from the cache where it is there.

    Args:
        fault: text that stands in the kernel once, and what takes its place.
    """
    source, (old, new) = source_of(*sample, arch), fault
    if old and source.count(old) != 1:
        raise SystemExit(f"{old!r} stands {source.count(old)} times in the kernel: give the fault another anchor")
    made = compile_source(source.replace(old, new) if old else source, arch, settings().cache_dir)
    if not isinstance(made, Build):
        raise SystemExit(f"{sample[1].key} does not compile: {made.reason}")
    return made


def launch(sample: tuple[Gemm, Config], build: Build, device: DeviceProfile, stream: Stream) -> None:
    """Runs a config on random bytes."""
    problem, config = sample
    rng, buffers = np.random.default_rng(1), dict[str, Buffer]()
    for operand in problem.operands():
        bytes_ = rng.integers(0, 256, operand.elements * DTYPE_BYTES[operand.dtype], np.uint8)
        buffers[operand.name] = buffer = Buffer.allocate(bytes_.nbytes)
        check("cuMemcpyHtoD", cu.cuMemcpyHtoD(buffer.address, bytes_.ctypes.data, bytes_.nbytes))
    at = {name: buffer.address for name, buffer in buffers.items()}
    call = Call(problem, config, build.cubin, device, at["a"])
    on = call.on(stream)
    for name, each in call.scratch.items():
        buffers[f"scratch {name}"] = buffer = Buffer.allocate(each.size_bytes)
        check("cuMemsetD8", cu.cuMemsetD8(buffer.address, 0, each.size_bytes))
        on.bring({name: buffer.address})
    for _ in range(LAUNCHES):
        on(at["a"], at["b"], at["c"], at.get("source", 0), at.get("bias", 0), 1.0, 0.5 if "source" in at else 0.0)
    stream.synchronize()
    call.unload()
    for buffer in buffers.values():
        buffer.free()


def launch_all(samples: Sequence[tuple[Gemm, Config]], arch: str, device: DeviceProfile) -> None:
    """Runs all samples in this process."""
    stream = Stream()
    for sample in samples:
        launch(sample, build(sample, arch), device, stream)
        print(f"launched {sample[0].key} {sample[1].knobs_text}", flush=True)


def main() -> int:
    """Prints a row per tool; exits with 1 if one has something to say."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--family", default="mma_sync")
    options.add_argument("--configs", type=positive, default=20)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=SECONDS, help="how long a tool may take")
    options.add_argument("--launch", action="store_true", help="only launch the configs, in this process")
    options.add_argument("--planted", action="store_true", help="only launch a kernel that reads rows beyond A")
    add_out(options)
    given = options.parse_args()
    facts = open_device(0)
    device = profile_named(facts.name)
    check_target(family_named(given.family), device)
    if given.planted:
        sample = planted(given.family)
        launch(sample, build(sample, facts.arch, UNMASKED[given.family]), device, Stream())
        return 0
    samples = drawn(given.family, given.configs, given.seed, device)
    if given.launch:
        launch_all(samples, facts.arch, device)
        return 0
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda sample: build(sample, facts.arch), samples))
    one = [sys.executable, "-m", "benchmarks.sanitized", "--family", given.family]
    itself = [*one, "--launch", "--configs", str(given.configs), "--seed", str(given.seed)]
    rows = ["| tool | configs launched | what it found | seconds |", "| --- | ---: | --- | ---: |"]
    clean = True
    if given.family in UNMASKED:
        said, seconds = output_of([SANITIZER, "--tool", "memcheck", *one, "--planted"], given.seconds)
        match = re.search(SUMMARIES["memcheck"], said)
        clean = match is not None and match[1] != "0" and "Invalid __global__ read" in said
        found = match[0] + "s" if match else "no summary"
        rows.append(f"| memcheck, of a planted read beyond A | 1 | {found} | {seconds:.0f} |")
        print(said if not clean else "", rows[-1], sep="\n", flush=True)
    for tool, summary in SUMMARIES.items():
        said, seconds = output_of([SANITIZER, "--tool", tool, *itself], given.seconds)
        match = re.search(summary, said)
        launched = said.count("\nlaunched ") + said.startswith("launched ")
        right = match is not None and match[1] == "0" and launched == given.configs
        clean &= right
        rows.append(f"| {tool} | {launched} | {match[0] + 's' if match else 'no summary'} | {seconds:.0f} |")
        print(said if not right else "", rows[-1], sep="\n", flush=True)
    about = f"{facts.name}; {given.configs} configs of {given.family}, {LAUNCHES} launches each."
    samples_text = "\n".join(f"- `{problem.key}` `{config.knobs_text}`" for problem, config in samples)
    publish("sanitized", given.out, about, "\n".join(rows), samples_text)
    return int(not clean)


def output_of(command: Sequence[str], seconds: float) -> tuple[str, float]:
    """All that a command prints within its time, and its seconds."""
    begun = time.perf_counter()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False)
        said = done.stdout
    except subprocess.TimeoutExpired as ended:
        said = ended.stdout or b""
    return said.decode(errors="replace"), time.perf_counter() - begun


if __name__ == "__main__":
    as_command(main)
