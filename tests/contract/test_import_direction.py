"""Packages import only rightwards: api → tuner → workers → space."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"api", "tuner", "workers", "space", "gemmtune", "benchmarks", "tests"}
#: What each package may import of ours.
ALLOWED = {
    "space": {"space"},
    "workers": {"workers", "space"},
    "tuner": {"tuner", "workers", "space"},
    "api": {"api", "tuner", "space"},
    "gemmtune": {"gemmtune", "tuner", "workers", "space"},
    "benchmarks": {"benchmarks", "gemmtune", "api", "tuner", "workers", "space"},
}
#: Of `workers`, the tuner knows ports, values and errors. Only its composition roots know implementations.
PORTS = {"workers.ports", "workers.measurement", "workers.errors"}
ROOTS = {
    "tuner/studying/devices.py", "tuner/prediction/examples.py", "tuner/cli/checkup.py", "tuner/studying/recorder.py",
    "tuner/cli/record.py", "tuner/cli/recordings.py", "tuner/fleet/builds.py", "tuner/fleet/agent/build_cache.py",
}  # fmt: skip


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_rightwards(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        roots = {name.split(".")[0] for name in imports(path)} & OURS
        assert roots <= ALLOWED[package], f"{path.relative_to(ROOT)} imports {roots - ALLOWED[package]}"


def test_space_needs_the_standard_library_and_numpy_only() -> None:
    for path in (ROOT / "space").rglob("*.py"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert roots <= {"space", "numpy"} | set(sys.stdlib_module_names), path


def test_the_tuner_knows_workers_by_their_ports() -> None:
    for path in (ROOT / "tuner").rglob("*.py"):
        place = str(path.relative_to(ROOT))
        used = {name for name in imports(path) if name.split(".")[0] == "workers"}
        if place not in ROOTS:
            assert used <= PORTS, f"{place} imports {used - PORTS}"


def test_no_part_of_the_parent_touches_the_driver() -> None:
    of_cuda = ("worker", "round", "supervisor", "framing")
    parent = ["workers/builder.py", *(f"workers/cuda/{name}.py" for name in of_cuda)]
    for place in parent:
        assert not {name for name in imports(ROOT / place) if name.startswith("cuda")}, place
