"""What the kernels encode into matrix descriptors is what `space.layouts` says, field by field."""

from __future__ import annotations

import re

import pytest

from space.instructions.operand import Major
from space.layouts.descriptor import WgmmaDescriptor
from space.layouts.operand import OperandTile, Strides
from space.layouts.swizzle import SWIZZLES
from workers.kernels.flatten import FOLDER


def test_fields_and_swizzle_codes_stand_where_the_layouts_have_them() -> None:
    text = (FOLDER / "ptx" / "wgmma.cuh").read_text()
    body = text[text.index("wgmma_descriptor(") :]
    shifts = {int(shift) for shift in re.findall(r"<< (\d+)\)", body)}
    unused = ("start_address", "base_offset")
    assert shifts == {field.low for field in WgmmaDescriptor.FIELDS if field.name not in unused}
    assert "0x3FFFF) >> 4" in body
    for name in ("128B", "64B", "32B"):
        assert f"kSwizzle == {name[:-1]} ? {WgmmaDescriptor.SWIZZLE_CODES[name]}" in body


@pytest.mark.parametrize("major", ["mn", "k"])
@pytest.mark.parametrize("mode", ["128B", "64B", "32B", "none"])
def test_strides_of_every_canonical_layout_are_those_of_the_layouts(major: Major, mode: str) -> None:
    text = (FOLDER / "sm90_wgmma" / "multiply.cuh").read_text()
    # In the order of the text: MN-major plain and swizzled, K-major plain and swizzled.
    made = re.findall(r"return wgmma_descriptor<\w+>\(address, ([^,]+), ([^;]+)\);", text)
    assert len(made) == 4
    leading, stride = made[2 * (major == "k") + (mode != "none")]
    tile = OperandTile(128, 64, "bf16", major, SWIZZLES[mode])
    known = {"kSpanBytes": SWIZZLES[mode].span_bytes, "kSpanPitch": tile.plan.column_stride_bytes}
    assert tile.strides == Strides(_value(leading, known), _value(stride, known))


def _value(expression: str, known: dict[str, int]) -> int:
    """A product of numbers and names."""
    value = 1
    for factor in expression.split("*"):
        value *= known.get(factor.strip()) or int(factor)
    return value
