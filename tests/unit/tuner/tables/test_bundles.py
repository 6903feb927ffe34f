"""Bundles: what leaves is all that a machine needs, and one that is not what it says is refused whole."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gemmtune.exact import exact
from space.errors import ConfigError
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.unit.tuner.tables.test_exporters import (
    CUBIN,
    DEVICE,
    DIGEST,
    TIED,
    WON,
    entry,
    guarded,
    table,
    written,
)
from tuner.errors import ExportError, TableError
from tuner.files import export_folder
from tuner.tables.bundles import read_bundle
from tuner.tables.entries import canonical, content_of
from tuner.tables.programs import plans_of
from tuner.tables.tables import read_table


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    found = guarded(table(entry(WON), entry(TIED, 1.0), entry(Gemm.of(8, 64, 64), family="cublaslt")))
    export_folder(tmp_path / "bundle", written("bundle", found, program=lambda _: CUBIN))
    return tmp_path / "bundle"


def test_a_bundle_is_read_back_with_its_programs(bundle: Path) -> None:
    found = read_bundle(bundle)
    assert (found.device, found.arch, found.library) == (DEVICE, "sm_90a", {TIED.key})
    assert found.program(WON) == CUBIN
    assert found.program(Gemm.of(8, 64, 64)) == b""
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert (manifest["multiprocessors"], manifest["driver"], manifest["nvrtc"]) == (132, ["580.1"], ["13.0"])
    assert sorted(manifest["files"]) == [f"cubins/{DIGEST}.cubin", "table.json"]
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]


@pytest.fixture
def with_algorithm(tmp_path: Path) -> Path:
    """A bundle with two algorithms of the library: one that can be rebuilt, and one that names a rank alone."""
    ranked = family_named("cublaslt").config({"rank": 1})
    document = {"family": "cublaslt", "knobs": ranked.knobs, "key": ranked.key}
    found = guarded(table(entry(Gemm.of(8, 64, 64), family="cublaslt"),
                          entry(Gemm.of(4, 64, 64), family="cublaslt", config=document)))  # fmt: skip
    files = written("bundle", found, program=lambda _: CUBIN, plan=plans_of(DEVICE))
    export_folder(tmp_path / "bundle", files)
    return tmp_path / "bundle"


def test_a_bundle_has_what_rebuilds_the_librarys_algorithm(with_algorithm: Path) -> None:
    manifest = json.loads((with_algorithm / "manifest.json").read_text())
    (name,) = manifest["algorithms"]
    # Older readers refuse names that they do not know among the files.
    assert name not in manifest["files"]
    lines = (with_algorithm / name).read_text().splitlines()
    assert (lines[0], lines[-1]) == ("gemmtune.algorithm/1", "end")
    assert {"cublaslt 130101", f"problem {Gemm.of(8, 64, 64).key}", "workspace 0", "attribute ID 66",
            "attribute CLUSTER_SHAPE_ID 7", "matrix first 14 64 64 64 1 4096"} <= set(lines)  # fmt: skip
    assert set(read_bundle(with_algorithm).bests) == {Gemm.of(8, 64, 64).key, Gemm.of(4, 64, 64).key}


def test_a_bundle_from_before_there_were_algorithms_is_read(with_algorithm: Path) -> None:
    path = with_algorithm / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["algorithms"]
    path.write_text(json.dumps(manifest))
    assert len(read_bundle(with_algorithm).bests) == 2


@pytest.mark.parametrize(("change", "said"), [
    (lambda folder: next(folder.glob("algorithms/*")).write_text("x"), "was changed"),
    (lambda folder: next(folder.glob("algorithms/*")).unlink(), "can't be read"),
    (lambda folder: elsewhere(folder / "algorithms"), "is a link"),
    (lambda folder: piped(next(folder.glob("algorithms/*"))), "is a pipe"),
    (lambda folder: manifest_with(folder, algorithms={"table.json": "0" * 64}), "which no bundle has"),
    (lambda folder: manifest_with(folder, algorithms={"algorithms/../x": "0" * 64}), "which no bundle has"),
    (lambda folder: manifest_with(folder, algorithms=[5]), "is not a manifest"),
])  # fmt: skip
def test_a_changed_algorithm_refuses_the_bundle(with_algorithm: Path, change: Any, said: str) -> None:  # noqa: ANN401
    change(with_algorithm)
    with pytest.raises(TableError, match=said):
        read_bundle(with_algorithm)


def test_a_manifest_names_versions_in_one_order() -> None:
    # A set of texts has another order in every process.
    told = entry(WON)["provenance"]
    versions = [f"5{number}.1" for number in range(10, 40)]
    entries = [entry(Gemm.of(8 * place, 64, 64), provenance=told | {"driver": driver})
               for place, driver in enumerate(reversed(versions), 1)]  # fmt: skip
    files = written("bundle", guarded(table(*entries)), program=lambda _: CUBIN)
    assert json.loads(files["manifest.json"])["driver"] == versions


def test_a_bundle_replaces_nothing(bundle: Path) -> None:
    with pytest.raises(ExportError, match="exists"):
        export_folder(bundle, {"manifest.json": b"{}"})
    read_bundle(bundle)


def test_a_bundle_without_programs_is_refused() -> None:
    with pytest.raises(ConfigError, match="which this service lacks"):
        written("bundle", guarded(table(entry(WON))))


def test_what_has_no_program_is_left_to_the_library() -> None:
    found = guarded(table(entry(WON), entry(TIED)))
    files = written("bundle", found, program=lambda each: "gone" if each["problem"]["m"] == 16 else CUBIN)
    document = json.loads(files["table.json"])
    assert (document["library"], document["left_out"]) == ({WON.key: None}, {"gone": 1})
    assert json.loads(files["manifest.json"])["left_out"] == {"gone": 1}


def test_a_bundle_says_what_the_guard_left_out_too() -> None:
    found = guarded(table(entry(WON), entry(TIED, 1.0)))
    files = written("bundle", found, program=lambda _: "gone")
    reasons = {"gone": 1, "not surely more than 1.02 times as fast as the library's first choice": 1}
    for name in ("table.json", "manifest.json"):
        assert json.loads(files[name])["left_out"] == reasons


def manifest_with(bundle: Path, **changed: Any) -> None:  # noqa: ANN401
    path = bundle / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def listing(bundle: Path, name: str) -> None:
    (bundle.parent / "outside").write_bytes(b"x")
    manifest_with(bundle, files={name: hashlib.sha256(b"x").hexdigest()})


def table_with(bundle: Path, **changed: Any) -> None:  # noqa: ANN401
    path = bundle / "table.json"
    document = json.loads(path.read_bytes()) | changed
    document["content"] = content_of({name: value for name, value in document.items() if name != "content"})
    path.write_bytes(canonical(document))
    files = json.loads((bundle / "manifest.json").read_bytes())["files"]
    manifest_with(bundle, files=files | {"table.json": hashlib.sha256(path.read_bytes()).hexdigest()})


def elsewhere(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: listing(folder, "../outside"), "which no bundle has"),
        (lambda folder: listing(folder, "cubins/../../outside"), "which no bundle has"),
        (lambda folder: listing(folder, str(folder.parent / "outside")), "which no bundle has"),
        (lambda folder: manifest_with(folder, schema="gemmtune.bundle/2"), "gemmtune.bundle/2"),
        (lambda folder: manifest_with(folder, arch="sm_100a"), "not a program for sm_100a"),
        (lambda folder: manifest_with(folder, device="NVIDIA L40S"), "no table of 'NVIDIA L40S'"),
        (lambda folder: manifest_with(folder, multiprocessors=114), "has other multiprocessors than the table of"),
        (lambda folder: manifest_with(folder, programs={WON.key: "6" * 64}), "has other programs than the table of"),
        (lambda folder: manifest_with(folder, programs={}), "has other programs than the table of"),
        (lambda folder: manifest_with(folder, files={}), "no table of"),
        (lambda folder: (folder / "manifest.json").write_text("[" * 100_000), "not a manifest"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "not a manifest"),
        (lambda folder: manifest_with(folder, files={"table.json": 5}), "lists 'table.json'"),
        (lambda folder: elsewhere(folder / "cubins"), "is a link"),
        (lambda folder: (folder / "manifest.json").unlink(), "can't be read"),
        (lambda folder: (folder / f"cubins/{DIGEST}.cubin").write_bytes(CUBIN + b"!"), "was changed"),
        (lambda folder: (folder / f"cubins/{DIGEST}.cubin").unlink(), "can't be read"),
        (lambda folder: (folder / "table.json").write_text("{}"), "was changed"),
        (lambda folder: (folder / f"cubins/{DIGEST}.cubin").write_bytes(bytes(3 << 20)), "more than 2 MiB"),
        (lambda folder: manifest_with(folder, device=None), "no table of 'None'"),
        (lambda folder: manifest_with(folder, arch=None), "not a program for None"),
        (lambda folder: table_with(folder, library=5), "library = 5"),
        (lambda folder: table_with(folder, library=[5]), r"library = \[5\]"),
        (lambda folder: table_with(folder, entries=[entry(WON) | {"build_digest": "56" * 32}]), "lacks the program 5"),
        (lambda folder: elsewhere(folder / "manifest.json"), "is a link"),
        (lambda folder: piped(folder / "manifest.json"), "is a pipe"),
        (lambda folder: piped(folder / "table.json"), "is a pipe"),
        (lambda folder: piped(folder / f"cubins/{DIGEST}.cubin"), "is a pipe"),
    ],
)  # fmt: skip
def test_a_bundle_that_is_not_what_it_says_is_refused_whole(bundle: Path, change: Any, said: str) -> None:  # noqa: ANN401
    change(bundle)
    with pytest.raises(TableError, match=said):
        read_bundle(bundle)


def test_a_table_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "table.json")
    with pytest.raises(TableError, match="a pipe or a device"):
        read_table(tmp_path / "table.json")


def test_a_table_that_can_not_be_seen_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="can't be read"):
        exact(tmp_path / ("a" * 300))


def test_a_bundle_whose_files_can_not_be_seen_is_one_sentence(tmp_path: Path) -> None:
    # The folder's path is as long as one may be; the same happens in a folder of somebody else's.
    folder = tmp_path
    while (room := 4090 - len(str(folder))) > 1:
        folder /= "a" * min(200, room - 1)
    folder.mkdir(parents=True)
    with pytest.raises(TableError, match=r"manifest\.json can't be read \(File name too long\)"):
        exact(folder)


def test_a_program_that_is_a_link_is_refused(bundle: Path) -> None:
    program = bundle / "cubins" / f"{DIGEST}.cubin"
    (bundle.parent / "elsewhere").write_bytes(CUBIN)
    program.unlink()
    program.symlink_to(bundle.parent / "elsewhere")
    with pytest.raises(TableError, match="is a link"):
        read_bundle(bundle)
