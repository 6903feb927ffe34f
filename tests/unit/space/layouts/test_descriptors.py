"""Descriptors: bits as the ISA has them, encode undoes decode, and what does not fit is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.errors import LayoutError
from space.layouts.descriptor import Tcgen05Descriptor, WgmmaDescriptor
from space.layouts.swizzle import SWIZZLES

sixteens = st.integers(0, 2**14 - 1).map(lambda value: value * 16)
swizzled = st.sampled_from(["128B", "64B", "32B"])
wgmma = st.one_of(
    st.builds(lambda *fields: WgmmaDescriptor(*fields[:3], SWIZZLES[fields[3]], fields[4]),
              sixteens, sixteens, sixteens, swizzled, st.integers(0, 7)),
    st.builds(lambda *fields: WgmmaDescriptor(*fields, SWIZZLES["none"]), sixteens, sixteens, sixteens),
)  # fmt: skip
tcgen05 = st.builds(
    lambda a, b, c, name, base, absolute: Tcgen05Descriptor(a, b, c, SWIZZLES[name], base, absolute),
    sixteens, sixteens, sixteens, st.sampled_from(["128B", "64B", "32B", "128B_atom32B"]), st.integers(0, 7),
    st.booleans(),
)  # fmt: skip


@given(wgmma)
def test_wgmma_decodes_what_it_encodes(descriptor: WgmmaDescriptor) -> None:
    assert WgmmaDescriptor.decode(descriptor.encode()) == descriptor


@given(tcgen05)
def test_tcgen05_decodes_what_it_encodes(descriptor: Tcgen05Descriptor) -> None:
    assert Tcgen05Descriptor.decode(descriptor.encode()) == descriptor


@given(st.integers(0, 2**64 - 1))
def test_any_word_is_a_descriptor_or_refused(word: int) -> None:
    for kind in (WgmmaDescriptor, Tcgen05Descriptor):
        try:
            assert kind.decode(word).encode() == word
        except LayoutError:
            continue


@pytest.mark.parametrize(("name", "code"), [("none", 0), ("128B", 1), ("64B", 2), ("32B", 3)])
def test_the_swizzle_of_wgmma_is_in_bits_62_and_63(name: str, code: int) -> None:
    assert WgmmaDescriptor(0, 0, 0, SWIZZLES[name]).encode() == code << 62


@pytest.mark.parametrize(("name", "code"), [("none", 0), ("128B_atom32B", 1), ("128B", 2), ("64B", 4), ("32B", 6)])
def test_the_swizzle_of_tcgen05_is_in_bits_61_to_63_under_other_codes(name: str, code: int) -> None:
    assert Tcgen05Descriptor(0, 0, 0, SWIZZLES[name]).encode() == code << 61 | 1 << 46


def test_fields_stand_where_the_isa_has_them() -> None:
    word = WgmmaDescriptor(0x400, 16, 1024, SWIZZLES["128B"], 5).encode()
    assert word == 0x40 | 1 << 16 | 64 << 32 | 5 << 49 | 1 << 62


def test_three_shifted_to_bit_61_is_not_the_32_byte_swizzle() -> None:
    """It reads as 128B with a reserved bit set; a document took it for 32B."""
    word = 3 << 61
    (swizzle,) = (field for field in WgmmaDescriptor.FIELDS if field.name == "swizzle")
    assert swizzle.of(word) == WgmmaDescriptor.SWIZZLE_CODES["128B"]
    with pytest.raises(LayoutError, match="reserved bit 61"):
        WgmmaDescriptor.decode(word)


def test_a_descriptor_of_the_other_instruction_is_recognised() -> None:
    with pytest.raises(LayoutError, match="reserved bit 46"):
        WgmmaDescriptor.decode(Tcgen05Descriptor(0, 0, 0, SWIZZLES["none"]).encode())
    with pytest.raises(LayoutError, match="is it a wgmma descriptor"):
        Tcgen05Descriptor.decode(WgmmaDescriptor(0, 0, 0, SWIZZLES["64B"]).encode())


@pytest.mark.parametrize(
    ("descriptor", "said"),
    [
        (WgmmaDescriptor(8, 16, 1024, SWIZZLES["128B"]), "start_address = 8 B"),
        (WgmmaDescriptor(1 << 18, 16, 1024, SWIZZLES["128B"]), "start_address = 262,144 B"),
        (WgmmaDescriptor(0, -16, 1024, SWIZZLES["128B"]), "leading_byte_offset = -16 B"),
        (WgmmaDescriptor(0, 16, 1025, SWIZZLES["128B"]), "stride_byte_offset = 1,025 B"),
        (WgmmaDescriptor(0, 16, 1024, SWIZZLES["128B"], 8), "base_offset = 8 .*0 to 7"),
        (WgmmaDescriptor(0, 16, 1024, SWIZZLES["none"], 1), "without a swizzle"),
        (WgmmaDescriptor(0, 16, 1024, SWIZZLES["128B_atom32B"]), "wgmma has no swizzle 128B_atom32B"),
        (Tcgen05Descriptor(0, 16, 8, SWIZZLES["128B"]), "stride_byte_offset = 8 B"),
        (Tcgen05Descriptor(0, 16, 1024, SWIZZLES["none"], 2), "without a swizzle"),
    ],
)
def test_what_does_not_fit_is_refused(descriptor: WgmmaDescriptor | Tcgen05Descriptor, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        descriptor.encode()


@pytest.mark.parametrize("word", [-1, 1 << 64])
def test_a_word_of_another_length_is_refused(word: int) -> None:
    for kind in (WgmmaDescriptor, Tcgen05Descriptor):
        with pytest.raises(LayoutError, match="64 bits"):
            kind.decode(word)


@pytest.mark.parametrize("code", [3, 5, 7])
def test_unused_swizzle_codes_of_tcgen05_are_refused(code: int) -> None:
    with pytest.raises(LayoutError, match=f"swizzle code {code}"):
        Tcgen05Descriptor.decode(code << 61 | 1 << 46)
