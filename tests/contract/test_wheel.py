"""The wheel that users install holds what answering needs, and nothing that only the repository needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content; its dependencies are this environment's."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    quiet = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *quiet, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("gemmtune-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_the_wheel_holds_the_packages_alone(installed: Path) -> None:
    found = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert found == {"api", "gemmtune", "recorded", "space", "tuner", "workers"}
    (metadata,) = installed.glob("*.dist-info")
    assert "gemmtune = gemmtune.command:main" in (metadata / "entry_points.txt").read_text()


def test_type_checkers_read_what_users_import_and_what_that_returns(installed: Path) -> None:
    assert all((installed / name / "py.typed").is_file() for name in ("api", "gemmtune", "space", "tuner", "workers"))


def test_a_wheel_answers_in_an_empty_home_and_leaves_nothing_there(installed: Path, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GEMMTUNE_", "PYTHON"))}
    environment = kept | {"HOME": str(tmp_path), "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "gemmtune", "best", "4096x4096x4096"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("recorded: from a recording of a real NVIDIA H200")
    assert list(tmp_path.iterdir()) == []
