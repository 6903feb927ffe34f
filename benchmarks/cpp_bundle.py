"""The C++ launcher on a GPU: every kernel and algorithm of a bundle is right, and as fast as when Python launches it.

python -m benchmarks.cpp_bundle --out benchmarks/results/cpp_bundle_h100.md

The kernels of a table, by default those that the recordings found best, or those that backups of stores name
(`--stores benchmarks/stores/h100_suite/*.jsonl.gz`), are compiled and exported as a bundle.
The library's algorithms are rebuilt by the cuBLASLt that this process has loaded, whichever measured.
gemmtune.hpp is built by g++ against the driver API, as a shared library for the comparison and as the example program.
Both launchers write C on the same random operands; every element is compared with an f64 product. Their times are those
of CUDA graphs that replay in turn.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.command import as_command, gpu_of_torch, needing_torch

with needing_torch():
    import torch

from benchmarks import cpp_built
from benchmarks.launchers import copy_of, options_of, poisoned, rows_of
from benchmarks.model.machines import Cuda, Machine, host_us, paired
from benchmarks.published import ROOT, publish
from benchmarks.restored import restored
from gemmtune.exact import Exact, exact
from gemmtune.torch.expected import Expected
from space.config import Config
from space.devices import profile_named
from space.family import config_named, family_named, is_own
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from tuner.evidence.records import Best
from tuner.files import export_folder
from tuner.settings import settings
from tuner.tables.exporters import exporter_named
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions
from tuner.tables.programs import plans_of
from tuner.tables.tables import chosen_bests, read_document, table_of
from workers.build import Build, compile_source
from workers.builder import source_of
from workers.cuda.calls import Call, LibraryCall
from workers.cuda.copies import Copy
from workers.cuda.device import identity_here
from workers.cuda.driver import Borrowed
from workers.cuda.families.cublaslt import opened
from workers.cuda.library_plans import rebuilds

#: The bests that the recordings found, which ship with the repository.
TABLE: Final = ROOT / "recorded" / "h200" / "bests.json"
#: How far the times of one kernel may lie apart.
MOST_APART: Final = 0.01
#: How long the graphs of one problem take turns.
PAIRS_SECONDS: Final = 0.12
_ERROR: Final = 1024


class Operands(ctypes.Structure):
    """Mirrors `gemmtune::Operands`."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("a", "b", "c", "source", "bias")), ("alpha", ctypes.c_float),
        ("beta", ctypes.c_float), ("scale_a", ctypes.c_uint64), ("scale_b", ctypes.c_uint64),
    )  # fmt: skip


class Failed(Exception):
    """gemmtune.hpp returned an error."""


class Library:
    """gemmtune.hpp with an open bundle."""

    def __init__(self, path: Path, bundle: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for name in ("bundle_open", "kernel_open"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._text = ctypes.create_string_buffer(_ERROR)
        self._bundle = self._opened("bundle_open", str(bundle).encode())

    def kernel(self, problem: Gemm) -> int:
        """A problem's kernel, to be closed."""
        return self._opened("kernel_open", ctypes.c_void_p(self._bundle), problem.key.encode())

    def launch(self, kernel: int, stream: int, operands: Operands, count: int = 1) -> float:
        """Enqueues the product; host microseconds of one call."""
        taken = ctypes.c_double()
        if self._library.kernel_launch(
            ctypes.c_void_p(kernel), ctypes.c_void_p(stream), ctypes.byref(operands), count, ctypes.byref(taken),
            self._text, ctypes.c_size_t(_ERROR),
        ):  # fmt: skip
            raise Failed(self._text.value.decode())
        return taken.value

    def close(self, kernel: int) -> None:
        """Unloads a kernel."""
        self._library.kernel_close(ctypes.c_void_p(kernel))

    def _opened(self, function: str, *words: Any) -> int:  # noqa: ANN401
        found = getattr(self._library, function)(*words, self._text, ctypes.c_size_t(_ERROR))
        if not found:
            raise Failed(self._text.value.decode())
        return int(found)


@dataclass(frozen=True, slots=True)
class Row:
    """One problem.

    Attributes:
        wrong: what is wrong with C++'s result; empty if nothing is.
        alike: whether both launchers wrote the same bits.
        ratio: C++'s time by Python's.
        host_us: of a call, by C++ and by Python.
    """

    problem: Gemm
    config: str
    us: float
    ratio: float
    host_us: tuple[float, float]
    wrong: str
    alike: bool

    @property
    def good(self) -> bool:
        """Right, and within the bound of Python's time."""
        return not self.wrong and abs(self.ratio - 1) <= MOST_APART

    def __str__(self) -> str:
        cpp, python = self.host_us
        result = self.wrong or ("right, same bits" if self.alike else "right")
        return (f"| {self.problem.title} | {self.us:.2f} | {self.ratio:.4f} | {cpp:.2f} | {python:.2f} | {result} "
                f"| `{self.config}` |")  # fmt: skip


HEADER: Final = (
    "| problem | µs | C++ / Python | host of C++, µs | host of Python, µs | C | config |\n"
    "| --- | ---: | ---: | ---: | ---: | --- | --- |"
)


def main() -> int:
    """Prints a line per problem and a summary."""
    options = options_of(__doc__, 150.0)
    tables = options.add_mutually_exclusive_group()
    tables.add_argument("--table", type=Path, default=TABLE, help="a table of this GPU model; the recordings' bests")
    tables.add_argument("--stores", type=Path, nargs="+", metavar="BACKUP", help="backups of stores instead")
    given = options.parse_args()
    gpu_of_torch()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        # Handles of the library and bundles open in the current context, which torch makes with its first tensor.
        torch.zeros(1, device="cuda")
        document = stored(given.stores, Path(folder)) if given.stores else read_document(given.table)
        bundle = exported(document, Path(folder) / "bundle")
        library, example = cpp_built.built(Path(folder))
        print(f"[{time.monotonic() - begun:.1f} s] exported and built", flush=True)
        source = exact(bundle)
        rows, skipped = measured(source, Library(library, bundle), Cuda(), begun + given.seconds)
        ours = [row.problem for row in rows if is_own(config_named(row.config))]
        plain = [problem for problem in ours if problem.epilogue == "none"]
        examples = [ran(example, bundle, problem) for problem in plain[:3]]
    text = summary(rows, skipped, examples)
    print(text)
    publish("cpp_bundle", given.out, text, "\n".join([HEADER, *map(str, rows)]), read=given.stores or [given.table])
    return int(not rows or not all(row.good for row in rows))


def stored(backups: Sequence[Path], folder: Path) -> dict[str, Any]:
    """The table of this GPU model's bests in backups of stores that share no problem."""
    device, bests = identity_here(), list[Best]()
    for backup in backups:
        with restored(backup, folder) as store:
            bests += chosen_bests(store, device)
    return table_of(bests, device)


def exported(document: Mapping[str, Any], folder: Path) -> Path:
    """A bundle of a table's kernels of ours, compiled here from today's text, and of the library's algorithms."""
    arch = profile_named(str(document["device"])).arch.name
    own = [
        (problem_from_key(each["problem"]["key"]), config_named(each["config"]["key"]))
        for each in document["entries"] if family_named(each["config"]["family"]).own
    ]  # fmt: skip
    with ThreadPoolExecutor() as pool:
        sources = [source_of(problem, config, arch) for problem, config in own]
        made = pool.map(lambda source: compile_source(source, arch, settings().cache_dir), sources)
    programs: dict[str, Build] = {}
    for (problem, config), built in zip(own, made, strict=True):
        if isinstance(built, Build):
            programs[problem.key] = built
        else:
            print(f"{problem.title}: {config.key} can't be built: {built.reason}", flush=True)
    entries = [
        {**each, "build_digest": programs[key].digest,
         "provenance": each["provenance"] | {"nvrtc": programs[key].nvrtc}}
        for each in document["entries"] if (key := each["problem"]["key"]) in programs
    ] + of_library(document)  # fmt: skip
    options = ExportOptions(
        "bundle", program=lambda each: programs[each["problem"]["key"]].cubin, plan=plans_of(str(document["device"]))
    )
    export_folder(folder, exporter_named("bundle").files(Guarded(document, entries, [], {}, 0.0), options))
    return folder


def of_library(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A table's entries of the library that can be rebuilt, as if the library that is loaded here had measured them."""
    library, missing = opened()
    if library is None:
        print(f"the library's algorithms are left out: {missing}", flush=True)
        return []
    here = {"cublaslt": library.version}
    configs = [(each, config_named(each["config"]["key"])) for each in document["entries"]]
    return [{**each, "provenance": each["provenance"] | here}
            for each, config in configs if not is_own(config) and rebuilds(config)]  # fmt: skip


def measured(source: Exact, library: Library, machine: Machine, until: float) -> tuple[list[Row], list[str]]:
    """A row of each problem, and why others have none."""
    items = [(best.problem, best) for best in source.bests.values() if isinstance(best.problem, Gemm)]
    return rows_of(HEADER, items, lambda problem, _: row_of(source, problem, library, machine), until)


def row_of(source: Exact, problem: Gemm, library: Library, machine: Machine) -> Row:
    """Compares both launchers on one problem."""
    expected = Expected(problem, torch.device(machine.device))
    outputs = [poisoned(expected) for _ in range(2)]
    addresses = [copy_of(expected, c) for c in outputs]
    kernel = library.kernel(problem)
    try:
        python = Python(source, problem)
        cpp = partial(library.launch, kernel)
        launchers: list[Callable[[int], object]] = [
            lambda stream: cpp(stream, Operands(*addresses[0])), lambda stream: python(stream, addresses[1]),
        ]  # fmt: skip
        for launch in launchers:
            launch(machine.stream())
        machine.wait()
        alike = torch.equal(*(c.view(torch.uint8) for c in outputs))
        wrong = expected.difference(outputs[0])
        if python_wrong := expected.difference(outputs[1]):
            wrong += f" Python's is wrong too: {python_wrong}"
        # Both write one C when they are timed: where it lies counts too.
        first = repeated(launchers[0], machine)
        second = repeated(lambda stream: python(stream, addresses[0]), machine)
        us, ratio = paired(machine, first, second, MOST_APART, PAIRS_SECONDS)
        host = (
            statistics.median(cpp(machine.stream(), Operands(*addresses[0]), 100) for _ in range(5)),
            host_us(machine, lambda: launchers[1](machine.stream()), 5, 100),
        )
    finally:
        machine.wait()
        library.close(kernel)
    return Row(problem, source.bests[problem.key].config.key, us, ratio, host, wrong, alike)


class Python:
    """The Python launcher of one problem, on any stream."""

    def __init__(self, source: Exact, problem: Gemm) -> None:
        assert source.bundle is not None
        config, program = source.bests[problem.key].config, source.bundle.program(problem)
        self._nowhere = torch.empty(1024, dtype=torch.uint8, device="cuda")
        self._call: Call | LibraryCall = self._of_library(problem, config) if not is_own(config) else Call(
            problem, config, program, profile_named(source.device), self._nowhere.data_ptr()
        )  # fmt: skip
        self._on: dict[int, Any] = {}
        self._held: list[torch.Tensor] = []

    @staticmethod
    def _of_library(problem: Gemm, config: Config) -> LibraryCall:
        library, missing = opened()
        if library is None:
            raise Failed(missing)
        return LibraryCall(problem, config, library)

    def __call__(self, stream: int, copy: Copy) -> None:
        """Enqueues the product."""
        if stream not in self._on:
            self._on[stream] = self._call.on(Borrowed(stream))
            memory = {name: torch.zeros(each.size_bytes, dtype=torch.uint8, device="cuda")
                      for name, each in self._call.scratch.items()}  # fmt: skip
            torch.cuda.synchronize()
            self._held += memory.values()
            self._on[stream].bring({name: each.data_ptr() for name, each in memory.items()})
        *operands, scale_a, scale_b = copy
        if scale_a:
            self._on[stream].scale(scale_a, scale_b)
        self._on[stream](*operands)


def repeated(launch: Callable[[int], object], machine: Machine) -> Callable[[int], Callable[[], None]]:
    """A function that launches a number of times on the current stream, by that number."""

    def of(count: int) -> Callable[[], None]:
        def run() -> None:
            stream = machine.stream()
            for _ in range(count):
                launch(stream)

        return run

    return of


def ran(example: Path, bundle: Path, problem: Gemm) -> str:
    """What the example program says of a problem."""
    sizes = {one.name: one.elements * DTYPE_BYTES[one.dtype] for one in problem.operands()}
    words = [str(example), str(bundle), problem.key, *(str(sizes[name]) for name in "abc")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout + done.stderr).strip()


def summary(rows: Sequence[Row], skipped: Sequence[str], examples: Sequence[str]) -> str:
    """What holds for all problems."""
    if not rows:
        return "no kernel is in the bundle" + "".join(f"\n- {line}" for line in skipped)
    ratios = sorted(row.ratio for row in rows)
    right, close = (sum(test(row) for row in rows) for test in (lambda row: not row.wrong, lambda row: row.good))
    host = [statistics.median(row.host_us[place] for row in rows) for place in (0, 1)]
    lines = [
        f"{len(rows)} problems of the bundle; {right} right, {close} of them within "
        f"{MOST_APART:.0%} of Python's time. C++ / Python: {ratios[0]:.4f} to {ratios[-1]:.4f}, median "
        f"{statistics.median(ratios):.4f}. Host of a call, medians: C++ {host[0]:.2f} µs, Python {host[1]:.2f} µs."
    ]
    return "\n".join([*lines, *(f"- {line}" for line in (*skipped, *examples))])


if __name__ == "__main__":
    as_command(main)
