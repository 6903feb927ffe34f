"""Where the hardware reads an operand: the PTX ISA's words on descriptors as one function, against our layouts."""

from __future__ import annotations

from space.elements import element_bytes
from space.instructions.operand import Major
from space.layouts.descriptor import MatrixDescriptor
from space.layouts.swizzle import CORE_ROWS, IntArray


def read_address(
    descriptor: MatrixDescriptor, major: Major, dtype: str, mn: IntArray, k: IntArray
) -> IntArray:
    """Address at which the hardware reads element (`mn`, `k`) of an operand of one instruction.

    Args:
        mn: row of A or column of B, from 0.
        k: position along K within the instruction, from 0.
    """
    size = element_bytes(dtype)
    swizzle, leading, stride = descriptor.swizzle, descriptor.leading_byte_offset, descriptor.stride_byte_offset
    contiguous, row = (k * size, mn) if major == "k" else (mn * size, k)
    span = swizzle.span_bytes
    if major == "k" and swizzle.bits:
        across = contiguous
    else:
        step = stride if major == "mn" and not swizzle.bits else leading
        across = contiguous // span * step + contiguous % span
    rows = leading if major == "mn" and not swizzle.bits else stride
    linear = descriptor.start_address + across + row % CORE_ROWS * span + row // CORE_ROWS * rows
    return swizzle.apply(linear)
