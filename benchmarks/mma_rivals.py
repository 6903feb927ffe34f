"""Times `mma_sync` beside others' kernels for the same instruction on one GPU: Triton's, and cuBLASLt's for sm_80.

DISABLE_MMA_V3=1 python -m benchmarks.mma_rivals --out benchmarks/results/mma_rivals_h200.md

Ours is the fastest of the candidates that the estimate ranks first. Triton compiles a plain product to `mma.sync`,
and the fastest of its tiles counts. Of cuBLASLt, every algorithm that its heuristic lists runs once under CUPTI,
whose names of kernels tell which are built for sm_80; the fastest of those counts, and the fastest of all stands
beside it. All take turns on torch's stream, each long enough to bring its own clock, and every C is compared with the
product in f64.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from benchmarks.command import as_command, gpu_of_torch, needing_torch

with needing_torch():
    import torch
    import triton

from benchmarks import triton_mma
from benchmarks.launchers import poisoned
from benchmarks.mma_ceiling import PROBLEMS, ranked_for
from benchmarks.model.machines import Arm, Cuda, Pace, alternating
from benchmarks.named import problem_of
from benchmarks.published import add_out, publish
from gemmtune.torch import streams
from gemmtune.torch.expected import Expected
from space.config import Config
from space.devices import profile_named
from space.kinds.gemm import Gemm
from tuner.settings import settings
from workers.build import BuildFailure, compile_source
from workers.builder import source_of
from workers.cuda.calls import Call, LibraryCall
from workers.cuda.device import open_device
from workers.cuda.driver import CudaError
from workers.cuda.families.cublaslt import Handle, Matmul, opened

#: What names of kernels for sm_80 contain: `ampere_…`, `sm80_xmma_…`, `cutlass_80_…`.
_SM_80: Final = re.compile(r"ampere|sm80|cutlass_80")
_MARKER: Final = "FillFunctor"
#: Candidates of ours for a product.
CANDIDATES: Final = 16
#: Runs of a candidate in the look that finds the fastest.
LOOKS: Final = 10
PACE: Final = Pace(turns=5, settle_seconds=0.1, counted_seconds=0.15)
HEADER: Final = (
    "| product | mma_sync, µs | its tile | Triton, µs | its tile | cuBLASLt for sm_80, µs | its kernel | cuBLASLt's "
    "best, µs | its kernel |\n| --- | ---: | --- | ---: | --- | ---: | --- | ---: | --- |"
)
Launch = Callable[[], Any]
Into = Callable[[torch.Tensor], Any]


class Product:
    """One problem's operands on the GPU, and the launches of all rivals.

    Attributes:
        expected: operands, and the bound of each element of C.
        wrong: what is wrong with a rival's C, by rival.
    """

    def __init__(self, problem: Gemm, machine: Cuda) -> None:
        self.problem, self.machine, self.wrong = problem, machine, dict[str, str]()
        self.expected = Expected(problem, torch.device(machine.device))
        self._kept: list[Any] = []

    def checked(self, rival: str, launch: Into) -> Launch:
        """The launch into a C of its own, once its result has been compared."""
        c = poisoned(self.expected)
        launch(c)
        self.machine.wait()
        if wrong := self.expected.difference(c):
            self.wrong[rival] = wrong
        return lambda: launch(c)

    def into(self, call: Call | LibraryCall) -> Into:
        """Launches a loaded kernel on torch's stream."""
        on = call.on(streams.queue(torch.cuda.current_device(), self.machine.stream()).stream)
        scratch = {name: torch.zeros(one.size_bytes, dtype=torch.uint8, device=self.machine.device)
                   for name, one in call.scratch.items()}  # fmt: skip
        self._kept.append(scratch)
        on.bring({name: memory.data_ptr() for name, memory in scratch.items()})
        a, b = self.expected.a.data_ptr(), self.expected.b.data_ptr()
        return lambda c: on(a, b, c.data_ptr(), 0, 0, 1.0, 0.0)

    def triton(self, tile: triton_mma.Tile) -> Into:
        """Launches Triton's kernel."""
        a, b = self.expected.a[0], self.expected.b[0].t()
        return lambda c: triton_mma.launch(self.problem, tile, a, b, c[0])

    def us(self, launch: Launch) -> float:
        """A short look."""
        launch()
        return self.machine.us(launch, LOOKS)


def ours(product: Product) -> tuple[Launch, str]:
    """Our fastest kernel of the first by the estimate, and its tile."""
    facts = open_device(torch.cuda.current_device())
    profile, problem = profile_named(facts.name), product.problem
    configs = ranked_for(problem, profile).configs(CANDIDATES)
    with ThreadPoolExecutor() as pool:
        sources = [source_of(problem, config, facts.arch) for config in configs]
        builds = list(pool.map(lambda source: compile_source(source, facts.arch, settings().cache_dir), sources))
    somewhere = torch.empty(1024, dtype=torch.uint8, device=product.machine.device)
    c, found = poisoned(product.expected), list[tuple[float, Into, Config]]()
    for config, built in zip(configs, builds, strict=True):
        if isinstance(built, BuildFailure):
            raise SystemExit(f"{config.key} does not compile: {built.reason}")
        launch = product.into(Call(problem, config, built.cubin, profile, somewhere.data_ptr()))
        found.append((product.us(partial(launch, c)), launch, config))
    _, launch, config = min(found, key=lambda each: each[0])
    number = config.number
    return product.checked("mma_sync", launch), f"{number('tile_m')}x{number('tile_n')}x{number('tile_k')}"


def tritons(product: Product) -> tuple[Launch, str]:
    """Triton's fastest kernel of those compiled to mma.sync, and its tile."""
    found: dict[triton_mma.Tile, float] = {}
    c = poisoned(product.expected)
    for tile in triton_mma.tiles(product.problem):
        try:
            compiled = product.triton(tile)(c)
            if triton_mma.instruction_of(compiled) == "mma.sync" and not compiled.n_spills:
                found[tile] = product.us(partial(product.triton(tile), c))
        except (RuntimeError, triton.runtime.errors.OutOfResources) as error:
            print(f"    Triton, {tile}: {error}", flush=True)
    if not found:
        raise SystemExit("Triton compiles nothing to mma.sync here: run this with DISABLE_MMA_V3=1")
    best = min(found, key=found.__getitem__)
    return product.checked("Triton", product.triton(best)), str(best)


def librarys(product: Product, library: Handle) -> Iterator[tuple[Launch, str]]:
    """cuBLASLt's fastest kernel for sm_80, if it lists any, and its fastest of all, each with its name."""
    matmul = Matmul(library, product.problem)
    listed = matmul.listed
    matmul.free()
    c, times = poisoned(product.expected), dict[Config, float]()
    launches: dict[Config, Into] = {}
    for config in listed:
        try:
            launches[config] = product.into(LibraryCall(product.problem, config, library))
            times[config] = product.us(partial(launches[config], c))
        except CudaError as error:
            launches.pop(config, None)
            print(f"    {config.key}: {error}", flush=True)
    names = kernels_of({config: launch for config, launch in launches.items() if config in times}, c)
    fast = sorted(times, key=times.__getitem__)
    of_sm_80 = [each for each in fast if _SM_80.search(names[each])]
    for rival, choice in (("cuBLASLt for sm_80", of_sm_80), ("cuBLASLt", fast)):
        if choice:
            yield product.checked(rival, launches[choice[0]]), names[choice[0]]
        else:
            yield lambda: None, ""


def kernels_of(launches: Mapping[Config, Into], c: torch.Tensor) -> dict[Config, str]:
    """Names of the kernels that each launch runs, by CUPTI, with a marker's kernel before each."""
    marker = torch.empty(1, device=c.device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for launch in launches.values():
            marker.fill_(1.0)
            launch(c)
        torch.cuda.synchronize()
    groups: list[list[str]] = []
    on_gpu = (each for each in profile.events() if each.device_type == torch.autograd.DeviceType.CUDA)
    for event in sorted(on_gpu, key=lambda each: each.time_range.start):
        if _MARKER in event.name:
            groups.append([])
        elif groups and not event.name.startswith("Mem"):
            groups[-1].append(event.name)
    return {config: " + ".join(group) for config, group in zip(launches, groups, strict=True)}


def row(problem: Gemm, library: Handle, machine: Cuda) -> str:
    """One product."""
    product = Product(problem, machine)
    own, own_tile = ours(product)
    arms = {"mma_sync": own}
    arms["Triton"], tile = tritons(product)
    (sm_80, sm_80_name), (best, best_name) = librarys(product, library)
    arms |= {"cuBLASLt": best} | ({"cuBLASLt for sm_80": sm_80} if sm_80_name else {})
    taken = alternating(machine, {name: Arm(launch) for name, launch in arms.items()}, PACE)
    us = {name: f"{statistics.median(times):.1f}" for name, times in taken.items()}
    for name, wrong in product.wrong.items():
        us[name] += f" (wrong: {wrong})"
    cells = (
        f"{problem.dtype} {problem.shape}", us["mma_sync"], own_tile, us["Triton"], tile,
        us.get("cuBLASLt for sm_80", "none listed"), short(sm_80_name), us["cuBLASLt"], short(best_name),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def short(name: str) -> str:
    """A kernel's name without its template's arguments."""
    return f"`{name.split('<')[0].removeprefix('void ')[:100]}`" if name else "–"


def main() -> int:
    """Prints a row per product; exits with 1 if some C is wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("problems", nargs="*", default=PROBLEMS, help="as DTYPE:MxNxK")
    add_out(options)
    given = options.parse_args()
    device = gpu_of_torch()
    torch.zeros(1, device="cuda")
    library, missing = opened(0)
    if library is None:
        raise SystemExit(missing)
    versions = f"torch {torch.__version__}, Triton {triton.__version__}, cuBLASLt {library.version}"
    about = f"{device}, {versions}; Triton with `DISABLE_MMA_V3=1`."
    print(about, HEADER, sep="\n", flush=True)
    lines = [HEADER]
    with torch.no_grad():
        for each in given.problems:
            lines.append(row(problem_of(each), library, Cuda()))
            print(lines[-1], flush=True)
    publish("mma_rivals", given.out, about, "\n".join(lines))
    return int(any("wrong" in line for line in lines))


if __name__ == "__main__":
    as_command(main)
