"""Arrays by DLPack, without a GPU: NumPy's arrays say that they are on one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmtune
from gemmtune.arrays import ArrayRefused, array_of, problem_of
from space.kinds.gemm import Gemm


class OnGpu:
    """A NumPy array that claims to be on a GPU."""

    def __init__(self, array: Any) -> None:  # noqa: ANN401
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int) -> object:
        assert stream == -1
        return self.array.__dlpack__()


def zeros(*shape: int, dtype: str = "float16") -> Any:  # noqa: ANN401
    return np.zeros(shape, dtype)


def problem(a: Any, b: Any, out: Any) -> Gemm:  # noqa: ANN401
    arrays = (array_of(OnGpu(array), name) for name, array in (("a", a), ("b", b), ("out", out)))
    return problem_of(*arrays)


def test_addresses_shapes_and_strides_are_the_producers() -> None:
    made = zeros(8, 16)
    found = array_of(OnGpu(made[2:]), "a")
    assert (found.address, found.shape, found.strides, found.dtype) == (made[2:].ctypes.data, (6, 16), (16, 1), "fp16")


def test_strides_give_the_layout() -> None:
    out = zeros(8, 32)
    assert problem(zeros(8, 16), zeros(32, 16).T, out) == Gemm.of(8, 32, 16, "fp16")
    assert problem(zeros(16, 8).T, zeros(16, 32), out).layout == "tn"
    batched = problem(zeros(3, 8, 16), zeros(3, 16, 32), zeros(3, 8, 32))
    assert (batched.batch, batched.layout) == (3, "nn")
    whole = problem(zeros(8, 16, dtype="int8"), zeros(16, 32, dtype="int8"), zeros(8, 32, dtype="int32"))
    assert (whole.dtype, problem(*(zeros(8, 8, dtype="float32"),) * 3).dtype) == ("int8", "tf32")


@pytest.mark.parametrize(
    ("a", "b", "out", "said"),
    [
        (zeros(8, 16), zeros(15, 32), zeros(8, 32), "C\\[M,N\\] is"),
        (zeros(8, 16), zeros(16, 32), zeros(8, 64)[:, ::2], "row by row"),
        (zeros(8, 32)[:, ::2], zeros(16, 32), zeros(8, 32), "dense rows"),
        (zeros(16), zeros(16, 32), zeros(8, 32), "three matrices"),
        (zeros(8, 16, dtype="float64"), zeros(16, 32), zeros(8, 32), "kernels don't know"),
        (zeros(8, 16), zeros(16, 32, dtype="int8"), zeros(8, 32), "dtype_b beside fp16"),
    ],
)
def test_what_no_kernel_takes_is_refused(a: Any, b: Any, out: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(ArrayRefused, match=said):
        problem(a, b, out)


def test_launch_names_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ArrayRefused, match="not in a GPU's memory"):
        gemmtune.launch(zeros(8, 16), zeros(16, 32), zeros(8, 32))
    with pytest.raises(ArrayRefused, match="does not speak DLPack"):
        gemmtune.launch([1], zeros(16, 32), zeros(8, 32))
    with pytest.raises(ArrayRefused, match="GEMMTUNE_TABLE"):
        gemmtune.launch(OnGpu(zeros(8, 16)), OnGpu(zeros(16, 32)), OnGpu(zeros(8, 32)))
