"""Kernels of benchmarks: bounds on what those of `workers/kernels` can reach, whose headers they include."""
