"""Kernels that show how data lies: each runs one instruction and dumps registers or shared memory."""
