"""The build cache: what a build is kept under, and what becomes of one that is damaged."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from cuda.pathfinder import DynamicLibNotFoundError

from workers import build
from workers.build import Build, compile_source, digest_of, kept_cubin
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
