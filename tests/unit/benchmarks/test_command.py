"""Benchmarks with wrong input end with one line and exit code 2, as `argparse` ends them; they ended in tracebacks."""

from __future__ import annotations

import re
import runpy
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from benchmarks.command import as_command, needing_torch, reading

NOWHERE = "{folder}/nowhere"
DEV = "benchmarks/problems/dev.json"
#: Waits with a process that would outlive it, in a thread that would, too.
WAITING = """
import subprocess, sys, threading, time
from benchmarks.command import as_command
def main():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    threading.Thread(target=child.wait).start()
    print(child.pid, flush=True)
    time.sleep(600)
as_command(main)
"""
#: Files that are not what a benchmark reads.
BAD = {"broken.json": "{", "numbers.json": "[1, 2]", "object.json": "{}", "bytes.json": "\udcff\udcfe"}
#: What is run as a command.
BENCHMARKS = sorted(
    ".".join(path.with_suffix("").parts).removesuffix(".__main__") for path in Path("benchmarks").rglob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)  # fmt: skip
WITHOUT_TORCH = "is not here, and nothing is measured without it: install the extra `torch`"


def ended(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str) -> str:
    """The one line of a benchmark that refuses."""
    module, *words = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [module, *words])
    # Python warns of a module that was imported before it is run.
    for name in (f"benchmarks.{module}", f"benchmarks.{module}.__main__"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as end:
        runpy.run_module(f"benchmarks.{module}", run_name="__main__", alter_sys=True)
    assert end.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert ": error: " in line
    return line.partition(": error: ")[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in BAD.items():
        (tmp_path / name).write_text(text, errors="surrogateescape")
    (tmp_path / "empty").mkdir()
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "x.parquet").write_text("hi")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("estimate --family nope", "family 'nope' is unknown"),
        (f"estimate --recordings {NOWHERE}", "no recording in .*nowhere has a correct candidate of sm90_wgmma"),
        ("estimate --recordings {folder}/recordings", "x.parquet can't be read as Parquet"),
        (f"search.stopping --recordings {NOWHERE}", "no recording in .*nowhere has a correct candidate"),
        (f"search --recordings {NOWHERE}", "no recording in .*nowhere has a correct candidate"),
        ("search --strategies random --problems 4096x4096x4096 --runs {folder}/numbers.json", "not a file of --runs"),
        (f"picking --recordings {NOWHERE}", "no recording in .*nowhere has several finals"),
        (f"predicted {NOWHERE}", "nowhere can't be used .No such file or directory."),
        ("predicted {folder}/empty", "empty is empty: give a folder with files of `gemmtune backup`"),
        ("predicted {folder}", "can't be read as a backup"),
        ("enumerate_space 3x3", "shape '3x3' is not MxNxK"),
        ("enumerate_space 64x64x64 --family gemv", "no config of gemv is worth trying"),
        ("machine_code nowhere recorded/h200", "no kernels are known of 'nowhere'"),
        (f"machine_code HEAD {NOWHERE}", "no program of sm90_wgmma is in .*nowhere"),
        (f"finals {NOWHERE}", "nowhere can't be used .No such file or directory."),
        ("finals {folder}/empty", "empty is empty: give a folder with files of `gemmtune backup`"),
        (f"unlisted {NOWHERE}", "nowhere can't be read .* give a JSON list of problems"),
        (f"tuned_twice --from {NOWHERE}", "nowhere has no file that ends in"),
        ("repeatability nope", "problem 'nope' is not DTYPE:MxNxK"),
        ("repeatability --configs 100", "--configs 100: give at most 64, as many as can be told apart"),
        ("sustained_order bf16:3x3", "shape '3x3' is not MxNxK"),
        ("speed --part 3", "part = '3' is not I/N"),
        (f"search --plot {NOWHERE}/x.svg", "nowhere is no folder: name a file in one"),
        ("search --plot {folder}/x.svg", "x.svg needs matplotlib, which is not here"),
        ("search --strategies random --problems 3x3", "none of 3x3 is in recorded/h200"),
        ("compile_space --arch sm_80", "sm90_wgmma has no kernel for sm_80: it compiles for sm_90a"),
        ("kill_worker 3x3", "shape '3x3' is not MxNxK"),
        ("kill_worker 64x64x64 --device nope", "`gemmtune tune 64x64x64 --device nope .*` measures nothing here"),
        (f"finals {NOWHERE} --deployed {{folder}}/numbers.json", "numbers.json is not a part that --json kept"),
        ("tuned_twice bf16:64x64x64 --seconds 0", "no problem was tuned twice: bf16 nt 64x64x64: no time was left"),
        ("estimate --out {folder}", "argument --out: .* is a folder: name a file in it"),
        ("fleet --problems 0", "argument --problems: 0 is too few: give 1 or more"),
        ("fleet --devices recorded:h200", "recorded:h200 is the only device"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, command: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = ended(capsys, monkeypatch, command.format(folder=folder))
    assert re.search(said, line)


@pytest.mark.parametrize("module", BENCHMARKS)
def test_each_tells_how_it_is_called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    for name in (module, f"{module}.__main__"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as end:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    said = capsys.readouterr()
    assert (said.out.startswith("usage: ") and end.value.code == 0) or WITHOUT_TORCH in said.err


@pytest.mark.parametrize(("command", "name"), [
    (command, name)
    for command in (f"deployed {DEV} --merge", "model --merge", "speed --merge", "speed", "deployed")
    for name in ("nowhere", *BAD)
    if (command, name) != ("model --merge", "object.json")  # that is an empty part
])
def test_a_file_that_is_something_else_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, command: str, name: str
) -> None:
    assert str(folder / name) in ended(capsys, monkeypatch, f"{command} {folder / name}")


@pytest.mark.parametrize("command", [
    "agreement", "algorithm_round_trip", "cpp_bundle", f"deployed {DEV} --db x", "floors", "mma_rivals", "model",
    "policies", "rotation", "torch_overhead",
])
def test_without_torch_what_needs_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert ended(capsys, monkeypatch, command) == f"torch {WITHOUT_TORCH}"


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        as_command(lambda: 1 // 0)
    with pytest.raises(ConnectionRefusedError):
        as_command(lambda: _raise(ConnectionRefusedError(111, "refused")))
    with pytest.raises(FileNotFoundError):
        as_command(lambda: _raise(FileNotFoundError(2, "No such file", "/tmp/of-its-own")))
    with pytest.raises(ZeroDivisionError), reading(Path("x"), "a part"):
        _raise(ZeroDivisionError())
    with pytest.raises(ModuleNotFoundError, match="gone"), needing_torch():
        _raise(ModuleNotFoundError("gone", name="benchmarks.gone"))


@pytest.mark.parametrize(("returned", "code"), [(None, None), (0, 0), (1, 1)])
def test_a_benchmark_ends_with_its_own_code(returned: int | None, code: int | None) -> None:
    with pytest.raises(SystemExit) as end:
        as_command(lambda: returned)
    assert end.value.code == code


def test_a_benchmark_that_is_told_to_end_ends_what_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    with suppress(psutil.NoSuchProcess):
        child.wait(60)


def _raise(error: Exception) -> int:
    raise error
