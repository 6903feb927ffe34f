"""Each line of the threat model names tests that exist, and every attack that is tested has its line."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "integration"
TEXT = (ROOT / "docs" / "threat-model.md").read_text()
NAMED = re.compile(r"`([\w./]+\.py)::(test_\w+)`")


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in tree if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def test_every_line_of_a_threat_names_tests_that_exist() -> None:
    measures = TEXT.partition("## Measures")[2].partition("## Left to others")[0]
    rows = [line for line in measures.splitlines() if line.startswith("| ")]
    threats = [row for row in rows if not row.startswith(("| ---", "| threat |"))]
    assert len(threats) > 30
    assert [line for line in threats if not NAMED.search(line)] == []
    named = NAMED.findall(TEXT)
    assert [(path, name) for path, name in named if name not in names_in((TESTS / path).resolve())] == []


def test_every_attack_that_is_tested_has_its_line() -> None:
    named = {((TESTS / path).resolve(), name) for path, name in NAMED.findall(TEXT)}
    attacks = {(path, name) for path in (TESTS / "attacks").glob("test_*.py") for name in names_in(path)}
    assert {f"{path.name}::{name}" for path, name in attacks - named} == set()
