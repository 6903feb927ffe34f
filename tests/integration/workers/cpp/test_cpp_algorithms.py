"""gemmtune/cublaslt.hpp on libraries that print their calls: it tells cuBLASLt what the Python launcher tells it."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from space.config import Config
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.fake_cublaslt import PLACES, Recorder, library_of, numbers_of
from tests.integration.workers.cpp.cases import CASES, INCLUDES, ROOT, digest_of, needs_compiler
from tests.unit.tuner.tables.test_exporters import CUBIN, DEVICE, entry, guarded, table, written
from tuner.files import export_folder
from tuner.tables.programs import plans_of
from workers.cuda.calls import LibraryCall

pytestmark = needs_compiler

#: As the heuristic lists them: one splits K, with a workspace, and one has none of the usual values.
PLAIN = {"algorithm": 66, "tile": 20, "stages": 35, "split_k": 1, "cluster": 3}
SPLIT = {"algorithm": 39, "tile": 15, "split_k": -1, "custom": 2**32 - 1, "cluster": 29, "workspace_bytes": 4096}
ALGORITHMS: list[tuple[Gemm, dict[str, int]]] = [
    (Gemm.of(16, 32, 64), PLAIN),
    (Gemm.of(16, 32, 64, layout="nn", batch=3), SPLIT),
    (Gemm.of(16, 32, 64, "fp16", "tn", epilogue="alpha+beta+bias+gelu"), SPLIT),
    (Gemm.of(16, 32, 64, "tf32", "tt", epilogue="bias+relu"), PLAIN),
    (Gemm.of(16, 32, 64, "fp8_e4m3", epilogue="scaled_rowwise+bias"), PLAIN),
    (Gemm.of(16, 32, 64, "fp8_e5m2_promoted", epilogue="scaled"), SPLIT),
    (Gemm.of(16, 32, 64, "fp8_e4m3,fp8_e4m3,fp8_e4m3,f32"), PLAIN),
    (Gemm.of(16, 32, 64, "int8"), PLAIN),
    (Gemm.of(16, 32, 64, "fp16_acc16", epilogue="alpha+beta"), PLAIN),
]
#: Those that the library refuses, one with less workspace than it needs, and a rank alone.
REFUSED: list[tuple[Gemm, dict[str, int], str]] = [
    (Gemm.of(1, 64, 64), {"algorithm": 7}, "cublasLtMatmulAlgoCheck: CUBLAS_STATUS_NOT_SUPPORTED"),
    (Gemm.of(2, 64, 64), {"algorithm": 5}, "cublasLtMatmulAlgoInit: CUBLAS_STATUS_INVALID_VALUE"),
    (Gemm.of(3, 64, 64), PLAIN | {"inner_shape": 2}, "INNER_SHAPE_ID: CUBLAS_STATUS_INVALID_VALUE"),
    (Gemm.of(4, 64, 64), SPLIT | {"workspace_bytes": 0}, "needs 4096 bytes of workspace here, and 0 where"),
    (Gemm.of(5, 64, 64), {"rank": 1}, "has no algorithm for gemm:bf16,bf16,bf16,f32:nt:5x64x64:b1:none"),
]
OLD, OURS = Gemm.of(6, 64, 64), CASES[0][0]
AT = {"a": 0x2_0000_0000, "b": 0x2_1000_0000, "c": 0x2_2000_0000, "source": 0x2_3000_0000, "bias": 0x2_4000_0000}
SCALES = (0x2_5000, 0x2_6000)
#: Numbers of cublasLt.h, as the stand-in for it has them.
OPERATION = {3: "TRANSA", 4: "TRANSB", 7: "EPILOGUE", 8: "BIAS_POINTER", 17: "A_SCALE_POINTER", 18: "B_SCALE_POINTER",
             25: "FAST_ACCUM", 26: "BIAS_DATA_TYPE", 31: "A_SCALE_MODE", 32: "B_SCALE_MODE"}  # fmt: skip
LATER = [str(number) for number in range(5, 13)]
MATRIX = {5: "BATCH_COUNT", 6: "STRIDED_BATCH_OFFSET"}
ATTRIBUTES = ("ID", "TILE_ID", "SPLITK_NUM", "REDUCTION_SCHEME", "CTA_SWIZZLING", "CUSTOM_OPTION", "STAGES_ID",
              "INNER_SHAPE_ID", "CLUSTER_SHAPE_ID")  # fmt: skip


def config_of(knobs: dict[str, int]) -> Config:
    return family_named("cublaslt").config(knobs)


def librarys(problem: Gemm, knobs: dict[str, int], version: str = "130101") -> dict[str, Any]:
    config = config_of(knobs)
    document = {"family": config.family, "knobs": config.knobs, "key": config.key}
    found = entry(problem, family="cublaslt", config=document)
    return found | {"provenance": found["provenance"] | {"cublaslt": version}}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    problem, family, knobs = CASES[0]
    config = family_named(family).config(knobs)
    document = {"family": config.family, "knobs": config.knobs, "key": config.key}
    entries = [librarys(*case) for case in ALGORITHMS] + [librarys(*case[:2]) for case in REFUSED]
    entries += [librarys(OLD, PLAIN, "130000"), entry(problem, config=document, build_digest=digest_of(0))]
    folder = tmp_path_factory.mktemp("algorithms") / "bundle"
    export_folder(folder, written("bundle", guarded(table(*entries)), program=lambda _: CUBIN, plan=plans_of(DEVICE)))
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    stub, program = ROOT / "tests" / "cpp_stub", tmp_path_factory.mktemp("stub") / "library"
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", *INCLUDES,
                    str(stub / "library.cpp"), str(stub / "cublaslt.cpp"), "-o", str(program)], check=True)  # fmt: skip

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)

    return run


def operands_of(problem: Gemm) -> dict[str, Any]:
    """Of a call: what the epilogue lacks is 0, and alpha 1."""
    has = problem.epilogue_parts
    scales = SCALES if problem.scales else (0, 0)
    return AT | {
        "source": AT["source"] * ("beta" in has), "bias": AT["bias"] * ("bias" in has),
        "alpha": 0.3 if "alpha" in has else 1.0, "beta": 1.7 if "beta" in has else 0.0, "scale_a": scales[0],
        "scale_b": scales[1],
    }  # fmt: skip


def launched(library: Callable[..., Any], folder: Path, problem: Gemm, **given: Any) -> Any:  # noqa: ANN401
    return library(folder, problem.key, *(operands_of(problem) | given).values())


def bits_of(value: float, scale: int) -> int:
    kind = {0: np.float32, 2: np.float16, 10: np.int32}[scale]
    return int.from_bytes(kind(value).tobytes(), "little")


@pytest.mark.parametrize("place", range(len(ALGORITHMS)), ids=lambda place: ALGORITHMS[place][0].title)
def test_cpp_tells_the_library_what_python_tells_it(place: int, bundle: Path, library: Callable[..., Any]) -> None:
    problem, knobs = ALGORITHMS[place]
    done = launched(library, bundle, problem)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    # What the second load and the launch say; the first one's is freed.
    lines = lines[max(number for number, line in enumerate(lines) if line[0] == "compute") :]
    lt = Recorder()
    call = LibraryCall(problem, config_of(knobs), library_of(lt))
    ready, operands = call.on(SimpleNamespace(handle=0)), operands_of(problem)  # type: ignore[arg-type]
    lt.layouts.clear()
    call.on(SimpleNamespace(handle=0))  # type: ignore[arg-type]
    ready.bring({"workspace": 0x3_1000})
    scales = operands.pop("scale_a"), operands.pop("scale_b")
    if problem.scales:
        ready.scale(*scales)
    ready(**operands)
    told: dict[str, int] = {}
    layouts = []
    for word, *fields in lines:
        numbers = [int(each) for each in fields] if word in ("compute", "layout", "operation", "matrix", "init") else []
        if word == "compute":
            told |= dict(zip(("compute", "scale"), numbers, strict=True))
        elif word == "operation":
            told[OPERATION[numbers[0]]] = numbers[2]
        elif word == "layout":
            layouts.append(tuple(numbers))
        elif word == "matrix":
            # Layouts of the second load are numbered from 5.
            told[f"{MATRIX[numbers[1]]} {numbers[0] - 4}"] = numbers[3]
        elif word == "init":
            assert tuple(numbers) in lt.initialized
    # The recorder numbers the layouts of all that were described before.
    expected = {name: value for name, value in lt.attributes.items() if name.split()[-1] not in LATER}
    assert (told, layouts) == (expected, lt.layouts)
    (matmul,) = (fields for word, *fields in lines if word == "matmul")
    (said,) = lt.calls
    assert [int(each, 16) for each in matmul[:4]] == [said[3], said[5], said[8], said[10]]
    workspace = 0 if matmul[4] == "(nil)" else int(matmul[4], 16)
    assert (bool(workspace), int(matmul[5])) == (said[14] > 0, said[14])
    scale = told["scale"]
    assert [int(each, 16) for each in matmul[6:8]] == [bits_of(operands[name], scale) for name in ("alpha", "beta")]
    words = [int(each) for each in matmul[8:]]
    assert dict(zip(ATTRIBUTES, words, strict=True)) == {
        name: value % (1 << (8 * PLACES[name][1])) for name, value in numbers_of(said[12]).items()
    }


def test_everything_that_is_made_is_freed(bundle: Path, library: Callable[..., Any]) -> None:
    for problem in (ALGORITHMS[1][0], *(case[0] for case in REFUSED[:4])):
        lines = launched(library, bundle, problem).stdout.splitlines()
        assert lines.count("made") == lines.count("freed") > 0


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_the_library_refuses_is_an_error(place: int, bundle: Path, library: Callable[..., Any]) -> None:
    problem, _, said = REFUSED[place]
    done = launched(library, bundle, problem)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr


def test_another_version_of_the_library_is_refused(bundle: Path, library: Callable[..., Any]) -> None:
    done = launched(library, bundle, OLD)
    assert done.returncode == 1
    assert f"{OLD.key} was measured with cuBLASLt 130000, this program runs 130101" in done.stderr
    assert "made" not in done.stdout


def test_a_kernel_and_an_algorithm_name_each_other(bundle: Path, library: Callable[..., Any]) -> None:
    said = launched(library, bundle, ALGORITHMS[0][0]).stderr
    assert "but the library's algorithm: load a gemmtune::Algorithm" in said
    done = launched(library, bundle, OURS)
    assert (done.returncode, f"{OURS.key} has a kernel of the bundle's own" in done.stderr) == (1, True)
    assert "has no algorithm for gemm:none" in library(bundle, "gemm:none", *[0] * 9).stderr


@pytest.mark.parametrize(("place", "given", "said"), [
    (0, {"a": 0}, "a is 0"), (0, {"a": AT["a"] + 4}, "a is not aligned to the 8 bytes"),
    (0, {"b": AT["b"] + 8}, "b is not aligned to the 16 bytes"), (0, {"c": AT["c"] + 1}, "c is not aligned to the 2"),
    (2, {"source": AT["source"] + 8}, "source is not aligned to the 16"), (2, {"bias": AT["bias"] + 1}, "bias is not"),
    (0, {"c": AT["b"]}, "c shares memory with b"), (0, {"alpha": 2}, "alpha is given"), (0, {"bias": 512}, "bias is"),
    (2, {"bias": 0}, "bias is 0"), (2, {"source": 0}, "source is 0"), (4, {"scale_b": 0}, "scale_b is 0"),
    (5, {"scale_a": SCALES[0] + 2}, "scale_a is not aligned to the 4"), (0, {"scale_a": 512}, "scale_a is given"),
    (4, {"scale_b": SCALES[1] + 4}, "scale_b is not aligned to the 16"),
])  # fmt: skip
def test_operands_are_refused_as_a_kernel_refuses_them(
    place: int, given: dict[str, Any], said: str, bundle: Path, library: Callable[..., Any]
) -> None:
    done = launched(library, bundle, ALGORITHMS[place][0], **given)
    assert (done.returncode, said in done.stderr, "matmul" in done.stdout) == (1, True, False), done.stderr


def test_f16_scalars_are_the_nearest(library: Callable[..., Any]) -> None:
    rng = np.random.default_rng(1)
    halves = rng.integers(0, 0x7C00, 300, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = halves + np.float32(0.5) * (np.nextafter(halves.astype(np.float16), np.float16(np.inf)) - halves)
    some = [0.0, -0.0, 1.0, 65504, 65519.9, 65520, -1e9, 1e-9, 2.0**-24, 2.0**-25, 2.0**-14, float("inf")]
    values = np.concatenate([halves, -between[np.isfinite(between)], np.array(some, np.float32)]).astype(np.float32)
    bits = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).view(np.uint16).tolist()
    assert [int(line) for line in library("half", *bits).stdout.split()] == expected


def changed(folder: Path, change: Callable[[str], str]) -> None:
    """Another text of every algorithm, with its digest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["algorithms"]:
        text = change((folder / name).read_text())
        (folder / name).write_text(text)
        manifest["algorithms"][name] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":"), sort_keys=True))


@pytest.mark.parametrize(("was", "is_", "said"), [
    ("/1\n", "/2\n", "is no gemmtune.algo"), ("end\n", "", "is no gemmtune.algo"),
    ("matrix output", "matrix other", "is no gemmtune.algo"), ("align a", "more a", "is no gemmtune.algo"),
    ("attribute ID 66", "attribute ID x", "is no gemmtune.algo"), ("compute", "align", "is no gemmtune.algo"),
    ("attribute TILE_ID", "attribute TIDE_ID", "attribute TIDE_ID is unknown"),
    ("operation TRANSA", "operation TRANSZ", "operation TRANSZ is unknown"),
])  # fmt: skip
def test_a_text_of_another_form_is_refused(
    was: str, is_: str, said: str, bundle: Path, library: Callable[..., Any], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    changed(folder, lambda text: text.replace(was, is_))
    done = launched(library, folder, ALGORITHMS[0][0])
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr


def test_a_changed_algorithm_or_another_name_refuses_the_bundle(
    bundle: Path, library: Callable[..., Any], tmp_path: Path
) -> None:
    folder, other, old = (Path(shutil.copytree(bundle, tmp_path / name)) for name in ("folder", "other", "old"))
    file = next(folder.glob("algorithms/*"))
    file.write_text(file.read_text() + "\n")
    assert f"{file} was changed" in launched(library, folder, ALGORITHMS[0][0]).stderr
    manifest = json.loads((other / "manifest.json").read_text())
    digest = next(iter(manifest["algorithms"].values()))
    for member, name in (("algorithms", "table.json"), ("files", file.relative_to(folder).as_posix())):
        listed = manifest | {member: manifest[member] | {name: digest}}
        (other / "manifest.json").write_text(json.dumps(listed, separators=(",", ":"), sort_keys=True))
        assert f"lists {name}, which no bundle has" in launched(library, other, ALGORITHMS[0][0]).stderr
    # Bundles from before there were algorithms have kernels alone.
    del manifest["algorithms"]
    (old / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":"), sort_keys=True))
    assert "has no algorithm for" in launched(library, old, ALGORITHMS[0][0]).stderr
