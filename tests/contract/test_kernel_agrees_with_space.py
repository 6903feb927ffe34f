"""What the kernel's Config struct holds is what `space` derives, by name; the compiler checks the values."""

from __future__ import annotations

import re

from space.family import family_named
from space.kinds.gemm import Gemm
from tests.on_cpu import config_struct
from workers.kernels.flatten import FOLDER
from workers.kernels.source import source_of_family, sources_digest
from workers.kernels.verify import SOURCE as VERIFY

FAMILY = family_named("sm90_wgmma")
SOURCE = source_of_family(FAMILY)
PROBLEM = Gemm.parse("4096x4096x4096")


def test_every_constant_that_the_kernel_reads_is_given() -> None:
    texts = [SOURCE.render(FAMILY.compile_constants(problem, FAMILY.config({})))
             for problem in (PROBLEM, Gemm.parse("333x333x333"))]  # fmt: skip
    assert read_by("".join(texts)) == given_to(config_struct(texts[0]))


def test_scales_reach_the_kernels_that_read_them_and_no_others() -> None:
    plain, scaled = (
        SOURCE.render(FAMILY.compile_constants(Gemm.of(16, 32, 64, "fp8_e4m3", epilogue=epilogue), FAMILY.config({})))
        for epilogue in ("bias", "scaled_rowwise+bias")
    )
    assert given_to(config_struct(scaled)) - given_to(config_struct(plain)) == {"kScaledRowwise"}
    assert read_by(scaled) == given_to(config_struct(scaled))
    assert "scale_a" not in plain


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
    texts = {SOURCE.render(FAMILY.compile_constants(Gemm.parse(shape), config)) for shape in
             ("8x8x8", "4096x4096x4096", "333x4104x2056")}  # fmt: skip
    assert len(texts) == 1


def test_each_file_is_flattened_once_and_rendering_repeats_exactly() -> None:
    source = render_of(FAMILY.config({}))
    assert source == render_of(FAMILY.config({}))
    assert "#include" not in source
    assert len(re.findall(r"struct SharedMemory\b", source)) == 1


def test_the_source_digest_knows_no_config() -> None:
    assert len(SOURCE.digest) == 64
    assert SOURCE.digest != VERIFY.digest


def given_to(struct: str) -> set[str]:
    return set(re.findall(r"static constexpr \w+ (k\w+) =", struct))


def read_by(source: str) -> set[str]:
    return set(re.findall(r"\bConfig::(k\w+)", source))


def render_of(config) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return SOURCE.render(FAMILY.compile_constants(PROBLEM, config))


GEMV = family_named("gemv")


def test_gemv_is_given_every_constant_that_it_reads() -> None:
    source = gemv_source(Gemm.parse("1x64x64"))
    assert read_by(source) == given_to(config_struct(source))
    for asserted in ("sizeof(R) == Config::kReductionBytes", "R::kTileN == Config::kTileN"):
        assert asserted in (FOLDER / "gemv" / "kernel.cuh").read_text()


def test_no_extent_reaches_the_source_of_gemv_but_by_its_knob() -> None:
    texts = {gemv_source(Gemm.parse(shape)) for shape in ("3x8x8", "1x4096x4096", "2x333x1024")}
    assert len(texts) == 1
    assert "#include" not in texts.pop()


def test_a_digest_is_of_the_families_that_compete() -> None:
    assert sources_digest([FAMILY]) == SOURCE.digest
    both = sources_digest([FAMILY, GEMV])
    assert both == sources_digest([GEMV, FAMILY])
    assert both not in (source_of_family(GEMV).digest, SOURCE.digest)


def gemv_source(problem: Gemm) -> str:
    return source_of_family(GEMV).render(GEMV.compile_constants(problem, GEMV.config({})))


MMA = family_named("mma_sync")


def test_mma_sync_is_given_every_constant_that_it_reads() -> None:
    config = MMA.config({})
    texts = [mma_source(problem) for problem in (PROBLEM, Gemm.of(333, 333, 333, "int8", "nn"))]
    texts.append(mma_source(PROBLEM, copies="tma"))
    assert read_by("".join(texts)) == given_to(config_struct(texts[0])) == given_to(config_struct(texts[1]))
    for asserted in ("sizeof(Smem) == Config::kSharedMemoryBytes", "Config::kThreads == kThreads + Config::kProducer"):
        assert any(asserted in path.read_text() for path in (FOLDER / "mma_sync").glob("*.cuh"))
    launch = {"raster": "along_n", "raster_group": 1, "persistent": 1}
    assert mma_source(PROBLEM, **launch) == mma_source(PROBLEM) == mma_source(Gemm.parse("64x4096x16"))
    assert config.knobs.keys() > launch.keys()


def mma_source(problem: Gemm, **knobs: object) -> str:
    return source_of_family(MMA).render(MMA.compile_constants(problem, MMA.config(knobs)))
