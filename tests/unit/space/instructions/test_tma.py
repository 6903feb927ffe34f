"""Limits of tensor maps: each from both sides, and every broken one named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import tensor_maps
from tests.tensor_maps import TensorMap

#: K-major bf16 A of a 4096-cubed problem, 128 rows of one 128-byte span at a time.
OPERAND = TensorMap(0x7F00_0000_0000, 2, (4096, 4096), (8192,), (64, 128), 128)

AT_THE_LIMIT = [
    {"address": 16},
    {"extents": (1, 1)},
    {"extents": (2**32, 2**32)},
    {"strides_bytes": (2**40 - 16,)},
    {"box": (64, 256)},
    {"box": (8, 1), "swizzle_bytes": 0},
    {"box": (256, 1), "swizzle_bytes": 0},
    # Narrower than the span is allowed: the rest of the span stays unused.
    {"box": (32, 128)},
    # 128-byte rows may come by narrower swizzles, in more boxes.
    {"box": (32, 128), "swizzle_bytes": 64},
    {"box": (16, 128), "swizzle_bytes": 32},
    {"element_strides": (8, 8)},
    # What an element stride leaves of an extent of 1 counts as nothing.
    {"extents": (64, 64, 64), "strides_bytes": (512, 8192), "element_bytes": 8, "box": (256, 115, 1),
     "swizzle_bytes": 0, "element_strides": (1, 1, 8)},
    {"extents": (64,), "strides_bytes": (), "box": (64,)},
    {"extents": (64, 4096, 64), "strides_bytes": (8192, 128), "box": (64, 128, 2)},
    # 228 KiB of FP64: 256·114·8 B.
    {"element_bytes": 8, "box": (256, 114), "swizzle_bytes": 0},
    # All of it would be 256 KiB; every second row is half of that.
    {"element_bytes": 4, "box": (256, 256), "swizzle_bytes": 0, "element_strides": (1, 2)},
    # Every second of 229 rows are 114: what is begun does not count.
    {"element_bytes": 8, "box": (256, 229), "swizzle_bytes": 0, "element_strides": (1, 2)},
    {"extents": (64, 8, 8, 8, 8), "strides_bytes": (128, 1024, 8192, 65536), "box": (64, 1, 1, 1, 1)},
]

PAST_THE_LIMIT = [
    ({"address": 8}, "address 0x8 is not a multiple of 16 B"),
    ({"extents": (0, 4096)}, "extent 0 of dimension 0"),
    ({"extents": (4096, 2**32 + 1)}, "extent 4,294,967,297 of dimension 1"),
    # k = 1,001 of bf16.
    ({"strides_bytes": (2002,)}, "stride 2,002 B of dimension 1 is 2 B past a multiple of 16"),
    ({"strides_bytes": (2**40,)}, "not below 2^40"),
    ({"box": (64, 0)}, "box extent 0 of dimension 1"),
    ({"box": (64, 257)}, "box extent 257 of dimension 1 is outside 1 to 256"),
    ({"box": (264, 1), "swizzle_bytes": 0}, "box extent 264 of dimension 0"),
    ({"box": (4, 128), "swizzle_bytes": 0}, "box rows of 8 B are not a multiple of 16: take a multiple of 8 elements"),
    ({"box": (128, 128)}, "box rows of 256 B exceed the 128-byte swizzle span: take boxes of 64 elements"),
    ({"box": (64, 128), "swizzle_bytes": 64}, "exceed the 64-byte swizzle span: take boxes of 32"),
    ({"element_bytes": 8, "box": (256, 115), "swizzle_bytes": 0},
     "tensor_map.box_bytes: a box of 256·115 elements of 8 B is 235,520 B > 233,472 B"),
    # Every second of 230 rows.
    ({"element_bytes": 8, "box": (256, 230), "swizzle_bytes": 0, "element_strides": (1, 2)}, "256·115 elements"),
    ({"swizzle_bytes": 16}, "swizzle 16 B is unknown"),
    ({"element_strides": (1, 9)}, "element stride 9 of dimension 1"),
    ({"element_strides": (0, 1)}, "element stride 0 of dimension 0"),
    ({"extents": (), "strides_bytes": (), "box": ()}, "rank 0"),
    ({"extents": (64,) * 6, "strides_bytes": (128,) * 5, "box": (1,) * 6}, "rank 6 is outside 1 to 5"),
    ({"box": (64,)}, "box has 1 entries: rank 2 needs 2"),
    ({"strides_bytes": ()}, "strides_bytes has 0 entries: rank 2 needs 1"),
]


@pytest.mark.parametrize("change", AT_THE_LIMIT, ids=str)
def test_at_the_limit_nothing_is_broken(change: dict[str, object]) -> None:
    assert replace(OPERAND, **change).broken() == ()


@pytest.mark.parametrize(("change", "sentence"), PAST_THE_LIMIT, ids=str)
def test_past_the_limit_one_sentence_names_it(change: dict[str, object], sentence: str) -> None:
    said = replace(OPERAND, **change).broken()
    assert len(said) == 1
    assert sentence in said[0]


def test_every_limit_that_a_map_can_break_is_in_the_table_and_broken_here() -> None:
    broken = {said.partition(": ")[0] for change, _ in PAST_THE_LIMIT for said in replace(OPERAND, **change).broken()}
    assert broken == {limit.id for limit in tensor_maps.LIMITS} - {"tensor_map.strides_array"}
    assert all(limit.sentence and limit.source for limit in tensor_maps.LIMITS)


def test_every_broken_limit_is_named_not_just_the_first() -> None:
    said = TensorMap(4, 2, (0, 2**33), (2001,), (128, 300), 128, (9, 9)).broken()
    assert len(said) == 8
