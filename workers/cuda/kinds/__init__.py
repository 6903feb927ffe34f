"""Problem kinds in the GPU process: each kind's runtime module exports its runtime as `RUNTIME`."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from space.kind import kind_named
from space.problem import Problem
from workers.cuda.kinds.runtime import Runtime


def runtime_of(problem: Problem) -> Runtime:
    """The runtime of a problem's kind."""
    return _runtime(kind_named(problem.kind).runtime)


@cache
def _runtime(module: str) -> Runtime:
    found = import_module(module).RUNTIME
    assert isinstance(found, Runtime), f"{module}.RUNTIME"
    return found
