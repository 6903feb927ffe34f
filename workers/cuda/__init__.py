"""The GPU worker: a parent that builds and supervises, and one child process that owns the CUDA context.

`worker`, `gpu` and `round` run in the parent, which never touches the driver; everything else runs in the child.
"""
