"""House rules that a test can enforce."""

from __future__ import annotations

import inspect
import re
import statistics
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

import space.errors
import tuner.errors
import workers.errors

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("space", "workers", "tuner", "api", "gemmtune", "benchmarks")
MOST_LINES = 400
KERNELS = [path for package in ("workers", "benchmarks") for path in (ROOT / package / "kernels").rglob("*.cuh")]


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "versions" not in path.parts]


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources()}
    assert {str(path): count for path, count in lengths.items() if count > MOST_LINES} == {}
    assert statistics.median(count for count in lengths.values() if count) <= 150
    tests = {path: len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    assert {str(path): count for path, count in tests.items() if count > MOST_LINES} == {}


def test_kernels_are_short_and_ours() -> None:
    for path in KERNELS:
        text = path.read_text()
        assert len(text.splitlines()) <= 500, path
        for header in re.findall(r"#include\s+(\S+)", text):
            assert header.startswith('"'), f"{path} includes {header}: kernels use no third-party headers"


def test_inline_assembly_lives_under_ptx_only() -> None:
    for path in KERNELS:
        if path.parent.name != "ptx":
            assert not re.search(r"\basm\b", path.read_text()), path


@pytest.mark.parametrize(
    ("pattern", "allowed", "why"),
    [
        (r"\bimport pickle|\bfrom pickle", (), "no pickle over a wire or in the store"),
        (r"\bgetenv\b|os\.environ", ("tuner/settings.py",), "one settings object reads the environment"),
        (r"\bfork\b\(|set_start_method|multiprocessing", (), "processes are spawned by the supervisor"),
        (r"description=__doc__\)", (), "argparse folds a docstring's commands into its prose unless told otherwise"),
    ],
)
def test_what_is_forbidden_is_absent(pattern: str, allowed: tuple[str, ...], why: str) -> None:
    for path in sources():
        if str(path.relative_to(ROOT)) not in allowed:
            assert not re.search(pattern, path.read_text()), f"{path}: {why}"


@pytest.mark.parametrize("module", [space.errors, workers.errors, tuner.errors], ids=lambda module: module.__name__)
def test_the_drawn_tree_of_errors_has_each_below_its_base(module: ModuleType) -> None:
    drawn: dict[str, str] = {}
    above = list[str]()
    for lead, name in re.findall(r"^    ((?:[│ ]   )*(?:[├└]── )?)(\w+)", module.__doc__ or "", re.MULTILINE):
        del above[len(lead) // 4 :]
        drawn[name] = above[-1] if above else ""
        above.append(name)
    errors = {name: error for name, error in vars(module).items() if inspect.isclass(error)}
    bases = {name: error.__base__.__name__ for name, error in errors.items()}
    assert drawn == {name: base if base in errors else "" for name, base in bases.items()}


def test_nothing_tracked_names_a_machine_or_a_registry() -> None:
    # Concatenated, so that this file does not contain them.
    words = ["/" + "work/", "/" + "root/", "pypi" + ".org", "python" + "hosted", "registry" + ".npmjs"]
    for path in tracked():
        if path.suffix in {".parquet", ".png"} or path == Path(__file__):
            continue
        text = path.read_text(errors="ignore")
        assert not [word for word in words if word in text], path
