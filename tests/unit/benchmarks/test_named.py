"""Lists of problems: what an entry names is what is measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.named import named_problems
from space.errors import ProblemError
from space.kinds.gemm import Gemm


def test_a_batch_and_an_epilogue_are_part_of_the_problem(tmp_path: Path) -> None:
    plain = {"name": "a", "class": "moe", "m": 16, "n": 64, "k": 128, "dtype": "fp16", "layout": "nn"}
    (path := tmp_path / "list.json").write_text(json.dumps([plain, plain | {"batch": 4, "epilogue": "bias"}]))
    assert [*named_problems(path)] == [
        ("a", "moe", Gemm.of(16, 64, 128, "fp16", "nn")),
        ("a (2)", "moe", Gemm.of(16, 64, 128, "fp16", "nn", 4, "bias")),
    ]


def test_entries_of_one_name_are_told_apart_and_what_is_not_said_has_a_campaigns_defaults(tmp_path: Path) -> None:
    plain = {"m": 16, "n": 64, "k": 128}
    entries = [plain | {"name": "a (2)"}, plain | {"name": "a"}, plain | {"name": "a", "layout": "tt"}, plain]
    (path := tmp_path / "list.json").write_text(json.dumps(entries))
    found = [*named_problems(path)]
    assert [name for name, _, _ in found] == ["a (2)", "a", "a (3)", "bf16 nt 16x64x128"]
    assert {problem for _, _, problem in found} == {Gemm(16, 64, 128), Gemm(16, 64, 128, layout="tt")}
    assert {group for _, group, _ in found} == {"none"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "can't be read"), ("{}", "no JSON list"), ("[7]", "entry 1: '7' is no object"),
        ('[{"m": 16, "n": 64, "k": 4.5}]', "entry 1: k = 4.5 is not a whole number"),
        ('[{"m": 16, "n": 64, "k": 64, "dtype_c": "f32"}]', "entry 1: 'dtype_c' is not a field"),
    ],
)
def test_what_is_no_list_of_problems_is_refused_with_its_entry(tmp_path: Path, text: str, said: str) -> None:
    (path := tmp_path / "list.json").write_text(text)
    with pytest.raises(ProblemError, match=re.escape(said)):
        [*named_problems(path)]
