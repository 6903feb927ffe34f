"""KernelSource: a family's files wherever they lie, and how constants enter them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from space.errors import FamilyError
from space.family import families_for, family_named
from space.kinds.gemm import Gemm
from workers.kernels.source import KernelSource, digests_alike, source_of_family, sources_digest


@pytest.fixture
def source(tmp_path: Path) -> KernelSource:
    (tmp_path / "entry.cuh").write_text('#include "common/types.cuh"\n#include "own.cuh"\n#include "made.cuh"\nbody\n')
    (tmp_path / "own.cuh").write_text("enum class Walk { kRows, kColumns };\n")
    (tmp_path / "more.cuh").write_text("more\n")
    return KernelSource(
        "entry.cuh",
        root=tmp_path,
        enumerators={"walk": "Walk"},
        not_members=frozenset({"packs"}),
        extra_entries={"packs": "more.cuh"},
        generate=lambda constants: {"made.cuh": f"made for {constants['tile_m']}"},
    )


def test_includes_resolve_in_the_own_folder_first_and_then_among_the_kernels(source: KernelSource) -> None:
    text = source.render({"tile_m": 64, "walk": "rows", "packs": 0})
    assert "using u32 = unsigned int;" in text
    places = [text.index(part) for part in ("enum class Walk", "made for 64", "struct Config {", "body")]
    assert places == sorted(places)
    assert "static constexpr int kTileM = 64;" in text
    assert "static constexpr Walk kWalk = Walk::kRows;" in text
    assert "kPacks" not in text


def test_an_extra_entry_is_part_of_the_program_where_its_constant_is_not_0(source: KernelSource) -> None:
    constants = {"tile_m": 64, "walk": "rows"}
    assert "more" not in source.render(constants | {"packs": 0})
    assert source.render(constants | {"packs": 1}).endswith("more\n")


def test_the_digest_knows_the_files_and_not_the_constants(source: KernelSource, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in tmp_path.glob("*.cuh"):
        (other / path.name).write_text(path.read_text())
    same = KernelSource("entry.cuh", root=other, extra_entries={"packs": "more.cuh"})
    assert same.digest == source.digest
    assert KernelSource("entry.cuh", root=other).digest != source.digest


def test_another_entry_stands_in_where_its_constant_is_given_and_changes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "entry.cuh").write_text('#include "common/types.cuh"\nbody\n')
    (tmp_path / "scaled.cuh").write_text('#include "common/types.cuh"\nscaled\n')
    plain = KernelSource("entry.cuh", root=tmp_path)
    source = KernelSource("entry.cuh", root=tmp_path, other_entries={"scaled": "scaled.cuh"})
    assert source.render({"tile_m": 64}) == plain.render({"tile_m": 64})
    assert source.digest == plain.digest == source.digest_for(["tile_m"])
    text = source.render({"tile_m": 64, "scaled": 0})
    assert text.index("kScaled = 0") < text.index("\nscaled\n")
    assert "body" not in text
    assert source.digest_for(["scaled"]) != source.digest


def test_problems_with_scales_have_a_digest_of_their_own() -> None:
    plain, scaled = Gemm.of(16, 32, 64, "fp8_e4m3"), Gemm.of(16, 32, 64, "fp8_e4m3", epilogue="scaled")
    families = families_for("sm_90a", scaled)
    assert [family.name for family in families] == ["sm90_wgmma"]
    assert sources_digest(families, scaled) != sources_digest(families, plain) == sources_digest(families)


def test_sources_of_several_families_are_alike_in_every_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    families = [family_named("sm90_wgmma"), family_named("gemv")]
    texts = {
        "sm90_wgmma": KernelSource("sm90_wgmma/entry.cuh", alike=("a" * 64, "b" * 64)),
        "gemv": KernelSource("gemv/entry.cuh", alike=("c" * 64,)),
    }
    monkeypatch.setattr("workers.kernels.source.source_of_family", lambda family: texts[family.name])
    found = list(digests_alike(families))
    assert len(set(found)) == len(found) == 3 * 2
    assert found[0] == sources_digest(families)
    assert list(digests_alike(families[:1])) == [texts["sm90_wgmma"].digest, "a" * 64, "b" * 64]


def test_a_library_has_no_source() -> None:
    with pytest.raises(FamilyError, match="cublaslt has no kernel of ours"):
        source_of_family(family_named("cublaslt"))


def test_sources_are_the_same_text_in_every_locale() -> None:
    code = "from space.family import family_named; from workers.kernels.source import sources_digest as digest; " \
           "print(digest([family_named('sm90_wgmma')]))"  # fmt: skip
    ascii_alone = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | ascii_alone, capture_output=True, text=True)
    assert done.stdout.strip() == sources_digest([family_named("sm90_wgmma")]), done.stderr
