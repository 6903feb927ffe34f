"""Problem lists: ladders, CSV, JSON, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from space.problem import Problem
from tuner.tables.importers import shapes_of
from tuner.tables.problems import MOST_PROBLEMS, distinct, ladder


def listed(path: Path, text: str) -> list[Problem]:
    path.write_text(text)
    return list(shapes_of([path]).counts)


def shapes(expression: str) -> list[str]:
    return [problem.shape for problem in ladder(expression)]


def test_a_ladder_multiplies_adds_and_lists() -> None:
    assert shapes("m=1..8:x2 n=64 k=64") == ["1x64x64", "2x64x64", "4x64x64", "8x64x64"]
    assert shapes("m=3..20:x3 n=64 k=64") == ["3x64x64", "9x64x64"]
    assert shapes("m=64..256:+96 n=64 k=64") == ["64x64x64", "160x64x64", "256x64x64"]
    assert shapes("m=1..3 n=64 k=64") == ["1x64x64", "2x64x64", "3x64x64"]
    assert shapes("m=1,2 n=8,16 k=64") == ["1x8x64", "1x16x64", "2x8x64", "2x16x64"]
    assert shapes("m=8,1..8:x2 n=64 k=64") == ["8x64x64", "1x64x64", "2x64x64", "4x64x64"]


def test_a_ladder_names_every_field_of_a_problem() -> None:
    found = ladder("m=64 n=64 k=64 dtype=bf16,fp16 layout=nt,nn batch=1,4 epilogue=none,bias+relu")
    assert len(set(found)) == 16
    assert Gemm.of(64, 64, 64, "fp16", "nn", 4, "bias+relu") in found


@given(st.integers(1, 2**20), st.integers(0, 2**20), st.integers(2, 10))
def test_steps_stay_within_their_ends(first: int, more: int, factor: int) -> None:
    numbers = [problem.m for problem in ladder(f"m={first}..{first + more}:x{factor} n=8 k=8")]
    assert numbers[0] == first
    assert all(after == before * factor for before, after in pairwise(numbers))
    assert numbers[-1] <= first + more < numbers[-1] * factor


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "needs m, n, k"),
        ("m=64 n=64", "needs k"),
        ("m=64 n=64 k=64 m=32", "given twice"),
        ("m=64 n=64 k=64 q=1", "'q=1'"),
        ("m= n=64 k=64", "'m='"),
        ("16x64x64", "^'16x64x64' in '16x64x64' is not part"),
        ("m=64, n=64 k=64", "'m=64,'"),
        ("m=8..4 n=64 k=64", "does not increase"),
        ("m=0..4 n=64 k=64", "does not increase"),
        ("m=1..4:x1 n=64 k=64", "factor of 2"),
        ("m=1..4:+0 n=64 k=64", "step of"),
        ("m=1..4:-1 n=64 k=64", "not a list of numbers"),
        ("m=-4 n=64 k=64", "m = -4 is not a GEMM extent"),
        ("m=1e3 n=64 k=64", "not a list of numbers"),
        ("m=1..2147483647 n=64 k=64", "more than 20,000"),
        ("m=1..200 n=1..200 k=64", "40,000 problems"),
        ("m=99999999999999 n=64 k=64", "it must be 1 to 2,147,483,647"),
        ("m=1..99999999999999:x2 n=64 k=64", "last <= 2,147,483,647"),
        ("m=999999999999999999999 n=64 k=64", "not a list of numbers"),
        ("m=16,n=64,k=64", "with spaces between"),
        ("m=16;n=64;k=64", "with spaces between"),
        ("m=² n=64 k=64", "not a list of numbers"),
        ("m=٣..٤ n=64 k=64", "not a list of numbers"),
        ("m=64 n=64 k=64 dtype=bf17", "bf17"),
        ("m=64 n=64 k=64 layout=qq", "qq"),
    ],
)
def test_what_is_no_ladder_is_named(expression: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        ladder(expression)


def test_csv_and_json_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("name,m,n,k,dtype,layout\none,64,128,256,fp16,\ntwo,1,2,3,,nn\n")
    (tmp_path / "list.json").write_text(
        '[{"name": "one", "m": 64, "n": 128, "k": 256, "dtype": "fp16"}, {"m": 1, "n": 2, "k": 3, "layout": "nn"}]'
    )
    (tmp_path / "noted.csv").write_text("m,n,k,count\n64,128,256,\n64,128,256,7\n")
    assert shapes_of([tmp_path / "list.csv"]) == shapes_of([tmp_path / "list.json"])
    assert shapes_of([tmp_path / "noted.csv"]).counts == {Gemm(64, 128, 256): 8}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m,n\n1,2\n", "needs k"),
        ("m,n,k,colour\n1,2,3,red\n", "'colour'"),
        ("m,n,k\n1,2,x\n", "k = 'x'"),
        ("m,n,k\n1,2\n", "differ in length"),
        ("m,n,k\n1,2,3,4\n", "differ in length"),
        ("m,n,k\n1,2,-3\n", "k = -3"),
        ("m,n,k\n1,2,³\n", "k = '³'"),
        (f"m,n,k\n1,2,{'9' * 5_000}\n", "k = '9999"),
        ("m,n,k,count\n1,2,3,0\n", "line 2: count = '0'|line 2: count = 0"),
        ("m,n,k,count\n1,2,3,many\n", "line 2: count = 'many'"),
        ("m,n,k,count\n1,2,3,2000000000000\n", "count = '2000000000000' is not a count: .* 1 to 1,000,000,000,000"),
        ('m,n,k\n"1,2,3\n', "not valid CSV"),
    ],
)
def test_bad_csv_is_named_with_its_row(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=said):
        listed(tmp_path / "list.csv", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "not a list"),
        ("[1]", "not a list"),
        ("[", "not valid JSON"),
        ('[{"m": 1, "n": 2}]', "entry 1: a gemm problem needs k"),
        ('[{"m": 1.5, "n": 2, "k": 3}]', "m = 1.5"),
        ('[{"m": true, "n": 2, "k": 3}]', "m = True"),
        ('[{"m": 1, "n": 2, "k": 3, "dtype": 7}]', "entry 1"),
    ],
)
def test_bad_json_is_named_with_its_entry(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=said):
        listed(tmp_path / "list.json", text)


@pytest.mark.parametrize(
    ("word", "hint"), [("coutn", "did you mean count"), ("nmae", "did you mean name"), ("batsh", "did you mean batch")]
)
def test_a_misspelt_field_is_told_all_that_a_list_may_have(tmp_path: Path, word: str, hint: str) -> None:
    said = rf"'{word}' is not a field .*: {hint}\? it has m, n, k, .*; beside it a list has kind, count, name, class"
    with pytest.raises(ProblemError, match=said):
        listed(tmp_path / "list.csv", f"m,n,k,{word}\n1,2,3,4\n")
    with pytest.raises(ProblemError, match=said):
        listed(tmp_path / "list.json", f'[{{"m": 1, "n": 2, "k": 3, "{word}": 4}}]')


def test_a_file_that_can_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"nothing\.csv"):
        shapes_of([tmp_path / "nothing.csv"])
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match="cannot be read"):
        shapes_of([tmp_path / "bytes.csv"])


def test_repeats_are_dropped_and_numbers_are_limited() -> None:
    assert len(distinct(ladder("m=64,64 n=8 k=8") + ladder("m=64 n=8 k=8"))) == 1
    with pytest.raises(ProblemError, match="no problem"):
        distinct([])
    with pytest.raises(ProblemError, match="too many"):
        distinct(Gemm(m, 8, 8) for m in range(1, MOST_PROBLEMS + 2))
