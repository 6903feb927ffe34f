"""PyTorch TunableOp's results: the library's best algorithms, which any torch program from 2.14 on runs by itself.

A row names an algorithm by its nine attributes. torch compares the validators as text and refuses the whole file where
one differs; an algorithm that it can't set up falls back to its default (torch's ATen/cuda/tunable headers, 2.15).
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from space.devices import find_profile, profile_named
from space.errors import ConfigError
from space.families.cublaslt import BY_RANK
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.tables.exporters.guard import Guarded
from tuner.tables.exporters.options import ExportOptions
from tuner.tables.importers.tunableop import LAYOUTS, leading_dimensions

NAME: Final = "tunableop"
MEDIA_TYPE: Final = "text/csv; charset=utf-8"
WRITES: Final = "the library's best algorithms for PyTorch TunableOp, one file for each GPU of a machine"
OF_LIBRARY: Final = True
FOLDER: Final = False

_LETTERS: Final = {ours: theirs for theirs, ours in LAYOUTS.items()}
_DTYPES: Final = {"bf16": ("BFloat16", "bf16"), "fp16": ("Half", "fp16"), "tf32": ("tf32", "f32")}
#: Attributes by TunableOp's words, in its order, as `space.families.cublaslt` names them.
_ATTRIBUTES: Final = (
    ("id", "algorithm"), ("tile", "tile"), ("stages", "stages"), ("splitk", "split_k"), ("red", "reduction"),
    ("swizzle", "swizzle"), ("custom", "custom"), ("inner", "inner_shape"), ("cluster", "cluster"),
)  # fmt: skip
#: Most workspace that torch gives cuBLASLt, in KiB: on these generations, and on others. It has as much for cuBLAS, and
#: gives 1 MiB unless CUBLASLT_WORKSPACE_SIZE asks for more (torch's ATen/cuda/CublasHandlePool.cpp, 2.15).
_WORKSPACE_KIB, _OTHERS_KIB = dict.fromkeys((9, 10, 12), 32 << 10), 8320
_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.[0-9]{1,4}")
#: The first PyTorch whose TunableOp rebuilds cuBLASLt's algorithms; older ones ignore the rows.
_FIRST: Final = (2, 14)
#: What an identity adds to the driver's name.
_SUFFIX: Final = re.compile(r" \(.*\)$")
MOST_GPUS: Final = 1024


def writable(table: Guarded, options: ExportOptions) -> Guarded:
    """The entries that have a row."""
    return with_rows(table)


def files(table: Guarded, options: ExportOptions) -> Mapping[str, bytes]:
    """One file for each device ordinal, all alike.

    Raises:
        ConfigError: torch's version is missing, malformed or too old.
    """
    _check_torch(options.torch)
    if not 1 <= options.gpus <= MOST_GPUS:
        raise ConfigError(f"gpus = {options.gpus} is not a number of GPUs: give 1 to {MOST_GPUS:,}")
    if "%d" not in options.name and "." in options.name and not PurePath(options.name).suffix:
        raise ConfigError(
            f"{options.name} has no ending: PyTorch puts a GPU's number before the last dot, wherever that is in the "
            f"path; name the file as in table.csv, or with %d for the number"
        )
    profile = profile_named(table.device)
    major, minor = profile.compute_capability
    lines = [
        f"Validator,PT_VERSION,{options.torch}",
        f"Validator,CUBLASLT_VERSION,{version_of(table)}",
        f"Validator,CUDA_DEVICE,{major}.{minor}:{_SUFFIX.sub('', profile.name)}",
        *rows_of(table),
    ]
    content = ("\n".join(lines) + "\n").encode()
    return {with_ordinal(options.name, ordinal): content for ordinal in range(options.gpus)}


def _check_torch(said: str) -> None:
    if not (version := _VERSION.fullmatch(said)):
        raise ConfigError(
            f"torch = {said!r} is not a version: PyTorch refuses files of any other one; give torch=2.14.1 "
            f"(--torch 2.14.1), as python -c 'import torch; print(torch.__version__)' prints it, without what follows +"
        )
    if tuple(map(int, version.groups())) < _FIRST:
        raise ConfigError(
            f"torch = {said} is too old: TunableOp runs cuBLASLt's algorithms from PyTorch "
            f"{'.'.join(map(str, _FIRST))} on, and older ones ignore every row; export json for gemmtune.torch"
        )


def next_step(table: Guarded, options: ExportOptions) -> str:
    """The environment variables."""
    if not (rows := rows_of(table)):
        return "no row: torch's default is kept everywhere, and the file is of no use"
    return (
        f"{len(rows)} rows for torch {options.torch} with cuBLASLt {version_of(table)}; run any torch program with\n"
        f"CUBLASLT_WORKSPACE_SIZE={_workspace_kib(table)} PYTORCH_TUNABLEOP_ENABLED=1 PYTORCH_TUNABLEOP_TUNING=0 "
        f"PYTORCH_TUNABLEOP_FILENAME={shlex.quote(options.name)}"
    )


def rows_of(table: Guarded) -> list[str]:
    """The rows of the entries that have one."""
    version = version_of(table)
    return [",".join(row) for entry in table.entries if not isinstance(row := _row_with(entry, version, table), str)]


def with_rows(table: Guarded) -> Guarded:
    """The entries that have a row; the others are left to the library, with the reason."""
    version = version_of(table)

    def why_none(entry: Mapping[str, Any]) -> str:
        said = _row_with(entry, version, table)
        return said if isinstance(said, str) else ""

    return table.without(why_none)


def version_of(table: Guarded) -> str:
    """The version of cuBLASLt with which most of the rows were measured: a file has those of one."""
    with_one = (entry for entry in table.entries if not isinstance(_row(entry, table), str))
    versions = Counter(entry["provenance"]["cublaslt"] for entry in with_one)
    return str(versions.most_common(1)[0][0]) if versions else ""


def with_ordinal(name: str, ordinal: int) -> str:
    """The file that torch reads on a device: the ordinal stands where `%d` does, or before the last dot."""
    if "%d" in name:
        return name.replace("%d", str(ordinal), 1)
    path = PurePath(name)
    return str(path.with_name(f"{path.stem}{ordinal}{path.suffix}"))


def _workspace_kib(table: Guarded) -> int:
    """Most workspace that torch gives cuBLASLt on a table's device."""
    profile = find_profile(table.device)
    return _WORKSPACE_KIB.get(profile.compute_capability[0], _OTHERS_KIB) if profile else _OTHERS_KIB


def _row_with(entry: Mapping[str, Any], version: str, table: Guarded) -> tuple[str, str, str, str] | str:
    """`_row` in a file of one version of cuBLASLt."""
    measured, said = entry["provenance"]["cublaslt"], _row(entry, table)
    if isinstance(said, str) or measured == version:
        return said
    return f"measured with cuBLASLt {measured}, not {version}"


def _row(entry: Mapping[str, Any], table: Guarded) -> tuple[str, str, str, str] | str:
    """Operation, parameters, solution and milliseconds; or why torch has no such row."""
    knobs, most_kib = entry["config"]["knobs"], _workspace_kib(table)
    if entry["config"]["family"] != "cublaslt" or knobs["algorithm"] == BY_RANK:
        return "no algorithm of the library whose attributes are known: tune again"
    if not entry["provenance"]["cublaslt"]:
        return "measured with an unknown version of cuBLASLt: tune again"
    if knobs["workspace_bytes"] > most_kib << 10:
        return f"needs more workspace than the {most_kib:,} KiB that torch has on this card"
    problem = problem_from_key(entry["problem"]["key"])
    said = operation_of(problem)
    if said is None:
        return "no operation of TunableOp: it knows bf16, fp16 and tf32, alone, in batches, or with a bias"
    if isinstance(problem, Gemm) and (why := _unasked(problem)):
        return why
    solution = "Gemm_Cublaslt_" + "_".join(f"{word}_{knobs[name]}" for word, name in _ATTRIBUTES)
    return *said, solution, f"{entry['median_us'] / 1e3:.6g}"


def operation_of(problem: Problem) -> tuple[str, str] | None:
    """TunableOp's words for a product: operation and parameters; None if it has none."""
    if not isinstance(problem, Gemm) or problem.dtype_a not in _DTYPES or problem.epilogue not in ("none", "bias"):
        return None
    word, output = _DTYPES[problem.dtype_a]
    # torch has the library sum in f32.
    if (problem.dtype_b, problem.dtype_c, problem.dtype_acc) != (problem.dtype_a, output, "f32"):
        return None
    letters, batched = _LETTERS[problem.layout], problem.batch > 1
    if batched and problem.epilogue == "bias":
        return None
    operator = "GemmStridedBatched" if batched else "GemmAndBias" if problem.epilogue == "bias" else "Gemm"
    ldb, lda, ldc = leading_dimensions(problem)
    batch = f"_B_{problem.batch}" if batched else ""
    parameters = f"{letters.lower()}_{problem.n}_{problem.m}_{problem.k}{batch}_ld_{ldb}_{lda}_{ldc}"
    return f"{operator}TunableOp_{word}_{letters}", parameters


def _unasked(problem: Gemm) -> str:
    """Why torch does not ask for a product as it was measured; empty if it does. Only an extent of 1 can be why.

    A vector is contiguous however it is transposed, and torch takes what is contiguous for rows, unless it is part of a
    batch (`cublasCommonArgs`, `isInputCompliesAddmmCudaLt` and `baddbmm_out_cuda_impl` in torch's ATen/native/cuda).
    """
    m, n, k = problem.m, problem.n, problem.k
    if problem.batch > 1:
        return "torch multiplies batches with N = 1 the other way round, as the transposed product" if n == 1 else ""
    if problem.epilogue == "bias" and 1 in (n, k):
        return "torch does not have cuBLASLt add a bias where N or K is 1"
    read = ("n" if 1 in (m, k) else problem.layout[0]) + ("n" if 1 in (k, n) else problem.layout[1])
    if read == problem.layout:
        return ""
    return (
        f"torch takes a vector for rows, so it asks for {read} where this is {problem.layout}, which cuBLASLt runs by "
        f"other kernels: tune the product in layout {read}"
    )
