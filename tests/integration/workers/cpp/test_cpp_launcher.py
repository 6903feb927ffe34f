"""gemmtune.hpp on a driver that prints its calls: every argument is byte by byte what the Python launcher passes."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from space.config import Config
from space.family import family_named
from space.kinds.gemm import Gemm
from space.problem import DTYPE_BYTES
from tests.integration.workers.cpp.cases import CASES, INCLUDES, ROOT, needs_compiler
from tests.integration.workers.launches import H200
from tests.pages import blocks
from workers.cuda import copies, families
from workers.cuda.families import gemv, mma_sync, packing, prepared, shared, sm90_wgmma
from workers.cuda.plans import plan_of

pytestmark = needs_compiler
SCALES = (0x2_5000, 0x2_6000)
AT = (0x2_0000_0000, 0x2_1000_0000, 0x2_2000_0000, 0x2_3000_0000, 0x2_4000_0000, 0.5, 1.5)


class Launched:
    """A launch that notes everything that it is given."""

    noted: list[str] = []  # noqa: RUF012

    def __init__(
        self, function: str, threads: int, smem_bytes: int = 0, cluster: int = 1, *, pdl: bool = False,
        together: bool = False,
    ) -> None:  # fmt: skip
        self._function, self._cluster = function, cluster
        self._about = threads, smem_bytes, cluster, int(pdl), int(together)
        self._blocks = cluster

    def fill(self, most: int, sm_count: int) -> int:
        # The stub's device holds two blocks on each multiprocessor, but one of stream-K, which takes all its registers.
        blocks = sm_count if self._about[-1] else 2 * sm_count
        clusters = min(most, blocks // self._cluster)
        self.set_grid(clusters)
        return clusters

    def set_grid(self, clusters: int) -> None:
        self._blocks = clusters * self._cluster

    def __call__(self, stream: object, arguments: Any) -> None:  # noqa: ANN401
        text = b"".join(bytes(value) for value in arguments.values).hex()
        words = " ".join(map(str, (self._function, self._blocks, *self._about)))
        self.noted.append(f"launch {words} {text}")
        self.sizes.extend(ctypes.sizeof(value) for value in arguments.values)

    sizes: list[int] = []  # noqa: RUF012


class Program:
    def __init__(self, cubin: bytes) -> None: ...

    def function(self, name: str) -> str:
        return name


class Placed(shared.Shared):  # type: ignore[misc]
    """Scratch memory at the addresses that the stub gives, in the order of names."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def scratch(self, name: str, size_bytes: int, *, zeroed: bool = False) -> int:
        return 0x3_0000 + 0x1000 * self._names.index(name)


def encode(box: Any, address: int) -> Any:  # noqa: ANN401
    types, swizzles = {1: 0, 2: 1, 4: 2}, {0: 0, 32: 1, 64: 2, 128: 3}
    promotions = {0: 0, 64: 1, 128: 2, 256: 3}
    words = struct.pack(
        "<11Q", address, box.columns, box.lines, box.batch, box.pitch_bytes, box.batch_pitch_bytes, box.box_columns,
        box.box_lines, types[box.element_bytes], swizzles[box.swizzle_bytes], promotions[box.l2_promotion],
    )  # fmt: skip
    return ctypes.create_string_buffer(words, 128)


def operands_of(problem: Gemm) -> tuple[Any, ...]:
    """`AT` without what the epilogue lacks."""
    a, b, c, source, bias, alpha, beta = AT
    has = problem.epilogue_parts
    return (a, b, c, source * ("beta" in has), bias * ("bias" in has), alpha if "alpha" in has else 1.0,
            beta * ("beta" in has))  # fmt: skip


def scales_of(problem: Gemm) -> tuple[int, ...]:
    return SCALES if problem.scales else ()


def launched(problem: Gemm, config: Config, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[int], list[str]]:
    """What the Python launcher launches, the sizes of its arguments, and its scratch memory."""
    monkeypatch.setattr(shared.Box, "encode", encode)
    for module in (gemv, mma_sync, sm90_wgmma, packing):
        monkeypatch.setattr(module, "Launch", Launched)
    monkeypatch.setattr(prepared, "Module", Program)
    monkeypatch.setattr(Launched, "noted", [])
    monkeypatch.setattr(Launched, "sizes", [])
    names = [line.split()[1] for line in plan_lines(problem, config) if line.startswith("scratch ")]
    make = partial(families.launcher_of(family_named(config.family)), problem, config, b"", H200)
    make(Placed(names)).launch(None, copies.Copy(*operands_of(problem), *scales_of(problem)))
    return list(Launched.noted), list(Launched.sizes), names


def plan_lines(problem: Gemm, config: Config) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        from workers.cuda import driver

        for module in (gemv, mma_sync, sm90_wgmma, packing):
            patch.setattr(module, "Launch", driver.Launch)
        return plan_of(problem, config, "0" * 64, H200).splitlines()


PACKAGE = ROOT / "gemmtune" / "cpp" / "cmake"
FINDS = """
cmake_minimum_required(VERSION 3.18)
project(use LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_SOURCE_DIR})
find_package(gemmtune REQUIRED)
find_package(gemmtune REQUIRED)
add_executable(use "${PROGRAM}")
target_link_libraries(use PRIVATE gemmtune::gemmtune)
add_executable(library "${STUB}/library.cpp" "${STUB}/cublaslt.cpp")
target_link_libraries(library PRIVATE gemmtune::cublaslt)
"""
#: In the place of CMake's own module, which looks for a toolkit.
TOOLKIT = """
if(NOT TARGET CUDA::cuda_driver)
  add_library(CUDA::cuda_driver INTERFACE IMPORTED)
  set_target_properties(CUDA::cuda_driver PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${STUB}")
  add_library(CUDA::cublasLt INTERFACE IMPORTED)
endif()
set(CUDAToolkit_FOUND TRUE)
"""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_cmake_finds_the_package_and_builds_a_program_with_it(bundle: Path, tmp_path: Path) -> None:
    stub = ROOT / "tests" / "cpp_stub"
    (tmp_path / "CMakeLists.txt").write_text(FINDS)
    (tmp_path / "FindCUDAToolkit.cmake").write_text(TOOLKIT)
    words = [f"-DPROGRAM={stub / 'driver.cpp'}", f"-DSTUB={stub}", f"-Dgemmtune_DIR={PACKAGE}"]
    subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", *words], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    for program, said in (("use", "no kernel for gemm:none"), ("library", "no algorithm for gemm:none")):
        words = [tmp_path / "build" / program, bundle, "gemm:none", *["0x20000"] * 5, "1", "0"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_a_program_that_can_do_without_the_package_is_configured_where_no_toolkit_is(tmp_path: Path) -> None:
    optional = FINDS.replace("find_package(gemmtune REQUIRED)", "find_package(gemmtune)").split("add_executable")[0]
    (tmp_path / "CMakeLists.txt").write_text(optional + 'message("found it: ${gemmtune_FOUND}")\n')
    missing = "set(CUDAToolkit_FOUND FALSE)\nif(CUDAToolkit_FIND_REQUIRED)\n  message(FATAL_ERROR none)\nendif()\n"
    (tmp_path / "FindCUDAToolkit.cmake").write_text(missing)
    words = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-Dgemmtune_DIR={PACKAGE}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "found it: 0" in done.stderr) == (0, True), done.stderr


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_a_toolkit_without_the_driver_s_library_is_named(tmp_path: Path) -> None:
    """CMake would tell of a target in the link interface of another, which the program never wrote."""
    (tmp_path / "CMakeLists.txt").write_text(FINDS.split("add_executable")[0])
    (tmp_path / "FindCUDAToolkit.cmake").write_text("set(CUDAToolkit_FOUND TRUE)\n")
    words = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-Dgemmtune_DIR={PACKAGE}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "toolkit is here without libcuda.so:" in " ".join(done.stderr.split())) == (1, True)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
@pytest.mark.parametrize(
    ("asked", "found"), [("0.1", 1), ("0.1.0 EXACT", 1), ("0.1.9", 0), ("0.2", 0), ("0.0.9", 0), ("1", 0)]
)
def test_a_program_may_ask_for_a_version(asked: str, found: int, tmp_path: Path) -> None:
    finds = FINDS.split("add_executable")[0].replace("gemmtune REQUIRED", f"gemmtune {asked}")
    (tmp_path / "CMakeLists.txt").write_text(finds + 'message("found it: ${gemmtune_FOUND}")\n')
    (tmp_path / "FindCUDAToolkit.cmake").write_text(TOOLKIT)
    words = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-Dgemmtune_DIR={PACKAGE}"]
    words.append(f"-DSTUB={ROOT / 'tests' / 'cpp_stub'}")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, f"found it: {found}" in done.stderr) == (0, True), done.stderr


def test_the_cmake_package_has_the_project_s_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = (PACKAGE / "gemmtune-config-version.cmake").read_text()
    assert f'set(PACKAGE_VERSION "{project["version"]}")' in said


@pytest.mark.parametrize("place", range(len(CASES)), ids=lambda place: f"{CASES[place][1]}-{CASES[place][0].shape}")
def test_cpp_launches_what_python_launches(
    place: int, bundle: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, family, knobs = CASES[place]
    expected, sizes, names = launched(problem, family_named(family).config(knobs), monkeypatch)
    key = problem.key + ("@" + ",".join(map(str, SCALES)) if problem.scales else "")
    *addresses, alpha, beta = operands_of(problem)
    done = run(bundle, key, *map(hex, addresses), alpha, beta, *sizes)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("launch ")] == expected
    counts = [sum(line.startswith(word) for line in lines) for word in ("load 0", "alloc ", "zero ")]
    assert counts == [1, len(names), names.count("semaphores")]
    _, name, _, _, smem_bytes, cluster, *_ = expected[-1].split()
    assert any(line.startswith("attribute ") and line.split()[-1] == smem_bytes for line in lines)
    # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, without which the driver launches no larger clusters.
    assert (f"attribute {name} 14 1" in lines) == (int(cluster) > 8)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{bundle}@NVIDIA L40S", CASES[0][0].key), "this is NVIDIA L40S"),
        (("{bundle}", "gemm:none"), "no kernel for gemm:none"),
        (("{bundle}/nowhere", CASES[0][0].key), "can't be read"),
        (("{bundle}", CASES[0][0].key, "0x20002"), "a is not aligned to the 16 bytes"),
        (("{bundle}", next(case[0].key for case in CASES if case[0].scales)), "scale_a is 0"),
        (("{bundle}", CASES[0][0].key, "0"), "a is 0"),
        (("{bundle}", CASES[0][0].key, "0x20000", "0x20000", "0"), "c is 0"),
        (("{bundle}", CASES[2][0].key, *["0x20000"] * 4, "0"), "bias is 0"),
        (("{bundle}", CASES[2][0].key, *["0x20000"] * 3, "0"), "source is 0"),
        (("{bundle}", CASES[0][0].key, "0x20000", "0x21000", "0x20000"), "c shares memory with a"),
        (("{bundle}", CASES[0][0].key, "0x900000000", "0x20000", "0x20000"), "c shares memory with b"),
    ],
)
def test_errors_are_values(words: tuple[str, ...], said: str, bundle: Path, run: Callable[..., Any]) -> None:
    given = [word.format(bundle=bundle) for word in words]
    done = run(*given, *["0x20000"] * (7 - len(given)), 1, 0, 128, 128, 128, 200)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("case", "given", "name"),
    [
        (0, {3: "0x23000"}, "source"), (0, {4: "0x24000"}, "bias"), (0, {5: "2"}, "alpha"), (0, {6: "1"}, "beta"),
        (11, {6: "1"}, "beta"), (7, {5: "0.5"}, "alpha"), (7, {3: "0x23000"}, "source"),
    ],
)  # fmt: skip
def test_what_the_kernel_would_leave_out_is_refused(
    case: int, given: dict[int, str], name: str, bundle: Path, run: Callable[..., Any]
) -> None:
    words = ["0x20000", "0x200000000", "0x400000000", "0", "0x24000" if case == 7 else "0", "1", "0"]
    for place, word in given.items():
        words[place] = word
    done = run(bundle, key := CASES[case][0].key, *words, 128, 128, 128, 200)
    assert (done.returncode, f"{name} is given, but {key} has none" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("case", [0, 2, 4, 5, 6, 10], ids=lambda case: CASES[case][0].key)
def test_c_may_touch_what_is_read_and_not_overlap_it(case: int, bundle: Path, run: Callable[..., Any]) -> None:
    problem = CASES[case][0]
    names = ("a", "b", "c", "source", "bias", "scale_a", "scale_b")
    sizes = {each.name: each.rows * each.columns * each.batch * DTYPE_BYTES[each.dtype] for each in problem.operands()}
    *places, alpha, beta = operands_of(problem)
    at = dict(zip(names, (*places, *(scales_of(problem) or (0, 0))), strict=True))
    step = 256
    for name in sizes.keys() - {"c"}:
        below, above = (-(-sizes[each] // step) * step for each in (name, "c"))
        for place, overlaps in ((-below, False), (step - below, True), (above - step, True), (above, False)):
            moved = at | {name: at["c"] + place}
            *given, first, second = (hex(moved[each]) for each in names)
            key = f"{problem.key}@{first},{second}" if problem.scales else problem.key
            done = run(bundle, key, *given, alpha, beta, *[0] * 6)
            assert (f"c shares memory with {name}:" in done.stderr) == overlaps, (name, place, done.stderr)
            assert overlaps == (done.returncode != 0), done.stderr


def test_scales_start_at_a_whole_number(bundle: Path, run: Callable[..., Any]) -> None:
    problem = CASES[5][0]
    *given, alpha, beta = operands_of(problem)
    for scales, name in (((0x2_5002, 0x2_6000), "scale_a"), ((0x2_5000, 0x2_6001), "scale_b")):
        key = f"{problem.key}@{scales[0]},{scales[1]}"
        done = run(bundle, key, *given, alpha, beta, *[0] * 6)
        assert f"{name} is not aligned to the 4 bytes" in done.stderr


def test_c_may_be_the_source(bundle: Path, run: Callable[..., Any]) -> None:
    problem = CASES[2][0]
    a, b, c, _, *others = operands_of(problem)
    assert run(bundle, problem.key, a, b, c, c, *others, *[0] * 6).returncode == 0


def test_scales_of_a_product_without_any_are_refused(bundle: Path, run: Callable[..., Any]) -> None:
    key = CASES[0][0].key
    for scales, name in (("1,0", "scale_a"), ("0,1", "scale_b")):
        done = run(bundle, f"{key}@{scales}", "0x20000", "0x200000000", "0x400000000", 0, 0, 1, 0, 128, 128, 128, 200)
        assert f"{name} is given, but {key} has none" in done.stderr


def test_misuse_is_an_error_and_no_crash(bundle: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(bundle, broken)
    # The last file that is read.
    max(broken.glob("plans/*.plan")).write_text("gemmtune.plan/1\n")
    program = tmp_path / "misuse"
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", *INCLUDES,
                    str(ROOT / "tests" / "cpp_stub" / "misuse.cpp"), "-o", str(program)], check=True)  # fmt: skip
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([program, bundle, broken, CASES[0][0].key], capture_output=True, text=True, timeout=60,
                          check=False, env=environment)  # fmt: skip
    said = dict(line.split(": ", 1) for line in done.stderr.splitlines())
    assert done.returncode == 0, done.stderr
    assert said.pop("unloaded").startswith("no kernel is loaded")
    assert said.pop("launch").startswith("no kernel is loaded")
    assert said.pop("failed launch").startswith("no kernel is loaded")
    assert said.pop("failed") == "cuLibraryLoadData: CUDA_ERROR_STUB"
    assert said.pop("switched launch").startswith("no kernel is loaded")
    assert said.pop("switched").endswith("this is NVIDIA L40S with 132")
    assert "was changed" in said.pop("broken")
    assert "no kernel for gemm:none" in said.pop("none")
    assert all("cudaSetDevice, first" in said.pop(each) for each in ("before cuInit", "no context"))
    assert said.pop("no device") == "cuCtxGetDevice: CUDA_ERROR_STUB"
    assert said == {
        "scalars": "whole", "names": "no plan", "hex": "no plan", "offset": "no plan", "short": "no plan",
        "alone": "no plan", "pass": "no plan", "align": "no plan", "map": "no plan",
        "bundle": "", "kernel": "", "again": "", "plan": "gone",
    }  # fmt: skip


def test_the_program_of_the_documentation_compiles(tmp_path: Path) -> None:
    shown = "\n".join(block.text for block in blocks(ROOT / "docs" / "use.md") if block.language == "cpp")
    source = tmp_path / "shown.cpp"
    source.write_text(f"""#include <gemmtune.hpp>
#include <gemmtune/cublaslt.hpp>
int fail(const std::string& message);
int program(CUstream stream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c) {{
{shown}
return 0;
}}
""")
    strict = ("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wpedantic", "-Werror")
    command = ["g++", "-std=c++17", *strict, "-fsyntax-only", *INCLUDES, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_each_header_stands_alone_and_in_several_units_of_one_program(tmp_path: Path) -> None:
    include = ROOT / "gemmtune" / "cpp" / "include"
    headers = sorted(each.relative_to(include) for each in include.rglob("*.hpp"))
    for number, header in enumerate(headers):
        (tmp_path / f"{number}.cpp").write_text(f"#include <{header}>\n#include <{header}>\n")
    units = sorted(map(str, tmp_path.glob("*.cpp")))
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *INCLUDES, *units,
               str(ROOT / "tests" / "cpp_stub" / "driver.cpp"), "-o", str(tmp_path / "several")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
