"""What each tensor-core instruction of NVIDIA multiplies, as tables: one module an instruction.

A row states dtypes, shapes, major modes, where operands may lie, the archs that have it, and the source.
Rules, layouts, kernels and the tests against the compiler read the same rows.
"""
