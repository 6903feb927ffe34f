"""`gemmtune instructions`: a line for each form, and every row of the tables as JSON."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gemmtune.command import app
from space.arch import ARCHS
from space.errors import ArchError

#: Rows that name an arch: wgmma, tcgen05 and mma.sync.
ROWS = {
    "sm_80": 20, "sm_86": 20, "sm_87": 20, "sm_89": 36, "sm_90a": 16 + 36, "sm_100a": 232 + 36,
    "sm_103a": 232 - 12 + 36, "sm_120a": 36 + 79, "sm_121a": 36 + 79,
}  # fmt: skip


def said(*words: str) -> str:
    result = CliRunner().invoke(app, ["instructions", *words], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("arch", ARCHS)
def test_json_has_every_row_with_its_source(arch: str) -> None:
    document = json.loads(said("--arch", arch, "--json"))
    assert document["arch"] == arch
    assert len(document["instructions"]) == ROWS[arch]
    assert all(row["source"].startswith("PTX ISA") and arch in row["archs"] for row in document["instructions"])


def test_limits_and_models_stand_above() -> None:
    limits, models = said("--arch", "sm_100a").splitlines()[:2]
    for word in ("232,448 B", "65,536 registers", "up to 8 blocks (16 where", "512 columns of tensor memory"):
        assert word in limits
    assert "NVIDIA B200 (148 SMs)" in models
    assert said("--arch", "sm_80").splitlines()[0].endswith("65,536 registers, there are no clusters")
    document = json.loads(said("--json"))
    assert document["limits"]["cluster_largest"] == 16
    assert {"NVIDIA H200": 132}.items() <= {model["name"]: model["sm_count"] for model in document["models"]}.items()


def test_types_that_mix_share_a_line() -> None:
    lines = said().splitlines()
    assert [line for line in lines if line.startswith("wgmma") and "s32" in line] == [
        line for line in lines if "int8 uint8" in line and "8 16 24 32-256 step 16" in line and ".satfinite" in line
    ]
    assert len([line for line in lines if line.startswith("wgmma")]) == 7


def test_an_arch_without_its_suffix_is_an_error_of_input() -> None:
    result = CliRunner().invoke(app, ["instructions", "--arch", "sm_90"])
    assert isinstance(result.exception, ArchError)
    assert "write sm_90a" in str(result.exception)
