"""What a table says of another machine than the one that installs it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.exact import Exact, check_machine, differences, exact
from space.kinds.gemm import Gemm
from tests.unit.tuner.tables.test_exporters import ALGORITHM, CUBIN, DIGEST, entry, guarded, table, written
from tuner.answering.staleness import Built, proved_build
from tuner.errors import TableError
from tuner.files import export_folder
from tuner.tables.entries import best_of, canonical
from workers.cuda.machine import Machine, this_machine
from workers.kernels.sm90_wgmma import SOURCE

PROBLEM = Gemm.of(16, 4096, 4096)


def source(device: str = "NVIDIA H200", driver: str = "580.95.05", cublaslt: str = "130100") -> Exact:
    content = entry(PROBLEM)
    content["provenance"] |= {"driver": driver, "cublaslt": cublaslt}
    return Exact(device, {PROBLEM.key: best_of(device, content)})


HERE = Machine(("NVIDIA H200",), "580.159.04", "130100")


@pytest.mark.parametrize("device", ["NVIDIA H200", "NVIDIA H200 (500 W)", "NVIDIA H200 (120 SMs) (500 W)",
                                    "NVIDIA H200 MIG 3g.71gb"])  # fmt: skip
def test_a_card_of_the_same_name_and_a_driver_of_the_same_branch_differ_in_nothing(device: str) -> None:
    assert differences(source(device), HERE) == ("", "")


@pytest.mark.parametrize(("machine", "card", "programs"), [
    (Machine(("NVIDIA H100 80GB HBM3", "NVIDIA L40S"), "580.159.04", "130100"),
     "it is of 'NVIDIA H200', and this machine has NVIDIA H100 80GB HBM3, NVIDIA L40S", ""),
    (Machine(("NVIDIA H20", "NVIDIA H200 NVL"), "580.159.04", "130100"),
     "it is of 'NVIDIA H200', and this machine has NVIDIA H20, NVIDIA H200 NVL", ""),
    (Machine(("NVIDIA H200",), "590.10.01", "130100"), "",
     "it was measured with driver 580.95.05, and 590.10.01 runs here"),
    (Machine(("NVIDIA H200",), "590.10.01", "130200"), "",
     "it was measured with driver 580.95.05, and 590.10.01 runs here; with cuBLASLt 130100, and 130200 is loaded here"),
])  # fmt: skip
def test_what_differs_is_named(machine: Machine, card: str, programs: str) -> None:
    assert differences(source(), machine) == (card, programs)


@pytest.mark.parametrize("machine", [Machine(), Machine(("NVIDIA H200",)), Machine(driver="580.159.04")])
def test_what_a_machine_does_not_tell_differs_in_nothing(machine: Machine) -> None:
    assert differences(source(), machine) == ("", "")


def test_a_measurement_without_a_library_or_a_driver_differs_in_none() -> None:
    assert differences(source(cublaslt=""), HERE) == ("", "")
    assert differences(source(driver=""), HERE) == ("", "")


def test_another_name_of_a_card_is_no_other_card() -> None:
    assert differences(source(), Machine(("H200 SXM",))) == ("", "")


def test_a_stale_table_is_taken_where_asked_for_and_one_of_another_card_never() -> None:
    newer, other = Machine(("NVIDIA H200",), "590.10.01", "130100"), Machine(("NVIDIA L40S",), "580.159.04")
    said = "it was measured with driver 580.95.05, and 590.10.01 runs here"
    assert check_machine("t.json", source(), newer, True) == said
    with pytest.raises(TableError, match=f"t.json is not used: {said}; measure again"):
        check_machine("t.json", source(), newer, False)
    for stale in (False, True):
        with pytest.raises(TableError, match="this machine has NVIDIA L40S; tune here, or use its own table"):
            check_machine("t.json", source(), other, stale)


def test_a_machine_without_a_driver_tells_nothing_of_cards() -> None:
    said = this_machine()
    assert bool(said.cards) == bool(said.driver)


def test_a_table_answers_for_its_own_card_and_problems_alone() -> None:
    own = source()
    found = own.find(PROBLEM, "NVIDIA H200")
    assert (found.config, found.source) == (own.bests[PROBLEM.key].config, "measured")
    assert (found.cublaslt, found.build_digest, found.program) == ("130100", DIGEST, b"")
    for problem, device, said in (
        (PROBLEM, "NVIDIA H200 (500 W)", "the table is of 'NVIDIA H200', this is 'NVIDIA H200 (500 W)'"),
        (PROBLEM, "NVIDIA H100 80GB HBM3", "the table is of 'NVIDIA H200'"),
        (Gemm.of(17, 4096, 4096), "NVIDIA H200", "the table leaves this problem to the library"),
    ):
        found = own.find(problem, device)
        assert (found.config, found.program, found.why.startswith(said)) == (None, b"", True)


def test_a_table_of_an_earlier_text_of_the_same_machine_code_asks_for_todays_build() -> None:
    own = source()
    best = own.bests[PROBLEM.key]
    provenance = replace(best.winner.provenance, kernel_source_digest=SOURCE.alike[0])
    earlier = replace(best, winner=replace(best.winner, provenance=provenance))
    found = Exact(own.device, {PROBLEM.key: earlier}).find(PROBLEM, own.device)
    assert found.build_digest == proved_build(Built.of(earlier)) != DIGEST


def test_a_bundle_answers_with_its_program(tmp_path: Path) -> None:
    librarys = Gemm.of(8, 64, 64)
    listed = guarded(table(entry(PROBLEM), entry(librarys, family="cublaslt")))
    export_folder(tmp_path / "bundle", written("bundle", listed, program=lambda _: CUBIN))
    bundle = exact(tmp_path / "bundle")
    assert [bundle.find(each, "NVIDIA H200").program for each in (PROBLEM, librarys)] == [CUBIN, b""]


@pytest.mark.parametrize("format", ["json", "bundle"])
def test_an_export_keeps_what_rebuilds_the_librarys_algorithm(tmp_path: Path, format: str) -> None:
    listed = guarded(table(entry(PROBLEM, family="cublaslt")))
    export_folder(tmp_path / "out", written(format, listed, program=lambda _: pytest.fail("no program is ours")))
    found = exact(tmp_path / "out" if format == "bundle" else tmp_path / "out" / "t.json").find(PROBLEM, "NVIDIA H200")
    assert found.config is not None
    assert {name: found.config[name] for name in ALGORITHM} == ALGORITHM
    assert (found.config.family, found.cublaslt, found.build_digest) == ("cublaslt", "130101", "")


def test_a_bundles_program_of_another_text_than_the_launchers_is_not_launched(tmp_path: Path) -> None:
    # It would get today's arguments, and count as proved.
    librarys = Gemm.of(8, 64, 64)
    listed = [entry(PROBLEM), entry(librarys, family="cublaslt")]
    for each in listed:
        each["provenance"]["kernel_source_digest"] = "of last week"
    export_folder(tmp_path / "bundle", written("bundle", guarded(table(*listed)), program=lambda _: CUBIN))
    bundle = exact(tmp_path / "bundle")
    found = bundle.find(PROBLEM, "NVIDIA H200")
    assert (found.config, found.program) == (None, b"")
    said = r"another version of gemmtune: its kernel has changed since: build 555555555555 then, \w+ now; measure again"
    assert re.search(said, found.why)
    assert bundle.find(librarys, "NVIDIA H200").config is not None


def test_a_least_gain_leaves_out_what_does_not_surely_exceed_it(tmp_path: Path) -> None:
    other = Gemm.of(8, 64, 64)
    (tmp_path / "t.json").write_bytes(canonical(table(entry(PROBLEM, 1.05), entry(other, 1.01))))
    assert set(exact(tmp_path / "t.json").bests) == {PROBLEM.key, other.key}
    for options in ({}, {"min_gain": 1.02}):
        assert set(exact(tmp_path / "t.json", guard=True, **options).bests) == {PROBLEM.key}


@pytest.mark.parametrize("format", ["json", "bundle"])
def test_an_exports_own_margin_is_the_least_gain(tmp_path: Path, format: str) -> None:
    listed = guarded(table(entry(PROBLEM, 1.05), entry(Gemm.of(8, 64, 64), 1.01)), 1.005)
    export_folder(tmp_path / "out", written(format, listed, program=lambda _: CUBIN))
    path = tmp_path / "out" if format == "bundle" else tmp_path / "out" / "t.json"
    found = [len(exact(path, guard=True, min_gain=least).bests) for least in (None, 1.02, 1.2)]
    assert found == [2, 1, 0]
