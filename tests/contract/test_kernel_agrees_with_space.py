"""What the kernel's Config struct holds is what `space` derives, by name; the compiler checks the values."""

from __future__ import annotations

import re

from space.family import family_named
from space.problem import Problem
from workers.kernels.render import FOLDER, render, source_digest

FAMILY = family_named("sm90_wgmma")
PROBLEM = Problem.parse("4096x4096x4096")


def test_every_constant_that_the_kernel_reads_is_given() -> None:
    text = "".join(path.read_text() for path in (FOLDER / "sm90_wgmma").glob("*.cuh"))
    read = set(re.findall(r"Config::(k\w+)", text))
    given = set(re.findall(r"static constexpr \w+ (k\w+) =", config_struct()))
    assert read == given


def test_the_compiler_holds_shared_memory_and_threads_against_the_derivation() -> None:
    folder = FOLDER / "sm90_wgmma"
    assert "sizeof(Smem) == Config::kSharedMemoryBytes" in (folder / "kernel.cuh").read_text()
    assert "Config::kThreads ==" in (folder / "shape.cuh").read_text()


def test_launch_knobs_do_not_reach_the_source() -> None:
    one = FAMILY.config({"raster": "along_m", "raster_group": 1})
    other = FAMILY.config({"raster": "along_n", "raster_group": 16})
    assert render_of(one) == render_of(other)


def test_no_extent_reaches_the_source() -> None:
    config = FAMILY.config({})
    texts = {render("sm90_wgmma", FAMILY.compile_constants(Problem.parse(shape), config)) for shape in
             ("8x8x8", "4096x4096x4096", "333x4104x2056")}  # fmt: skip
    assert len(texts) == 1


def test_each_file_is_flattened_once_and_rendering_repeats_exactly() -> None:
    source = render_of(FAMILY.config({}))
    assert source == render_of(FAMILY.config({}))
    assert "#include" not in source
    assert len(re.findall(r"struct SharedMemory\b", source)) == 1


def test_the_source_digest_knows_no_config() -> None:
    assert len(source_digest("sm90_wgmma")) == 64
    assert source_digest("sm90_wgmma") != source_digest("verify")


def config_struct() -> str:
    source = render_of(FAMILY.config({}))
    return source[source.index("struct Config {") : source.index("};", source.index("struct Config {"))]


def render_of(config) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return render("sm90_wgmma", FAMILY.compile_constants(PROBLEM, config))
