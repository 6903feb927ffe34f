"""cuBLASLt's best algorithms, rebuilt from what is exported, beside the heuristic's own objects.

python -m benchmarks.algorithm_round_trip --out benchmarks/results/algorithm_round_trip_h200.md

For every problem of the suite, the fastest of the library's candidates leaves as a row of TunableOp (as a config's key
where TunableOp has no such operation). Its nine attributes are read back, and the algorithm is rebuilt with the calls
that torch makes: init, set, check. Both write C on the same random operands; their bits are compared, and the times of
CUDA graphs that replay in turn.
"""

from __future__ import annotations

import ctypes
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.command import as_command, gpu_of_torch, needing_torch

with needing_torch():
    import torch

from benchmarks.launchers import copy_of, options_of, poisoned, rows_of
from benchmarks.model.machines import Cuda, Machine, Run, paired
from benchmarks.named import named_problems
from benchmarks.published import publish
from benchmarks.speed import SUITE
from gemmtune.torch.expected import Expected
from space.config import Config
from space.families.common import WORKSPACE_BYTES
from space.families.cublaslt import BY_RANK, CUBLASLT, MAX_RANKS
from space.family import config_named
from space.kinds.gemm import Gemm
from tuner.tables.exporters import tunableop
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions
from workers.cuda.device import identity_here
from workers.cuda.driver import CudaError
from workers.cuda.families.algorithms import ATTRIBUTES, Algorithm, attributes
from workers.cuda.families.cublaslt import Handle, Matmul, opened, unsupported

#: How far the times of one algorithm may lie apart.
MOST_APART: Final = 0.02
#: Runs of a candidate in the look that finds the fastest.
LOOKS: Final = 20
#: How long the graphs of one problem take turns.
PAIRS_SECONDS: Final = 0.12
#: torch's name of an algorithm: its nine numbers, in the order in which `ATTRIBUTES` has them by these words.
_SOLUTION: Final = re.compile(
    r"Gemm_Cublaslt_id_(?P<algorithm>-?\d+)_tile_(?P<tile>\d+)_stages_(?P<stages>\d+)_splitk_(?P<split_k>-?\d+)"
    r"_red_(?P<reduction>\d+)_swizzle_(?P<swizzle>\d+)_custom_(?P<custom>\d+)_inner_(?P<inner_shape>\d+)"
    r"_cluster_(?P<cluster>\d+)"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One problem.

    Attributes:
        said: where the nine numbers come from.
        rank: of the algorithm in the heuristic's list; None if its list lacks it.
        ratio: the rebuilt algorithm's time by that of the heuristic's object.
        result: whether the bits of C are the same.
    """

    problem: Gemm
    said: str
    numbers: Mapping[str, int]
    rank: int | None
    us: float
    ratio: float
    result: str

    @property
    def good(self) -> bool:
        """The same bits, within the bound of the time."""
        return self.result == "same bits" and abs(self.ratio - 1) <= MOST_APART

    def __str__(self) -> str:
        nine = " ".join(str(self.numbers[name]) for name in ATTRIBUTES)
        return (f"| {self.problem.title} | {self.said} | `{nine}` | {'–' if self.rank is None else self.rank} "
                f"| {self.us:.2f} | {self.ratio:.4f} | {self.result} |")  # fmt: skip


HEADER: Final = (
    f"| problem | exported as | {', '.join(ATTRIBUTES)} | rank | heuristic's, µs | rebuilt / heuristic's | C |\n"
    "| --- | --- | --- | ---: | ---: | ---: | --- |"
)


def main() -> int:
    """Prints a line per problem and a summary."""
    options = options_of(__doc__, 120.0)
    options.add_argument("--problems", type=Path, default=SUITE, help="a list of problems")
    given = options.parse_args()
    until = time.monotonic() + given.seconds
    gpu_of_torch()
    torch.zeros((), device="cuda")
    library, missing = opened(0)
    if library is None:
        raise SystemExit(missing)
    machine, device = Cuda(), identity_here(torch.cuda.current_device())
    items = ((problem, problem) for _, _, problem in named_problems(given.problems))
    with torch.no_grad():
        rows, skipped = rows_of(HEADER, items, lambda problem, _: row_of_best(library, problem, machine, device), until)
    text = summary(rows, skipped, library.version, device)
    print(text)
    publish("algorithm_round_trip", given.out, text, "\n".join([HEADER, *map(str, rows)]), read=[given.problems])
    return int(not rows or not all(row.good for row in rows))


def row_of_best(library: Handle, problem: Gemm, machine: Machine, device: str) -> Row:
    """The row of the fastest of the library's candidates.

    Raises:
        LookupError: the library has no candidate that can be rebuilt.
    """
    if why := unsupported(problem):
        raise LookupError(why)
    config, us = fastest(library, problem, machine)
    said, numbers = exported(problem, config, us, device, library.version)
    return row_of(library, problem, said, numbers, machine)


def fastest(library: Handle, problem: Gemm, machine: Machine) -> tuple[Config, float]:
    """The fastest of the heuristic's candidates that are right, as a best is, by a short look at each, and its
    microseconds.
    """
    expected, matmul = Expected(problem, torch.device(machine.device)), Matmul(library, problem)
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=machine.device)
    c, times = poisoned(expected), dict[Config, float]()
    try:
        for config in matmul.listed:
            if config["algorithm"] == BY_RANK:
                continue
            try:
                launch = launching(matmul, expected, matmul.algorithm(config), c, workspace, machine)
                launch()
                machine.wait()
                # Some sum slices of K in 16 bits.
                if not expected.difference(c):
                    times[config] = machine.us(launch, LOOKS)
            except CudaError:
                continue  # the library refuses some of its own
        machine.wait()
    finally:
        matmul.free()
    if not times:
        raise LookupError("the heuristic lists no algorithm that is right and can be rebuilt")
    return min(times.items(), key=lambda each: each[1])


def exported(problem: Gemm, config: Config, us: float, device: str, version: str) -> tuple[str, dict[str, int]]:
    """What the row of an algorithm is, and the nine numbers read back from it."""
    entry = {
        "problem": {"key": problem.key}, "median_us": us, "provenance": {"cublaslt": version},
        "config": {"family": config.family, "knobs": config.knobs, "key": config.key},
    }  # fmt: skip
    table = Guarded({"device": device}, [entry], [], {}, 0.0)
    files = tunableop.files(table, ExportOptions("table.csv", torch="2.14.1"))
    lines = next(iter(files.values())).decode().splitlines()
    for line in lines:
        if not line.startswith("Validator,"):
            return "TunableOp", numbers_of(line.split(",")[2])
    return "config", {name: config_named(config.key).number(name) for name in ATTRIBUTES}


def numbers_of(solution: str) -> dict[str, int]:
    """The nine numbers of TunableOp's name of an algorithm.

    Raises:
        ValueError: torch would not read it.
    """
    match = _SOLUTION.fullmatch(solution)
    if match is None:
        raise ValueError(f"{solution!r} is not a name of an algorithm")
    return {name: int(text) for name, text in match.groupdict().items()}


def row_of(library: Handle, problem: Gemm, said: str, numbers: Mapping[str, int], machine: Machine) -> Row:
    """Compares the rebuilt algorithm with the heuristic's object."""
    expected, matmul = Expected(problem, torch.device(machine.device)), Matmul(library, problem)
    try:
        rebuilt = matmul.algorithm(CUBLASLT.config({**numbers, "workspace_bytes": 0}))
        rank, own = of_heuristic(library, matmul, numbers)
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=machine.device)
        outputs = [poisoned(expected) for _ in range(3)]
        launches = [launching(matmul, expected, each, c, workspace, machine)
                    for each, c in zip((rebuilt, own or rebuilt, own or rebuilt), outputs, strict=True)]  # fmt: skip
        for launch in launches:
            launch()
        machine.wait()
        wrong = expected.difference(outputs[0])
        first, second, third = (c.view(torch.uint8) for c in outputs)
        result = compared(wrong, torch.equal(first, second), torch.equal(second, third))
        # Both write one C when they are timed: where it lies counts too.
        heuristic = launching(matmul, expected, own or rebuilt, outputs[0], workspace, machine)
        us, ratio = paired(machine, repeated(launches[0]), repeated(heuristic), MOST_APART, PAIRS_SECONDS)
        machine.wait()
    finally:
        matmul.free()
    return Row(problem, said, numbers, rank, us, ratio, result)


def compared(wrong: str, same: bool, repeats: bool) -> str:
    """What the results say.

    Args:
        same: whether both algorithms wrote the same bits.
        repeats: whether two runs of the heuristic's object did.
    """
    if wrong:
        return f"wrong: {wrong}"
    if same:
        return "same bits"
    return "other bits" if repeats else "right; the library's own runs differ in bits too"


def of_heuristic(library: Handle, matmul: Matmul, numbers: Mapping[str, int]) -> tuple[int | None, Algorithm | None]:
    """The heuristic's own object with these attributes, and its rank; None if it lists none."""
    for rank in range(MAX_RANKS):
        try:
            found = matmul.algorithm(CUBLASLT.config({"rank": rank}))
        except CudaError:
            break
        if attributes(library.lt, found.result) == dict(numbers):
            return rank, found
    return None, None


def launching(
    matmul: Matmul, expected: Expected, algorithm: Algorithm, c: torch.Tensor, workspace: torch.Tensor,
    machine: Machine,
) -> Callable[[], None]:  # fmt: skip
    """Enqueues the product on torch's current stream."""
    copy = copy_of(expected, c)
    alpha, beta = matmul.scalar(expected.alpha), matmul.scalar(expected.beta if copy.source else 0.0)

    def launch() -> None:
        if copy.bias:
            matmul.set_bias(copy.bias)
        if copy.scale_a:
            matmul.set_scales(copy.scale_a, copy.scale_b)
        scalars = ctypes.addressof(alpha), ctypes.addressof(beta)
        matmul.launch(machine.stream(), copy, algorithm, workspace.data_ptr(), *scalars)

    return launch


def repeated(launch: Callable[[], None]) -> Callable[[int], Run]:
    """A function that launches a number of times, by that number."""

    def of(count: int) -> Run:
        def run() -> None:
            for _ in range(count):
                launch()

        return run

    return of


def summary(rows: Sequence[Row], skipped: Sequence[str], version: str, device: str) -> str:
    """What holds for all problems."""
    if not rows:
        return "no algorithm was rebuilt" + "".join(f"\n- {line}" for line in skipped)
    ratios = sorted(row.ratio for row in rows)
    same = sum(row.result == "same bits" for row in rows)
    close = sum(abs(row.ratio - 1) <= MOST_APART for row in rows)
    unlisted = sum(row.rank is None for row in rows)
    rows_of_torch = sum(row.said == "TunableOp" for row in rows)
    lines = [
        f"{device}, cuBLASLt {version}: {len(rows)} algorithms, {rows_of_torch} of them from rows of TunableOp; {same} "
        f"write the same bits as the heuristic's own object, {close} are within {MOST_APART:.0%} of its time "
        f"({ratios[0]:.4f} to {ratios[-1]:.4f}, median {statistics.median(ratios):.4f}); {unlisted} are not in the "
        f"heuristic's list and were compared with themselves."
    ]
    return "\n".join([*lines, *(f"- {line}" for line in skipped)])


if __name__ == "__main__":
    as_command(main)
