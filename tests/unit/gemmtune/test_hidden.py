"""A program with a module of the name of one of our packages is told so: Python names a module of ours as missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip


@pytest.mark.parametrize(
    ("file", "program"),
    [
        ("workers/__init__.py", "from gemmtune import launch"),
        ("tuner.py", "from gemmtune import Client"),
        ("space/__init__.py", "import gemmtune; gemmtune.launch"),
    ],
)
def test_what_hides_a_package_of_ours_is_named(tmp_path: Path, file: str, program: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    (tmp_path / "program.py").write_text(program)
    last = ran(tmp_path, "program.py").stderr.splitlines()[-1]
    package = file.partition("/")[0].removesuffix(".py")
    assert last.startswith(f"ImportError: {tmp_path / file} hides gemmtune's own package '{package}': rename it")


def test_the_command_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").touch()
    assert "hides gemmtune's own package 'workers'" in ran(tmp_path, "-m", "gemmtune", "--version").stderr


def test_a_package_that_nothing_of_ours_needs_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "__init__.py").touch()
    (tmp_path / "program.py").write_text("from gemmtune import Client, launch")
    done = ran(tmp_path, "program.py")
    assert (done.returncode, done.stderr) == (0, "")


def test_other_imports_that_fail_are_python_s_own(tmp_path: Path) -> None:
    (tmp_path / "httpx2.py").touch()
    (tmp_path / "program.py").write_text("from gemmtune import Client")
    assert "hides" not in ran(tmp_path, "program.py").stderr
