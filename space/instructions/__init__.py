"""Tables of NVIDIA's tensor-core instructions and of those that feed them, one module per instruction.

A row states dtypes, shapes, major modes, where operands may be, the archs that have the instruction, and the source.
Rules, layouts, kernels and the tests against the compiler read the same rows.
"""
