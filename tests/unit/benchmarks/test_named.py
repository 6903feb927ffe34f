"""Lists of problems: what an entry names is what is measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.named import named_problems
from space.kinds.gemm import Gemm


def test_a_batch_and_an_epilogue_are_part_of_the_problem(tmp_path: Path) -> None:
    plain = {"name": "a", "class": "moe", "m": 16, "n": 64, "k": 128, "dtype": "fp16", "layout": "nn"}
    (path := tmp_path / "list.json").write_text(json.dumps([plain, plain | {"batch": 4, "epilogue": "bias"}]))
    assert [*named_problems(path)] == [
        ("a", "moe", Gemm.of(16, 64, 128, "fp16", "nn")),
        ("a", "moe", Gemm.of(16, 64, 128, "fp16", "nn", 4, "bias")),
    ]
