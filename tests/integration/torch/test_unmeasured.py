"""What `benchmarks.unmeasured` prints of products that it has timed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks.unmeasured import Row, summary  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402

FASTER = Row(Gemm.of(64, 64, 64), 0.5, {"torch": 12.0, "runs": 10.0, "answer": 10.0}, "")
SLOWER = Row(Gemm.of(64, 64, 128), 0.7, {"torch": 10.0, "runs": 10.0, "answer": 40.0}, "it takes longer")


def test_a_line_says_what_runs_and_what_the_answer_would_gain() -> None:
    assert str(FASTER) == "| bf16 nt 64x64x64 | 0.50 | the answer | 12.00 | 1.200 | 1.200 |"
    assert str(SLOWER) == "| bf16 nt 64x64x128 | 0.70 | torch | 10.00 | 1.000 | 0.250 |"


def test_the_summary_counts_what_is_slower_than_torch() -> None:
    assert summary([FASTER, SLOWER]).split("\n\n") == [
        "what runs: geometric mean 1.095 of torch's operator, slowest 1.000, 0 of 2 below 0.98",
        "answers alone: geometric mean 0.548 of torch's operator, slowest 0.250, 1 of 2 below 0.98",
        "left to torch: 1; a first call takes 0.60 s in the median",
    ]
