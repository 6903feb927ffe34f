"""gemmtune.hpp refuses a bundle that is not what was exported, and says which file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.workers.cpp.cases import CASES, needs_compiler
from tests.unit.tuner.tables.test_exporters import CUBIN

pytestmark = needs_compiler


def test_a_changed_file_refuses_the_bundle(bundle: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    plan = next(copy.glob("plans/*.plan"))
    plan.write_text(plan.read_text().replace("align a 16", "align a 1").replace("align a 2", "align a 1"))
    assert "was changed" in run(copy, CASES[0][0].key, *["0"] * 7).stderr


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "plans/../x", "cubins/x.cubin", "notes.txt"])
def test_a_file_that_no_bundle_has_refuses_it(
    name: str, bundle: Path, run: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copytree(bundle, tmp_path / "bundle")
    change_manifest(tmp_path / "bundle", {name: "0" * 64})
    assert f"manifest.json lists {name}, which no bundle has" in refused(run, tmp_path / "bundle")


def test_a_manifest_without_its_own_table_refuses_the_bundle(
    bundle: Path, run: Callable[..., Any], tmp_path: Path
) -> None:
    none, other = (Path(shutil.copytree(bundle, tmp_path / name)) for name in ("none", "other"))
    listed = json.loads((none / "manifest.json").read_text())["files"]
    change_manifest(none, {}, files={name: digest for name, digest in listed.items() if name != "table.json"})
    change_manifest(other, {}, device="NVIDIA L40S")
    fewer = Path(shutil.copytree(bundle, tmp_path / "fewer"))
    change_manifest(fewer, {}, multiprocessors=114)
    assert "of NVIDIA H200 with 114 multiprocessors, this is NVIDIA H200 with 132" in refused(run, fewer)
    assert f"{none} has no table of NVIDIA H200" in refused(run, none)
    assert f"{other} has no table of NVIDIA L40S" in refused(run, f"{other}@NVIDIA L40S")


def test_a_mig_slice_with_extras_is_the_slice(bundle: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bundle, tmp_path / "mig"))
    device = "NVIDIA H200 MIG 7g.141gb"
    content = (folder / "table.json").read_text().replace('"device":"NVIDIA H200"', f'"device":"{device}"', 1)
    (folder / "table.json").write_text(content)
    change_manifest(folder, {"table.json": hashlib.sha256(content.encode()).hexdigest()}, device=device)
    for name, taken in ((device, True), (f"{device}+me", True), ("NVIDIA H200", False), (f"{device[:-1]}+me", False)):
        done = run(f"{folder}@{name}", "gemm:none", *["0"] * 7)
        assert ("no kernel for gemm:none" in done.stderr) == taken, done.stderr
        assert (f"the bundle is of {device} with 132 multiprocessors, this is {name}" in done.stderr) != taken


@pytest.mark.parametrize("place", [5, 16, 19])
def test_bytes_that_are_no_executable_for_cuda_refuse_the_bundle(
    place: int, bundle: Path, run: Callable[..., Any], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    program = next(folder.glob("cubins/*"))
    program.write_bytes(CUBIN[:place] + b"\x03" + CUBIN[place + 1 :])
    change_manifest(folder, {f"cubins/{program.name}": hashlib.sha256(program.read_bytes()).hexdigest()})
    assert f"{program} is no program for sm_90a" in refused(run, folder)


def change_manifest(folder: Path, added: dict[str, str], **changed: Any) -> None:  # noqa: ANN401
    manifest = folder / "manifest.json"
    content = json.loads(manifest.read_text()) | changed
    content["files"] |= added
    manifest.write_text(json.dumps(content, separators=(",", ":"), sort_keys=True))


def refused(run: Callable[..., Any], folder: Path | str) -> str:
    done = run(folder, CASES[0][0].key, *["0"] * 7)
    assert done.returncode == 1
    return str(done.stderr)


def test_links_pipes_and_programs_of_another_arch_refuse_the_bundle(
    bundle: Path, run: Callable[..., Any], tmp_path: Path
) -> None:
    def copied(name: str) -> Path:
        return Path(shutil.copytree(bundle, tmp_path / name))

    folder, linked, piped, other = (copied(name) for name in ("folder", "linked", "piped", "other"))
    (folder / "plans").rename(tmp_path / "elsewhere")
    (folder / "plans").symlink_to(tmp_path / "elsewhere")
    cubin = next(linked.glob("cubins/*"))
    cubin.rename(tmp_path / "cubin")
    cubin.symlink_to(tmp_path / "cubin")
    (piped / "table.json").unlink()
    os.mkfifo(piped / "table.json")
    program = next(other.glob("cubins/*"))
    program.write_bytes(CUBIN.replace(bytes([90]), bytes([80])))
    change_manifest(other, {f"cubins/{program.name}": hashlib.sha256(program.read_bytes()).hexdigest()})
    assert "is a link" in refused(run, folder)
    assert f"{cubin} is a link" in refused(run, linked)
    assert f"{piped / 'table.json'} can't be read" in refused(run, piped)
    assert f"{program} is no program for sm_90a" in refused(run, other)
    # The folder itself may be one.
    (tmp_path / "shown").symlink_to(bundle)
    assert "no kernel for gemm:none" in run(tmp_path / "shown", "gemm:none", *["0"] * 7).stderr
