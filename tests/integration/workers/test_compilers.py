"""Compiler processes: their builds, and the recovery from one that ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from space.config import Config
from tests.support import FAMILY, PROBLEM
from workers import compilers as module
from workers.build import Build, BuildFailure, compile_source, nvrtc_library, nvrtc_version
from workers.builder import FEW, MAX_THREADS, Builder, source_of
from workers.compilers import TRIES, Compilers
from workers.errors import CacheError

ARCH = FAMILY.reference.arch.name
ROOT = Path(__file__).resolve().parents[3]
#: Answers as a compiler does, and says in the log that it was started; the source says how it behaves.
PROCESS = """
import os, sys, time
sys.path.insert(0, {root!r})
from workers.framing import receive, send
log, read_fd, write_fd = {log!r}, int(sys.argv[1]), int(sys.argv[2])
with open(log, "a") as out: print("started", file=out)
while True:
    match receive(read_fd)["source"]:
        case "die": os.abort()
        case "die once" if not os.path.exists(log + ".once"):
            open(log + ".once", "w").close()
            os.abort()
        case "hang": time.sleep(60)
        case "no NVRTC": send(write_fd, dict(error="NVRTC does not answer"))
        case "wrong": send(write_fd, dict(reason="expected a semicolon", log="line 1"))
        case "other NVRTC": send(write_fd, dict(cubin="AAEC", registers=9, warnings=[], nvrtc="12.8", seconds=0.25))
        case _: send(write_fd, dict(cubin="AAEC", registers=9, warnings=["w"], nvrtc="HERE", seconds=0.25))
""".replace("HERE", nvrtc_version())
#: A parent that has loaded an NVRTC before Python looks for one, and a child that says which one it has.
PARENT = """
import ctypes, sys
ctypes.CDLL({nvrtc!r})
sys.path.insert(0, {folder!r})
from workers.supervisor import Supervisor
child = Supervisor(["-m", "child"])
print(child.ask({{}}, 60)["nvrtc"])
child.close()
"""
CHILD = """
import sys
from workers.build import nvrtc_library
from workers.framing import receive, send
receive(int(sys.argv[1]))
send(int(sys.argv[2]), dict(nvrtc=nvrtc_library()))
receive(int(sys.argv[1]))
"""


@pytest.fixture
def compilers(script: Callable[..., str]) -> Iterator[Compilers]:
    opened = Compilers([script(PROCESS)])
    yield opened
    opened.close()


BUILD = Build("digest", b"\x00\x01\x02", 9, ("w",), nvrtc_version(), 0.25)


def started(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_one_process_compiles_one_source_after_another(compilers: Compilers, log: Path) -> None:
    assert [compilers.compile(text, "sm_90a", "digest") for text in ("one", "two")] == [BUILD, BUILD]
    assert compilers.compile("wrong", "sm_90a", "other") == BuildFailure("expected a semicolon", "line 1")
    with pytest.raises(CacheError, match="NVRTC does not answer"):
        compilers.compile("no NVRTC", "sm_90a", "digest")
    assert started(log) == 1


def test_a_build_of_another_nvrtc_is_none(compilers: Compilers) -> None:
    with pytest.raises(CacheError, match=r"found NVRTC 12\.8, and this process has"):
        compilers.compile("other NVRTC", "sm_90a", "digest")


def test_a_child_compiles_with_the_nvrtc_that_its_parent_has_loaded(tmp_path: Path) -> None:
    found = Path(nvrtc_library())
    for library in (found, *found.parent.glob("libnvrtc-builtins.so*")):
        shutil.copy(library, tmp_path)
    (tmp_path / "child.py").write_text(CHILD)
    loaded = str(tmp_path / found.name)

    parent = [sys.executable, "-c", PARENT.format(nvrtc=loaded, folder=str(tmp_path))]
    said = subprocess.run(parent, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (said.stdout.strip(), said.stderr) == (loaded, "")


def test_a_source_at_which_compilers_die_fails_alone(compilers: Compilers, log: Path) -> None:
    failed = compilers.compile("die", "sm_90a", "bad")
    assert isinstance(failed, BuildFailure)
    assert started(log) == TRIES
    assert "the compiler ended (signal SIGABRT" in failed.reason
    assert compilers.compile("one", "sm_90a", "digest") == BUILD


def test_a_source_at_which_a_compiler_hangs_is_waited_for_once(
    compilers: Compilers, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compilers.compile("one", "sm_90a", "digest") == BUILD
    with monkeypatch.context() as patch:
        patch.setattr(module, "DEADLINE_SECONDS", 0.2)
        failed = compilers.compile("hang", "sm_90a", "bad")
    assert isinstance(failed, BuildFailure)
    assert "no answer within 0.2 s" in failed.reason
    assert compilers.compile("one", "sm_90a", "digest") == BUILD
    assert started(log) == 2


def test_a_compiler_that_was_ended_once_is_blamed_on_no_source(compilers: Compilers, log: Path) -> None:
    assert compilers.compile("die once", "sm_90a", "digest") == BUILD
    assert started(log) == 2


def test_many_candidates_are_compiled_by_processes_to_the_same_builds_and_kept(tmp_path: Path) -> None:
    # Small ones, of which the last is illegal: it spills, or does not compile.
    candidates: list[Config] = [FAMILY.config({"tile_n": n, "epilogue": "direct"}) for n in range(8, 8 * FEW + 9, 8)]
    candidates.append(FAMILY.config({"tile_m": 192, "consumer_warpgroups": 2}))
    builder = Builder(tmp_path, MAX_THREADS + 1)
    made = dict(builder.builds(PROBLEM, candidates))
    assert not builder._compilers._idle.empty(), "no process was asked"
    builder.close()
    assert builder._compilers._idle.empty()
    failed = made.pop(candidates[-1])
    assert isinstance(failed, BuildFailure)
    last = candidates[FEW]
    here = compile_source(source_of(PROBLEM, last, ARCH), ARCH, None)
    kept = compile_source(source_of(PROBLEM, last, ARCH), ARCH, tmp_path)
    assert isinstance(here, Build)
    assert isinstance(kept, Build)
    there = made[last]
    assert isinstance(there, Build)
    assert (there.digest, there.cubin, there.registers) == (here.digest, here.cubin, here.registers)
    assert (kept.cubin, kept.seconds) == (here.cubin, 0.0)
    assert failed.log == compile_failed(candidates[-1]).log


def compile_failed(config: Config) -> BuildFailure:
    made = compile_source(source_of(PROBLEM, config, ARCH), ARCH, None)
    assert isinstance(made, BuildFailure)
    return made
