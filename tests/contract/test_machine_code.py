"""An earlier text of a family's kernels that is called alike compiles to today's cubins: pinned here, by their digests.

`python -m tests.contract.test_machine_code COMMIT` pins those of a commit's text; `benchmarks.machine_code` compares
what was measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.command import as_command
from benchmarks.machine_code import constants_of, source_at
from space.config import Config
from space.family import FAMILIES, config_named, family_named
from space.kind import problem_from_key
from space.kinds.gemm import Gemm
from space.problem import Problem
from tests.integration.workers.launches import CASES
from workers.build import Build, compile_source, nvrtc_version
from workers.kernels.source import KernelSource, source_of_family

PINS: Final = Path(__file__).resolve().parents[1] / "data" / "machine_code.json"
ARCH: Final = "sm_90a"
#: Ways to store and to add up that `CASES` lack.
MORE: Final[list[tuple[Gemm, str, dict[str, object]]]] = [
    (Gemm.of(8192, 8192, 8192), "sm90_wgmma",
     {"tile_m": 256, "tile_n": 208, "producer_registers": 24, "stages": 3, "epilogue": "tma_half"}),
    (Gemm.of(8192, 4096, 28672, layout="nn"), "sm90_wgmma",
     {"tile_m": 256, "tile_n": 176, "swap_ab": 1, "stages": 3, "epilogue": "tma_half"}),
    (Gemm.of(8192, 4096, 28672, layout="nn"), "sm90_wgmma",
     {"tile_m": 256, "tile_n": 208, "swap_ab": 1, "producer_registers": 24, "stages": 3, "epilogue": "tma_half"}),
    (Gemm.of(4096, 4096, 4096, epilogue="alpha+beta"), "sm90_wgmma", {"tile_n": 192, "epilogue": "tma_half"}),
    (Gemm.of(4096, 4096, 4096), "sm90_wgmma", {"schedule": "pingpong", "epilogue": "direct"}),
]  # fmt: skip


def pinned() -> dict[str, Any]:
    return json.loads(PINS.read_text())  # type: ignore[no-any-return]


def cubin_of(source: KernelSource, problem: Problem, config: Config) -> str:
    """The cubin's digest."""
    built = compile_source(source.render(constants_of(problem, config, ARCH)), ARCH, None)
    assert isinstance(built, Build), built
    return hashlib.sha256(built.cubin).hexdigest()


@cache
def cubin_of_today(name: str, problem: str, config: str) -> str:
    """Each earlier text asks for the same ones."""
    return cubin_of(source_of_family(family_named(name)), problem_from_key(problem), config_named(config))


def test_every_text_that_is_called_alike_is_pinned() -> None:
    said = {(name, one) for name, family in FAMILIES.items() if family.own for one in source_of_family(family).alike}
    assert {(name, one) for name, texts in pinned()["texts"].items() for one in texts} == said


@pytest.mark.parametrize(
    ("name", "digest"), [(name, digest) for name, texts in pinned()["texts"].items() for digest in texts]
)
def test_it_compiles_to_the_cubins_of_today(name: str, digest: str) -> None:
    # Of another NVRTC both have other cubins: pin them anew from the commit with the earlier text.
    assert nvrtc_version() == pinned()["nvrtc"]
    for problem, config, cubin in pinned()["texts"][name][digest]:
        assert cubin_of_today(name, problem, config) == cubin, (
            f"{config} of {problem} is another program than with {digest[:12]}: take that out of `alike`"
        )


def cases_of(name: str) -> Iterator[tuple[Problem, Config]]:
    for problem, family, knobs in (*CASES, *MORE):
        if family == name:
            yield problem, family_named(family).config(knobs)  # type: ignore[arg-type]


def pin(commit: str, name: str) -> None:
    """Adds a commit's text to the pins."""
    kept = pinned() if PINS.exists() else {"texts": {}}
    texts = defaultdict[str, list[tuple[str, str, str]]](list)
    with tempfile.TemporaryDirectory() as folder:
        earlier = source_at(commit, name, Path(folder))
        for problem, config in cases_of(name):
            of_entry = texts[earlier.digest_for(constants_of(problem, config, ARCH))]
            of_entry.append((problem.key, config.key, cubin_of(earlier, problem, config)))
    kept["texts"][name] = {**kept["texts"].get(name, {}), **texts}
    PINS.write_text(json.dumps({**kept, "nvrtc": nvrtc_version()}, indent=1) + "\n")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Pins the cubins of a commit's text.")
    options.add_argument("commit")
    options.add_argument("family", nargs="?", default="sm90_wgmma")
    given = options.parse_args()
    as_command(lambda: pin(given.commit, given.family))
