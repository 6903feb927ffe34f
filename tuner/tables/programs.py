"""Programs of measured bests: from the build cache, or compiled again and found to be the same build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from space.config import Config
from space.devices import DeviceProfile, profile_named
from space.errors import SpaceError
from space.family import config_named, is_own
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.answering.staleness import Built, change, changed_since, proved_build
from tuner.tables.entries import best_of
from tuner.tables.exporters.options import Plan, Program
from workers.build import BuildFailure, compile_source, kept_cubin
from workers.builder import source_of
from workers.errors import CacheError


def programs_of(device: str, cache_dir: Path) -> Program:
    """Finds the programs of a table's entries.

    Args:
        device: GPU model.
        cache_dir: the build cache.
    """
    return partial(_program, profile_named(device), cache_dir)


def plans_of(device: str) -> Plan:
    """Makes the plans of a table's entries: of our kernels, and of the library's algorithms that can be rebuilt.

    Args:
        device: GPU model.
    """
    return partial(_plan, profile_named(device))


def stale(device: str, entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of a table's entries that would be answered as `stale`."""
    return [entry for entry in entries if changed_since(best_of(device, dict(entry)))]


def _plan(profile: DeviceProfile, entry: Mapping[str, Any]) -> str:
    from workers.cuda.library_plans import algorithm_of, rebuilds

    problem, config = _decoded(entry)
    assert isinstance(problem, Gemm), problem.key
    if is_own(config):
        from workers.cuda.plans import plan_of  # which imports the driver's bindings

        return plan_of(problem, config, str(entry["build_digest"]), profile)
    version = str(entry["provenance"]["cublaslt"])
    return algorithm_of(problem, config, version) if version and rebuilds(config) else ""


def _program(profile: DeviceProfile, cache_dir: Path, entry: Mapping[str, Any]) -> bytes | str:
    """The measured program of an entry, or why it can't be had."""
    arch, digest = profile.arch.name, str(entry["build_digest"])
    # Plans and launchers are today's: they give a program of another text arguments that it does not know.
    measured = _built(profile.name, entry)
    if change(measured):
        return "its program is of another kernel than today's: measure it again with `gemmtune retune --stale`"
    try:
        return kept_cubin(cache_dir, digest)
    except CacheError:
        pass  # NVRTC gives the same bytes for the same source
    try:
        problem, config = _decoded(entry)
        built = compile_source(source_of(problem, config, arch), arch, cache_dir)
    except SpaceError as error:
        return f"its kernel can't be built any more: {error}"
    if isinstance(built, BuildFailure):
        return f"its kernel can't be built any more: {built.reason}"
    if built.digest != proved_build(measured):
        return "its program is another one today: tune it again, or export on a machine with the NVRTC that built it"
    return built.cubin


def _built(device: str, entry: Mapping[str, Any]) -> Built:
    """An entry's facts about its kernel."""
    by = entry["provenance"]
    return Built(*_decoded(entry), device, entry["device_kind"], by["nvrtc"], by["kernel_source_digest"],
                 str(entry["build_digest"]))  # fmt: skip


def _decoded(entry: Mapping[str, Any]) -> tuple[Problem, Config]:
    """An entry's problem and config.

    Raises:
        SpaceError: this version does not know one of them.
    """
    return problem_from_key(entry["problem"]["key"]), config_named(entry["config"]["key"])
