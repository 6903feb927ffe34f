"""Kernels that show who holds what: they run one instruction and dump registers or shared memory."""
