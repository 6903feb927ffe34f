"""cuBLASLt's best algorithms, rebuilt from what is exported, beside the heuristic's own objects.

python -m benchmarks.algorithm_round_trip --db suite.db --out benchmarks/results/algorithm_round_trip_h200.md

For every best of a store, the fastest of the library's candidates leaves as a row of TunableOp (as a config's key where
TunableOp has no such operation). Its nine attributes are read back, and the algorithm is rebuilt with the calls that
torch makes: init, set, check. Both write C on the same random operands; their bits are compared, and the times of CUDA
graphs that replay in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.cpp_bundle import copy_of, poisoned
from benchmarks.model.machines import Cuda, Machine, Run, paired
from benchmarks.published import add_out, publish
from gemmtune.torch.expected import Expected
from space.families.common import WORKSPACE_BYTES
from space.families.cublaslt import BY_RANK, CUBLASLT, MAX_RANKS
from space.kinds.gemm import Gemm
from space.registry import config_named, problem_from_key
from tuner.evidence.store import Store
from tuner.settings import database_url
from tuner.tables.exporters import tunableop
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.wanted import Wanted
from tuner.tables.library import library_table
from workers.cuda.driver import CudaError
from workers.cuda.families.algorithms import ATTRIBUTES, Algorithm, attributes
from workers.cuda.families.cublaslt import Handle, Matmul, opened, unsupported

#: How far the times of one algorithm may lie apart.
MOST_APART: Final = 0.02
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
        rank: of the algorithm in the heuristic's list; None if today's list lacks it.
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
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--db", required=True, help="store with the bests")
    options.add_argument("--device", default=torch.cuda.get_device_name(), help="GPU model, as in the store")
    options.add_argument("--seconds", type=float, default=120.0, help="begin no problem after this time")
    add_out(options)
    given = options.parse_args()
    until = time.monotonic() + given.seconds
    with Store.open(database_url(given.db), create=False) as store:
        document = library_table(store, given.device)
    torch.zeros((), device="cuda")
    library, missing = opened(0)
    if library is None:
        raise SystemExit(missing)
    machine, rows, skipped = Cuda(), list[Row](), list[str]()
    print(HEADER, flush=True)
    with torch.no_grad():
        for problem, said, numbers in exported(document):
            if time.monotonic() > until:
                skipped.append(f"{problem.title}: no time was left")
                continue
            try:
                rows.append(row_of(library, problem, said, numbers, machine))
                print(rows[-1], flush=True)
            except Exception as error:  # one product that fails is a line, not the end
                skipped.append(f"{problem.title}: {type(error).__name__}: {error}")
                print(skipped[-1], flush=True)
    text = summary(rows, skipped, library.version, document)
    print(text)
    publish("algorithm_round_trip", given.out, text, "\n".join([HEADER, *map(str, rows)]), read=[Path(given.db)])
    return int(not rows or not all(row.good for row in rows))


def exported(document: Mapping[str, Any]) -> list[tuple[Gemm, str, dict[str, int]]]:
    """Every problem of a library table, what its row is, and the nine numbers read back from it."""
    table = Guarded(document, document["entries"], [], {}, 0.0)
    files = tunableop.files(table, Wanted("table.csv", torch="2.14.1"))
    lines = [line.split(",") for line in next(iter(files.values())).decode().splitlines()]
    solutions = {(line[0], line[1]): line[2] for line in lines if line[0] != "Validator"}
    found = []
    for entry in document["entries"]:
        problem = problem_from_key(entry["problem"]["key"])
        config = config_named(entry["config"]["key"])
        if not isinstance(problem, Gemm) or unsupported(problem) or config["algorithm"] == BY_RANK:
            continue
        operation = tunableop.operation_of(problem)
        solution = solutions.get(operation) if operation else None
        if solution is not None:
            found.append((problem, "TunableOp", numbers_of(solution)))
        else:
            found.append((problem, "config", {name: config.number(name) for name in ATTRIBUTES}))
    return found


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
        us, ratio = paired(machine, repeated(launches[0]), repeated(launches[1]), MOST_APART, PAIRS_SECONDS)
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


def summary(rows: Sequence[Row], skipped: Sequence[str], version: str, document: Mapping[str, Any]) -> str:
    """What holds for all problems."""
    if not rows:
        return "no algorithm was rebuilt" + "".join(f"\n- {line}" for line in skipped)
    measured = sorted({entry["provenance"]["cublaslt"] for entry in document["entries"]})
    ratios = sorted(row.ratio for row in rows)
    same = sum(row.result == "same bits" for row in rows)
    close = sum(abs(row.ratio - 1) <= MOST_APART for row in rows)
    unlisted = sum(row.rank is None for row in rows)
    rows_of_torch = sum(row.said == "TunableOp" for row in rows)
    lines = [
        f"{document['device']}, cuBLASLt {version} (measured with {', '.join(measured)}): {len(rows)} "
        f"algorithms, {rows_of_torch} of them from rows of TunableOp; {same} write the same bits as the heuristic's "
        f"own object, {close} are within {MOST_APART:.0%} of its time ({ratios[0]:.4f} to {ratios[-1]:.4f}, median "
        f"{statistics.median(ratios):.4f}); {unlisted} are not in today's list and were compared with themselves."
    ]
    return "\n".join([*lines, *(f"- {line}" for line in skipped)])


if __name__ == "__main__":
    sys.exit(main())
