"""Layouts as functions: where an element is in shared memory, and which thread holds it in which register.

    swizzle              address → address, for each mode
    boxes                tile → TMA boxes, and the address of every element
    operand              operand tile → strides and descriptors of wgmma and tcgen05
    descriptor           fields ↔ 64 bits, for wgmma and tcgen05
    tcgen05_instruction  fields ↔ 32 bits
    banks                addresses of a warp → wavefronts
    fragments            instruction and operand → (thread, register) → (row, column)
    draw                 all of these as SVG

The functions are exact. Rules, kernels, drawings and the tests that dump registers of a GPU share them.
"""
