"""`gemmtune layout …` as a user types it: tables, one JSON document, SVG files, and one sentence on bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from gemmtune.command import app
from space.errors import LayoutError
from tuner.errors import ExportError

COMMANDS = [
    "swizzle --mode 128B --rows 8 --cols 64 --dtype bf16",
    "fragment wgmma.m64n64k16 --operand D --dtype f32",
    "fragment mma.m16n8k16 --operand A",
    "fragment ldmatrix.x4.trans --thread 3",
    "fragment tcgen05.ld.32x32b.x8",
    "scales --vector 2x --sf-id 2",
    "descriptor 0x4000004000010000",
    "descriptor --start 0x400 --leading 16 --stride 1024 --mode 64B",
    "descriptor --tile 128x64 --at 0,16 --start 0x400 --for tcgen05",
    "instruction --kind mxf4nvf4 --m 256",
    "instruction 0x08400490 --kind f16",
    "boxes --rows 256 --cols 64 --dtype bf16 --swizzle 128B",
    "boxes --rows 64 --cols 256 --major mn",
    "banks ldmatrix.x4 --mode none --box-cols 64",
    "banks --addresses 0,128,0x100 --width 4",
]


def run(words: str, *more: str) -> str:
    result = CliRunner().invoke(app, ["layout", *words.split(), *more], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def document(words: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(run(words, "--json"))
    return said


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_speaks_in_tables_json_and_pictures(words: str, tmp_path: Path) -> None:
    assert len(run(words).splitlines()) >= 3
    path = tmp_path / "deep" / "picture.svg"
    assert json.loads(run(words, "--json", "--svg", str(path)))
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_swizzle_table_holds_first_banks() -> None:
    said = document("swizzle --mode 128B --rows 8 --cols 64")
    assert said["first_banks"][1] == [4, 0, 12, 8, 20, 16, 28, 24]
    assert (said["pattern_bytes"], said["pitch_bytes"]) == (1024, 128)


def test_a_fragment_names_every_element_once() -> None:
    said = document("fragment wgmma.m64n64k16 --operand D --dtype f32")
    assert len({(held["row"], held["column"]) for held in said["elements"]}) == len(said["elements"]) == 4096
    assert said["elements"][2] == {"thread": 0, "register": 2, "bit": 0, "matrix": 0, "row": 8, "column": 0}


def test_a_descriptor_comes_back_from_its_word() -> None:
    made = document("descriptor --tile 128x64 --at 64,32 --start 0x800")
    again = document(f"descriptor {made['word']}")
    own = {"start_address", "leading_byte_offset", "stride_byte_offset", "swizzle", "base_offset"}
    assert set(again["fields"]) == own  # nothing of how the class describes them
    assert made == again
    assert made["fields"]["start_address"] == hex(0x800 + 64 * 128 + 64)


def test_boxes_tell_how_the_operand_is_walked() -> None:
    assert document("boxes --rows 64 --cols 256 --major mn")["operand"] == {
        "major": "mn", "leading_bytes": 8192, "stride_bytes": 1024}  # fmt: skip
    assert "boxes of 8 columns" in document("boxes --mode none --box-cols 64")["operand"]["why_not"]
    assert "core matrices" in document("boxes --rows 60")["operand"]["why_not"]


@pytest.mark.parametrize(("mode", "degree"), [("--mode none --box-cols 64", 8), ("--mode 128B", 1)])
def test_banks_give_the_degree(mode: str, degree: int) -> None:
    assert document(f"banks ldmatrix.x4 {mode}")["degree"] == degree


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("swizzle --mode 96B", "'96B' is unknown"),
        ("swizzle --cols 40", "use 64 columns"),
        ("swizzle --dtype bf17", "'bf17'"),
        ("fragment wgmma.m64n60k16", "nearest is 56"),
        ("fragment ldmatrix.x4 --thread 32", "threads 0 to 31"),
        ("scales --vector 8X", "scale_vec::8X"),
        ("descriptor 0x", "'0x' is not a whole number"),
        ("descriptor 0x6000000000000000", "reserved bit 61"),
        ("descriptor --for hopper", "'hopper' is unknown"),
        ("descriptor --start 8", "start_address = 8 B"),
        ("descriptor --tile 128", "two whole numbers"),
        ("descriptor --tile 128x64 --major z", "'z' is unknown"),
        ("descriptor --tile 128x64 --start 0x80", "inside a swizzle pattern"),
        ("instruction --kind f17", "'f17' is unknown"),
        ("instruction --m 100", "m = 100"),
        ("boxes --rows 0", "rows = 0"),
        ("banks ldmatrix.x8", "'ldmatrix.x8' is unknown"),
        ("banks --addresses 1,2 --width 4", "address 1"),
    ],
)
def test_bad_input_is_one_sentence(words: str, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        run(words)


def test_a_picture_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExportError, match="can't be written"):
        run("swizzle --svg", str(tmp_path / "file" / "picture.svg"))
