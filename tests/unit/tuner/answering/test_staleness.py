"""A best says when its kernel is no longer the one that was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from space.config import Config
from space.devices import DeviceProfile, find_profile
from space.family import families_for, family_named
from space.kinds.gemm import Gemm
from space.knobs import KnobValue
from space.plug import Family
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured
from tuner.answering.staleness import Built, _constants, outdated, proved_build, same_kernels, staleness, staleness_here
from tuner.evidence.records import Best, StoredMeasurement
from workers.build import digest_of
from workers.builder import source_of
from workers.kernels.source import digests_alike, source_of_family, sources_digest

ARCH = "sm_90a"
CONFIG = FAMILY.config({})
SCALED = Gemm.of(16, 4096, 4096, "fp8_e4m3", epilogue="scaled")
TODAY = sources_digest(families_for(ARCH, PROBLEM))
BUILD = digest_of(source_of(PROBLEM, CONFIG, ARCH), ARCH, PROVENANCE.nvrtc)


def best_of(
    kernels: str, build: str, config: Config = CONFIG, kind: str = "cuda", device: str = DEVICE,
    nvrtc: str = PROVENANCE.nvrtc,
) -> Best:  # fmt: skip
    measurement = replace(measured(config), build_digest=build)
    stored = StoredMeasurement(
        1, 1, device, kind, None, replace(PROVENANCE, kernel_source_digest=kernels, nvrtc=nvrtc),
        measurement,  # type: ignore[arg-type]
    )  # fmt: skip
    return Best(PROBLEM, device, kind, stored, None, None, None, 1, {})


@pytest.mark.parametrize(
    ("kernels", "build"),
    [(TODAY, ""), (TODAY, BUILD), ("another family's text changed", BUILD)],
)
def test_a_kernel_of_today_is_not_stale(kernels: str, build: str) -> None:
    assert staleness(best_of(kernels, build)) == ""


@pytest.mark.parametrize("kernels", [
    *source_of_family(FAMILY).alike, sources_digest(families_for(ARCH, SCALED), SCALED),
    *sorted(set(digests_alike(families_for(ARCH))) - {TODAY}),
])  # fmt: skip
def test_an_earlier_text_of_the_same_machine_code_is_not_stale(kernels: str) -> None:
    assert staleness(best_of(kernels, "a" * 64)) == ""


@pytest.mark.parametrize(("kernels", "nvrtc", "proved"), [
    (TODAY, PROVENANCE.nvrtc, "a" * 64), ("older", PROVENANCE.nvrtc, "a" * 64),
    (source_of_family(FAMILY).alike[0], PROVENANCE.nvrtc, BUILD),
    (source_of_family(FAMILY).alike[0], "12.9", digest_of(source_of(PROBLEM, CONFIG, ARCH), ARCH, "12.9")),
])  # fmt: skip
def test_an_earlier_text_of_the_same_machine_code_proves_todays_build(kernels: str, nvrtc: str, proved: str) -> None:
    assert proved_build(Built.of(best_of(kernels, "a" * 64, nvrtc=nvrtc))) == proved


def test_kernels_are_the_same_in_text_or_in_machine_code() -> None:
    (earlier, *_), alone = source_of_family(FAMILY).alike, sources_digest([FAMILY])
    assert same_kernels(DEVICE, alone, alone)
    assert same_kernels(DEVICE, earlier, alone)
    assert same_kernels("NVIDIA Unheard-of", earlier, earlier)
    others = (sources_digest([FAMILY, family_named("gemv")]), "a" * 64)
    assert not any(same_kernels(DEVICE, earlier, other) or same_kernels(DEVICE, other, earlier) for other in others)
    assert not same_kernels("NVIDIA Unheard-of", earlier, alone)


@pytest.mark.parametrize(("build", "then"), [("a" * 64, "a" * 12), ("", "unknown")])
def test_a_kernel_that_changed_is_stale(build: str, then: str) -> None:
    assert staleness(best_of("older", build)) == (f"its kernel has changed since: build {then} then, {BUILD[:12]} now")


def test_another_compiler_makes_another_build() -> None:
    assert staleness(best_of(TODAY, BUILD), nvrtc=PROVENANCE.nvrtc) == ""
    said = staleness(best_of(TODAY, BUILD), nvrtc="99.0")
    assert said.startswith(f"NVRTC {PROVENANCE.nvrtc} is 99.0 here: build {BUILD[:12]} then, ")
    assert staleness(best_of("older", "a" * 64), nvrtc="99.0").startswith("its kernel has changed since: build aaaa")
    # An earlier text of the same machine code changes nothing: the compiler does.
    of_earlier = best_of(source_of_family(FAMILY).alike[0], "a" * 64)
    assert staleness(of_earlier, nvrtc="99.0").startswith(f"NVRTC {PROVENANCE.nvrtc} is 99.0 here: build aaaa")


def test_a_kernel_is_looked_at_once_for_all_of_its_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, made = list[Gemm](), type(FAMILY).compile_constants

    def counted(family: Family, problem: Gemm, config: Config, device: DeviceProfile) -> dict[str, KnobValue]:
        asked.append(problem)
        return made(family, problem, config, device)

    monkeypatch.setattr(type(FAMILY), "compile_constants", counted)
    _constants.cache_clear()
    for m in (256, 512, 768):
        of_m = replace(best_of("older", "a" * 64), problem=PROBLEM.resized(m, 256, 256))
        assert staleness(of_m).startswith("its kernel has changed")
    assert len(asked) == 1
    assert staleness(replace(best_of("older", BUILD), problem=PROBLEM.resized(m, 250, 256)))
    assert len(asked) == 2


def test_what_another_nvrtc_built_has_staleness_here_unless_nothing_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    of_old = best_of(TODAY, digest_of(source_of(PROBLEM, CONFIG, ARCH), ARCH, "12.9"), nvrtc="12.9")
    assert staleness_here(best_of(TODAY, BUILD)) == ""
    assert staleness_here(of_old).startswith(f"NVRTC 12.9 is {PROVENANCE.nvrtc} here: build ")
    monkeypatch.setattr("tuner.answering.staleness.nvrtc_here", lambda: None)
    assert staleness_here(of_old) == ""


def test_replays_the_library_and_unknown_cards_are_compared_elsewhere() -> None:
    library = family_named("cublaslt").config({"rank": 0})
    assert find_profile("NVIDIA Unheard-of") is None
    for best in (
        best_of("older", "", kind="recorded"), best_of("older", "", config=library),
        best_of("older", "", device="NVIDIA Unheard-of"),
    ):  # fmt: skip
        assert staleness(best) == staleness(best, nvrtc="99.0") == ""


@pytest.mark.parametrize(
    ("kernels", "build", "changed"),
    [(TODAY, "", False), ("another program's", BUILD, False), ("older", "a" * 64, True), ("older", "", True)],
)
def test_a_replay_is_outdated_if_its_own_program_changed(kernels: str, build: str, *, changed: bool) -> None:
    said = outdated(best_of(kernels, build, kind="recorded"))
    assert said == ("our kernels have changed since they were recorded, with source older" if changed else "")
    # What a GPU measured here is compared by `staleness`.
    assert outdated(best_of("older", "")) == ""


def test_a_replay_is_compared_as_the_nvrtc_built_it_that_measured_it() -> None:
    old = digest_of(source_of(PROBLEM, CONFIG, ARCH), ARCH, "12.9")
    assert outdated(best_of("another program's text changed", old, kind="recorded", nvrtc="12.9")) == ""
