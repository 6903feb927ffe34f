"""Imports go down only: benchmarks → gemmtune → api → tuner → workers → space, and never in a circle.

Dynamic imports count: the argument of `import_module`, and every string that names one of our modules, such as the
place of a command that is imported when it runs. `pytest -s` prints the floors, the rooms and the arrows between them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
#: From top to bottom, each with what it may import of ours.
FLOORS: Final = {
    "benchmarks": {"benchmarks", "gemmtune", "api", "tuner", "workers", "space"},
    # The composition root: it alone names both the service and the commands.
    "gemmtune": {"gemmtune", "api", "tuner", "workers", "space"},
    "api": {"api", "tuner", "space"},
    "tuner": {"tuner", "workers", "space"},
    "workers": {"workers", "space"},
    "space": {"space"},
}
#: Modules of `gemmtune` that may import `api`.
COMPOSITION_ROOT: Final = {"gemmtune.serve", "gemmtune.demo"}
#: The rooms of `tuner`, from bottom to top; its loose modules stand below all of them.
TUNER_ROOMS: Final = ("evidence", "prediction", "answering", "studying", "tables", "fleet", "views", "cli")
#: Of `workers`, the tuner may import ports, values and errors. Only these modules import implementations.
PORTS: Final = {"workers.ports", "workers.measurement", "workers.errors"}
USES_IMPLEMENTATIONS: Final = {
    "tuner.studying.open_worker", "tuner.prediction.examples", "tuner.cli.doctor", "tuner.studying.recorder",
    "tuner.cli.record", "tuner.cli.recordings", "tuner.fleet.builds", "tuner.fleet.agent.build_cache",
    "tuner.answering.staleness", "tuner.studying.saved",
    "tuner.tables.recorded", "tuner.tables.from_recordings", "tuner.tables.programs",
}  # fmt: skip

@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    found = {}
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_names(path: Path) -> set[str]:
    """Dotted names that a file imports, statically or by a string."""
    tree = ast.parse(path.read_text())
    loggers = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger")
        for argument in node.args
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            found |= {name if (name := f"{base}.{alias.name}") in modules() else base for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loggers:
            name, _, _ = node.value.partition(":")
            if "." in name and name in modules():
                found.add(name)
    return found


@cache
def file_graph() -> dict[str, set[str]]:
    """Our modules, each with those that it imports."""
    return {
        name: {ours for ours in imported_names(path) if ours in modules() and ours != name}
        for name, path in modules().items()
    }


def room_of(module: str) -> str:
    """The folder under a package that a module lies in; a loose module is a room of its own."""
    parts = module.split(".")
    is_folder = (ROOT / parts[0] / parts[1]).is_dir() if len(parts) > 1 else False
    return ".".join(parts[:2]) if is_folder or len(parts) == 2 else module


def merged(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The graph of rooms."""
    rooms: dict[str, set[str]] = {}
    for name, targets in graph.items():
        room = room_of(name)
        rooms.setdefault(room, set()).update({room_of(target) for target in targets} - {room})
    return rooms


def circles(graph: Mapping[str, set[str]]) -> Iterator[str]:
    """Circles of a graph; each is cut after it was found, to find the others."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = list(reversed(error.args[1]))
            yield " → ".join(circle)
            left[circle[0]].discard(circle[1])
        else:
            return


@pytest.mark.parametrize("floor", sorted(FLOORS))
def test_no_arrow_goes_up(floor: str) -> None:
    for name, targets in file_graph().items():
        if name.split(".")[0] == floor:
            packages = {target.split(".")[0] for target in targets}
            assert packages <= FLOORS[floor], f"{name} imports {packages - FLOORS[floor]}"


def test_only_the_composition_root_names_the_service_from_outside() -> None:
    naming = {
        name
        for name, targets in file_graph().items()
        if name.split(".")[0] == "gemmtune" and any(target.split(".")[0] == "api" for target in targets)
    }
    assert naming == COMPOSITION_ROOT


def test_no_dynamic_import_hides_its_target() -> None:
    """A module name that is put together at run time would escape this test."""
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and called in ("import_module", "__import__"):
                assert isinstance(node.args[0], ast.Constant | ast.Name), f"{name}:{node.lineno}"


def test_no_files_import_each_other_in_a_circle() -> None:
    assert list(circles(file_graph())) == []


def test_no_rooms_import_each_other_in_a_circle() -> None:
    assert list(circles(merged(file_graph()))) == []


def test_the_tuners_rooms_are_in_order() -> None:
    place = {room: at for at, room in enumerate(TUNER_ROOMS)}
    upward = [
        f"{name} → {target}"
        for name, targets in file_graph().items()
        for target in targets
        if name.startswith("tuner.") and target.startswith("tuner.")
        and place.get(name.split(".")[1], -1) < place.get(target.split(".")[1], -1)
    ]  # fmt: skip
    assert upward == []
    assert {path.name for path in (ROOT / "tuner").iterdir() if (path / "__init__.py").exists()} == set(place)


def test_space_needs_the_standard_library_and_numpy_only() -> None:
    for name, path in modules().items():
        if name.split(".")[0] == "space":
            packages = {used.split(".")[0] for used in imported_names(path)}
            assert packages <= {"space", "numpy"} | set(sys.stdlib_module_names), name


def test_the_tuner_knows_workers_by_their_ports() -> None:
    for name, targets in file_graph().items():
        if name.split(".")[0] == "tuner" and name not in USES_IMPLEMENTATIONS:
            used = {target for target in targets if target.split(".")[0] == "workers"}
            assert used <= PORTS, f"{name} imports {used - PORTS}"


def test_no_part_of_the_parent_touches_the_driver() -> None:
    names = ("builder", "supervisor", "framing", "cuda/worker", "cuda/gpu", "cuda/round")
    parent = [f"workers/{name}.py" for name in names]
    for place in parent:
        assert not {name for name in imported_names(ROOT / place) if name.startswith("cuda")}, place


def test_the_drawing() -> None:
    """Prints what a drawing of the house shows: files and lines of each floor, rooms, and arrows with their counts."""
    files = Counter(name.split(".")[0] for name in modules())
    lines: Counter[str] = Counter()
    for name, path in modules().items():
        lines[name.split(".")[0]] += len(path.read_text().splitlines())
    arrows = Counter(
        (name.split(".")[0], target.split(".")[0]) for name, targets in file_graph().items() for target in targets
    )
    rooms = Counter((room_of(name), room_of(target)) for name, targets in file_graph().items() for target in targets)
    for floor in FLOORS:
        print(f"\n{floor}: {files[floor]} files, {lines[floor]:,} lines")  # noqa: T201
        for (start, end), count in sorted(arrows.items()):
            if start == floor != end:
                print(f"  → {end}: {count} imports")  # noqa: T201
        for (start, end), count in sorted(rooms.items()):
            if start.split(".")[0] == end.split(".")[0] == floor and start != end and re.match(r"\w+\.\w+$", start):
                print(f"    {start} → {end}: {count}")  # noqa: T201
    assert set(files) == set(FLOORS)
