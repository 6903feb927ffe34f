"""The limits of tensor maps against the driver, which encodes exactly the legal maps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from space.instructions.tma import STRIDE_STEP_BYTES
from tests.tensor_maps import TensorMap
from tests.unit.space.instructions.test_tma import AT_THE_LIMIT, OPERAND, PAST_THE_LIMIT
from tuner.studying.open_worker import driver_present

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]


@pytest.fixture(scope="module")
def buffer() -> Iterator[int]:
    """Address of device memory, in its own context."""
    from cuda.bindings import driver as cu

    from workers.cuda.driver import Buffer, check

    check("cuInit", cu.cuInit(0))
    device = check("cuDeviceGet", cu.cuDeviceGet(0))
    check("cuCtxSetCurrent", cu.cuCtxSetCurrent(check("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(device))))
    held = Buffer.allocate(1 << 20)
    yield held.address
    held.free()
    cu.cuDevicePrimaryCtxRelease(device)


def encodes(tensor: TensorMap) -> bool:
    """Whether the driver accepts the map."""
    from cuda.bindings import driver as cu

    rank = len(tensor.extents)
    types = {1: "UINT8", 2: "BFLOAT16", 4: "FLOAT32", 8: "FLOAT64"}
    swizzle = "NONE" if not tensor.swizzle_bytes else f"{tensor.swizzle_bytes}B"
    error, _ = cu.cuTensorMapEncodeTiled(
        getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{types[tensor.element_bytes]}"), rank, tensor.address,
        [cu.cuuint64_t(extent) for extent in tensor.extents],
        # Of rank 1 there is nothing to read, and a null pointer is refused: `tensor_map.strides_array`.
        [cu.cuuint64_t(stride) for stride in tensor.strides_bytes or (STRIDE_STEP_BYTES,)],
        [cu.cuuint32_t(extent) for extent in tensor.box],
        [cu.cuuint32_t(stride) for stride in tensor.element_strides or (1,) * rank],
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
    return int(error) == 0


def at(address: int, tensor: TensorMap) -> TensorMap:
    """The same map of real memory, as misaligned as it was."""
    return replace(tensor, address=address + tensor.address % 16)


@pytest.mark.parametrize("change", AT_THE_LIMIT, ids=str)
def test_what_is_at_the_limit_is_encoded(buffer: int, change: dict[str, object]) -> None:
    assert encodes(at(buffer, replace(OPERAND, **change)))


#: The interface itself holds rank, lengths and swizzle words; of the first element stride its text says both that
#: it must be legal and that it is ignored.
NOT_ASKED = ({"box": (64,)}, {"strides_bytes": ()}, {"swizzle_bytes": 16}, {"element_strides": (0, 1)})
REFUSED = [change for change, _ in PAST_THE_LIMIT
           if change not in NOT_ASKED and not {"extents", "strides_bytes", "box"} <= change.keys()]  # fmt: skip


@pytest.mark.parametrize("change", REFUSED, ids=str)
def test_what_is_past_the_limit_is_refused(buffer: int, change: dict[str, object]) -> None:
    assert not encodes(at(buffer, replace(OPERAND, **change)))


def test_two_thousand_random_maps_are_encoded_exactly_where_nothing_is_broken(buffer: int) -> None:
    draw = random.Random(5)
    wrong = []
    for _ in range(2_000):
        rank, size = draw.randint(1, 5), draw.choice((1, 2, 4, 8))
        tensor = TensorMap(
            buffer + draw.choice((0, 0, 0, 8, 16)), size,
            tuple(draw.choice((1, 7, 64, 4096, 2**32)) for _ in range(rank)),
            tuple(draw.choice((16, 128, 8192, 8192, 2002, 2**39, 2**40)) for _ in range(rank - 1)),
            tuple(draw.choice((1, 8, 16, 64, 128, 256, 257)) for _ in range(rank)),
            draw.choice((0, 32, 64, 128)),
            (1, *(draw.choice((1, 1, 1, 2, 8, 9)) for _ in range(rank - 1))),
        )  # fmt: skip
        if encodes(tensor) == bool(tensor.broken()):
            wrong.append((tensor, tensor.broken()))
    assert wrong == []
