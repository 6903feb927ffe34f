"""The build cache: what a build is kept under, what becomes of one that is damaged, and what counts as a failure."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cuda.pathfinder import DynamicLibNotFoundError

from workers import build
from workers.build import Build, BuildFailure, compile_source, digest_of, kept_cubin
from workers.errors import CacheError

SOURCE, ARCH = "text", "sm_90a"


def made(source: str, arch: str, digest: str) -> Build:
    return Build(digest, b"cubin", 9, ("w",), "13.5", 0.25)


def test_a_build_belongs_to_its_text_its_target_and_its_compiler() -> None:
    digests = {digest_of(*of) for of in (("a", "b", "c"), ("x", "b", "c"), ("a", "x", "c"), ("a", "b", "x"))}
    assert len(digests) == 4


@pytest.mark.parametrize("damaged", ["", ".about"])
def test_a_damaged_build_is_none_and_is_made_again(tmp_path: Path, damaged: str) -> None:
    first = compile_source(SOURCE, ARCH, tmp_path, elsewhere=made)
    assert isinstance(first, Build)
    assert kept_cubin(tmp_path, first.digest) == b"cubin"
    build._store(tmp_path)[f"{first.digest}{damaged}"] = b"{}"
    with pytest.raises(CacheError, match="damaged"):
        kept_cubin(tmp_path, first.digest)
    again = compile_source(SOURCE, ARCH, tmp_path, elsewhere=made)
    assert isinstance(again, Build)
    assert again.seconds > 0
    assert kept_cubin(tmp_path, first.digest) == b"cubin"


def test_the_first_of_several_threads_imports_the_cache_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = list[bool]()

    class Imported(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name.startswith("__"):
                raise AttributeError(name)
            alone.append(build._IMPORTING.locked())
            return Path

    monkeypatch.setitem(sys.modules, "cuda.core.utils", Imported("cuda.core.utils"))
    build._store.__wrapped__(tmp_path.parent)
    assert alone == [True]


def test_a_machine_without_nvrtc_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        # What cuda.bindings raise is a RuntimeError.
        raise DynamicLibNotFoundError('Failure finding "libnvrtc.so.13"\nNo such file')

    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcVersion", missing)
    with pytest.raises(CacheError, match=r'loaded \(Failure finding "libnvrtc\.so\.13"\): install nvidia-cuda-nvrtc'):
        build.nvrtc_version.__wrapped__()


class Compiled:
    """Stands for `cuda.core.Program`: logs what ptxas would, and remembers the options."""

    said, fails = "", ""
    options: Any = None

    def __init__(self, source: str, language: str, options: object) -> None:
        Compiled.options = options

    def compile(self, target: str, logs: StringIO) -> SimpleNamespace:
        logs.write(self.said)
        if self.fails:
            raise RuntimeError(self.fails)
        return SimpleNamespace(code=b"cubin")


def compiled(monkeypatch: pytest.MonkeyPatch, said: str, fails: str = "") -> Build | BuildFailure:
    monkeypatch.setattr(Compiled, "said", said)
    monkeypatch.setattr(Compiled, "fails", fails)
    monkeypatch.setattr("cuda.core.Program", Compiled)
    return compile_source(SOURCE, ARCH, None)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized", "C7510"),
        ("ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain registers", "C7508"),
        ("ptxas info    : (C7517) Potential Performance Loss: a wait is injected", "C7517"),
        ("ptxas warning : WGMMA of 'k' is Serialized", "Serialized"),
        ("ptxas warning : setmaxnreg is ignored", "ignored"),
        ("ptxas info    : 8 bytes stack frame, 8 bytes spill stores, 0 bytes spill loads", "8 bytes of registers"),
        ("ptxas info    : 8 bytes stack frame, 0 bytes spill stores, 12 bytes spill loads", "12 bytes of registers"),
    ],
)
def test_what_ptxas_merely_remarks_on_is_a_failure(monkeypatch: pytest.MonkeyPatch, said: str, reason: str) -> None:
    failed = compiled(monkeypatch, f"ptxas info    : 0 bytes gmem\n{said}\nptxas info    : Used 90 registers\n")
    assert isinstance(failed, BuildFailure)
    assert reason in failed.reason
    assert said in failed.log


def test_a_build_tells_the_most_registers_and_all_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["ptxas info : Used 90 registers", "ptxas Warning : one", "ptxas info : Used 16 registers", "warning: b"]
    clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    made = compiled(monkeypatch, "\n".join([*lines, clean]))
    assert isinstance(made, Build)
    assert (made.registers, made.warnings) == (90, ("ptxas Warning : one", "warning: b"))
    # NVRTC's own cache answers without the remarks of ptxas.
    assert Compiled.options.no_cache


@pytest.mark.parametrize(
    ("said", "fails", "reason"),
    [
        ("note\n", "x.cu(3): error: no such name\nx.cu(4): error: another\0", "x.cu(3): error: no such name"),
        ("", "ptxas info : Used 3 registers\nptxas ptx input, line 2; error   : bad", "line 2; error   : bad"),
        ("", "ptxas fatal   : aborted", "ptxas fatal   : aborted"),
        ("", "out of memory", "out of memory"),
        ("", "\0", "no log"),
    ],
)
def test_the_first_error_is_the_reason_and_the_whole_log_is_kept(
    monkeypatch: pytest.MonkeyPatch, said: str, fails: str, reason: str
) -> None:
    failed = compiled(monkeypatch, said, fails)
    assert isinstance(failed, BuildFailure)
    assert failed.reason.endswith(reason)
    assert said in failed.log
    assert fails in failed.log
