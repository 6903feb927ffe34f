"""A bundle of every case, and a program that loads bundles on a driver that prints its calls."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from space.family import family_named
from tests.integration.workers.cpp.cases import CASES, INCLUDES, ROOT, digest_of
from tests.integration.workers.launches import H200
from tests.unit.tuner.tables.test_exporters import CUBIN, entry, guarded, table, written
from tuner.files import export_folder
from workers.cuda.plans import plan_of


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of every case."""
    plans = {}
    entries = []
    for place, (problem, family, knobs) in enumerate(CASES):
        config = family_named(family).config(knobs)
        document = {"family": config.family, "knobs": config.knobs, "key": config.key}
        entries.append(entry(problem, config=document, build_digest=digest_of(place)))
        plans[problem.key] = plan_of(problem, config, digest_of(place), H200)
    files = written("bundle", guarded(table(*entries)), program=lambda _: CUBIN,
                    plan=lambda each: plans[each["problem"]["key"]])  # fmt: skip
    folder = tmp_path_factory.mktemp("cpp") / "bundle"
    export_folder(folder, files)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    program = tmp_path_factory.mktemp("stub") / "stub"
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *INCLUDES,
                    str(ROOT / "tests" / "cpp_stub" / "driver.cpp"), "-o", str(program)], check=True)  # fmt: skip

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)

    return run
