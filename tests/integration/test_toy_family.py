"""The family plug: a family that only `tests/toy_family` knows goes the whole way of the data, from rules to export."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from gemmtune.command import main
from space.arch import ARCHS
from space.devices import profile_named
from space.enumerate import enumerate_space
from space.errors import FamilyError
from space.explain import explain
from space.family import config_named, families_for
from space.kinds.gemm import Gemm
from space.rank import rank
from space.registry import registered_modules
from tests import toy_family
from tests.support import FACTS, PROVENANCE, measured
from tests.toy_family import TOY
from tuner.evidence.store import Store
from tuner.studying.study import Budget, tune
from workers.build import Build, compile_source
from workers.builder import source_of
from workers.cuda.families import prepared_launcher_of
from workers.kernels.source import source_of_family
from workers.recorded import RecordedWorker
from workers.recording import file_name, read_recording, write_recording

PROBLEM = Gemm.parse("250x130x100")
H200, B200 = profile_named("NVIDIA H200"), profile_named("NVIDIA B200")

Cli = Callable[..., str]


@pytest.fixture(autouse=True)
def joined() -> Iterator[None]:
    toy_family.join()
    yield
    toy_family.leave()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds of all tests here: the same 57 programs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of every config of the family, faster the later, and of nothing else."""
    configs = rank(enumerate_space(TOY, PROBLEM, H200), H200).configs()
    rows = [(measured(config, 50.0 - place / 10, PROBLEM), PROVENANCE) for place, config in enumerate(configs)]
    rows += [(measured(config, 50.0 - place / 10, PROBLEM, "final", samples=11), PROVENANCE)
             for place, config in enumerate(configs)]  # fmt: skip
    write_recording(tmp_path / "recorded" / "toy" / file_name(PROBLEM), PROBLEM, FACTS, rows)
    return tmp_path


@pytest.fixture
def cli(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line, in this process."""
    monkeypatch.setenv("GEMMTUNE_DB", str(folder / "store.db"))
    monkeypatch.setenv("GEMMTUNE_CACHE_DIR", str(cache))
    monkeypatch.setenv("GEMMTUNE_RECORDED_DIR", str(folder / "recorded"))

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gemmtune", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        return said.out

    return run


def test_rules_cut_its_space_and_explain_one_config() -> None:
    space = enumerate_space(TOY, PROBLEM, B200)
    assert space.total == 4 * 4 * 4
    assert space.count == 57
    assert space.removed == {"toy.threads": 4, "toy.smem": 3}
    said = explain(TOY, PROBLEM, TOY.config({"tile_m": 16, "tile_n": 16}), B200)
    assert [broken.rule for broken in said.broken] == ["toy.threads"]
    assert (said.broken[0].numbers, said.change) == ("16 threads", "tile_m=32")
    assert not TOY.takes(Gemm.parse("64x64x64", "int8"))


def test_an_arch_without_another_family_is_served_by_it() -> None:
    assert families_for("sm_100a", PROBLEM) == (TOY,)
    assert TOY in families_for("sm_90a", PROBLEM)
    ranked = rank(enumerate_space(TOY, PROBLEM, B200), B200)
    assert len(ranked) == 57
    assert ranked.estimates_us[0] < ranked.estimates_us[-1]
    assert registered_modules() == ("tests.toy_family.plugin",)


def test_its_configs_compile_without_spills(cache: Path) -> None:
    problem = Gemm.parse("250x130x100")
    # A third of them has every value of every knob.
    configs = list(TOY.configs_of(enumerate_space(TOY, problem, H200).columns))[::3]
    for name, values in ((knob.name, set(knob.domain)) for knob in TOY.knobs):
        assert {config.knobs[name] for config in configs} == values
    for config in configs:
        made = compile_source(source_of(problem, config, "sm_90a"), "sm_90a", cache)
        assert isinstance(made, Build), f"{config.key}: {made.reason}"


def test_questions_that_name_no_device_get_the_default_one_where_it_is_a_target() -> None:
    assert TOY.reference is H200


@pytest.mark.parametrize(("arch", "epilogue"), [("sm_80", "none"), ("sm_90a", "alpha+beta+bias+gelu")])
def test_its_kernel_compiles_wherever_it_says(arch: str, epilogue: str) -> None:
    assert arch in ARCHS
    problem = Gemm.of(250, 130, 100, "fp16", epilogue=epilogue)
    built = compile_source(source_of_family(TOY).render(TOY.compile_constants(problem, TOY.config({}))), arch, None)
    assert isinstance(built, Build), built
    assert 0 < built.registers <= 255
    assert b"toy_simt" in built.cubin
    assert prepared_launcher_of(TOY).__module__ == TOY.launcher


def test_it_is_recorded_and_replayed(folder: Path, cache: Path) -> None:
    store = Store.open(f"sqlite:///{folder}/store.db")
    with RecordedWorker(folder / "recorded" / "toy", cache) as worker, store:
        report = tune(store, worker, PROBLEM, Budget(candidates=57))
    assert report.best.config.family == TOY.name
    recording = read_recording(folder / "recorded" / "toy" / file_name(PROBLEM))
    assert {measurement.config.family for measurement, _ in recording.measurements} == {TOY.name}


def test_the_command_line_tunes_answers_explains_and_exports_it(cli: Cli, folder: Path) -> None:
    shape = PROBLEM.shape
    assert "best config for bf16 nt 250x130x100" in cli("tune", shape, "--device", "recorded:toy")
    best = json.loads(cli("best", shape, "--json"))
    assert (best["source"], best["config"]["family"]) == ("stale", TOY.name)
    predicted = json.loads(cli("best", "512x512x512", "--device", "NVIDIA B200", "--json"))
    assert (predicted["source"], predicted["config"]["family"]) == ("predicted", TOY.name)
    assert "toy_simt on sm_100a" in cli("space", shape, "--arch", "sm_100a")
    assert cli("explain", shape, "--config", "tile_k=32", "--family", TOY.name).startswith("legal")
    cli("export", "--all", "--out", str(folder / "table.json"))
    table = json.loads((folder / "table.json").read_text())
    assert [entry["config"] for entry in table["entries"]] == [best["config"]]


def test_the_service_answers_with_it(cli: Cli, folder: Path) -> None:
    cli("tune", PROBLEM.shape, "--device", "recorded:toy")
    with Store.open(f"sqlite:///{folder}/store.db") as store, TestClient(create_app(store)) as http:
        asked = {"m": 250, "n": 130, "k": 100, "device": "NVIDIA H200"}
        measured_best = http.get("/v1/best", params=asked).json()
        assert (measured_best["source"], measured_best["config"]["family"]) == ("stale", TOY.name)
        on_b200 = http.get("/v1/best", params=asked | {"device": B200.name}).json()
        assert (on_b200["source"], on_b200["config"]["family"]) == ("predicted", TOY.name)
        body = {"problem": {"m": 250, "n": 130, "k": 100}, "knobs": {"tile_k": 32}, "family": TOY.name}
        assert http.post("/v1/explain", json=body).json()["legal"]


def test_a_child_process_that_imports_what_was_registered_knows_it() -> None:
    (module,) = registered_modules()
    code = f"import {module}; from space.family import family_named; print(family_named({TOY.name!r}).kernel)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "tests.toy_family.kernel"


def test_taken_out_nothing_of_it_is_left() -> None:
    key = TOY.config({}).key
    assert config_named(key) == TOY.config({})
    toy_family.leave()
    assert TOY not in families_for("sm_90a")
    with pytest.raises(FamilyError, match="toy_simt"):
        config_named(key)
