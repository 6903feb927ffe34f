"""What a replaced product's own kernels win in a block, told apart from what the others do."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks.model.attribution import Attributed, attributed  # noqa: E402
from benchmarks.model.machines import KernelTime  # noqa: E402


def graph(*kernels: tuple[str, float]) -> list[KernelTime]:
    return [KernelTime(*one) for one in kernels]


def test_a_product_of_two_kernels_is_told_from_an_equal_one_that_stays() -> None:
    theirs = graph(("norm", 1.0), ("split", 10.0), ("reduce", 2.0), ("act", 3.0), ("split", 20.0), ("reduce", 2.0))
    ours = graph(("norm", 1.5), ("gemm", 9.0), ("act", 2.5), ("split", 24.0), ("reduce", 2.0))
    found = attributed(theirs, ours)
    assert (found.torch_us, found.ours_us, found.others_us) == (12.0, 9.0, -4.0)
    assert found.of_one(2) == Attributed(6.0, 4.5, -2.0)


def test_equal_graphs_differ_in_time_alone() -> None:
    assert attributed(graph(("a", 3.0)), graph(("a", 2.0))) == Attributed(0.0, 0.0, 1.0)
