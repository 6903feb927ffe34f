"""Pictures: well-formed SVG in which every element has its cell and its owner."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from space.layouts.banks import tile_access
from space.layouts.boxes import plan_boxes
from space.layouts.descriptor import WgmmaDescriptor
from space.layouts.draw.canvas import color_of
from space.layouts.draw.fragments import fragment_svg, scale_factors_svg
from space.layouts.draw.memory import access_svg, boxes_svg, swizzle_svg
from space.layouts.draw.words import word_svg
from space.layouts.fragments.named import fragment_named
from space.layouts.fragments.scale_factors import scale_factors
from space.layouts.operand import OperandTile
from space.layouts.swizzle import SWIZZLES

_SVG = "{http://www.w3.org/2000/svg}"


def labels(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [text.text or "" for text in root.iter(f"{_SVG}text")]


def test_a_fragment_has_a_cell_for_each_element() -> None:
    fragment = fragment_named("wgmma.m64n16k16", "D", "f32")
    owners = [label for label in labels(fragment_svg(fragment)) if re.fullmatch(r"T\d+ r\d+", label)]
    assert len(owners) == len(set(owners)) == 64 * 16
    assert "T127 r7" in owners


def test_packed_elements_tell_their_place_in_the_register() -> None:
    owners = [label for label in labels(fragment_svg(fragment_named("mma.m16n8k32", "A", "int8")))
              if label.startswith("T")]  # fmt: skip
    assert len(set(owners)) == 16 * 32
    assert {"T0 r0.0", "T0 r0.3", "T31 r3.3"} <= set(owners)


def test_four_matrices_stand_apart() -> None:
    found = labels(fragment_svg(fragment_named("ldmatrix.x4")))
    assert [label for label in found if label.startswith("matrix ")] == [f"matrix {number}" for number in range(4)]


def test_a_swizzle_shows_each_column_on_both_sides() -> None:
    found = labels(swizzle_svg(plan_boxes(8, 64, "bf16", SWIZZLES["128B"])))
    for row in range(8):
        for chunk in range(8):
            assert found.count(f"{row}.{chunk}") == 2


def test_boxes_are_numbered_with_size_and_address() -> None:
    found = labels(boxes_svg(plan_boxes(512, 128, "bf16", SWIZZLES["128B"])))
    assert {"box 3", "64 x 256", "at 0x18000"} <= set(found)


@pytest.mark.parametrize(("wide", "verdict"), [(64, "8-way conflict"), (8, "no conflict")])
def test_an_access_says_its_verdict(wide: int, verdict: str) -> None:
    plan = plan_boxes(64, 64, "bf16", SWIZZLES["none"], wide)
    assert f"ldmatrix.x4: {verdict}" in labels(access_svg("ldmatrix.x4", tile_access(plan, "ldmatrix.x4")))


def test_a_word_shows_every_bit_and_field() -> None:
    word = OperandTile(64, 64, "bf16", "k", SWIZZLES["128B"]).wgmma_descriptor(1024).encode()
    found = labels(word_svg("descriptor", WgmmaDescriptor.FIELDS, word, 64, {}))
    assert {str(bit) for bit in range(64)} <= set(found)
    assert "62-63  swizzle = 1" in found


def test_scale_factors_show_each_byte_once() -> None:
    found = [label for label in labels(scale_factors_svg(scale_factors("4X", 128))) if re.fullmatch(r"m\d+ k\d", label)]
    assert len(found) == len(set(found)) == 512


def test_lanes_of_a_warp_have_colours_of_their_own() -> None:
    assert len({color_of(lane, 32, 4) for lane in range(32)}) == 32
    assert len({color_of(chunk, 8) for chunk in range(8)}) == 8
