"""Every way to ask names the config that is served, with the same time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.recorded_store import NAMES, fill
from tests.shell import Shell
from tests.support import DEVICE
from tuner.evidence.picks import LIBRARY
from tuner.evidence.store import Store

Said = dict[str, str]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Studies with finals of six problems, some of which cuBLASLt's own candidates won."""
    home = tmp_path_factory.mktemp("everywhere")
    with Store.open(f"sqlite:///{home}/store.db") as store:
        fill(store, two_devices=False)
    return Shell(home, {"GEMMTUNE_DB": str(home / "store.db")})


@pytest.fixture(scope="module")
def http(shell: Shell) -> Iterator[TestClient]:
    with Store.open(f"sqlite:///{shell.home}/store.db") as store, TestClient(create_app(store)) as client:
        yield client


@pytest.fixture(scope="module")
def served(shell: Shell) -> Said:
    """The config that the store serves for each problem."""
    with Store.open(f"sqlite:///{shell.home}/store.db") as store:
        return {best.problem.key: best.config.key for best in store.bests(DEVICE)}


def key_of(config: dict[str, Any]) -> str:
    return str(config["key"])


def configs_in(columnar: dict[str, Any]) -> list[str]:
    """The config of each row of a columnar answer."""
    configs = columnar["configs"]
    family, knobs = configs["family"], configs["knobs"]
    return [
        family_named(at(family, place)).config(
            {name: value for name, column in knobs.items() if (value := at(column, place)) is not None}
        ).key
        for place in columnar["columns"]["config"]
    ]  # fmt: skip


def at(column: Any, place: int) -> Any:  # noqa: ANN401  (a column of JSON values, plain or coded)
    return column["values"][column["at"][place]] if isinstance(column, dict) else column[place]


def fields_of(key: str) -> dict[str, Any]:
    problem = Gemm.from_key(key)
    m, n, k = problem.extents
    return {"m": m, "n": n, "k": k, "dtype": problem.dtype, "layout": problem.layout}


def flags_of(key: str) -> tuple[str, ...]:
    fields = fields_of(key)
    return "{m}x{n}x{k}".format(**fields), "--dtype", fields["dtype"], "--layout", fields["layout"]


def test_there_are_wins_of_both(served: Said) -> None:
    assert len(served) == len(NAMES)
    assert 0 < sum(config.startswith(f"{LIBRARY}:") for config in served.values()) < len(served)


def test_best_says_it(shell: Shell, served: Said) -> None:
    assert {key: key_of(shell("best", *flags_of(key), "--json").json["config"]) for key in served} == served


def test_why_says_it(shell: Shell, served: Said) -> None:
    said = {key: shell("why", *flags_of(key), "--json").json for key in served}
    assert {key: key_of(one["winner"]) for key, one in said.items()} == served
    times = {key: shell("best", *flags_of(key), "--json").json["time_us"] for key in served}
    assert {key: one["served_us"] for key, one in said.items()} == times


def test_a_campaigns_results_say_it(shell: Shell, served: Said) -> None:
    problems = shell("campaign", "results", "1", "--json").json["problems"]
    said = {entry["problem"]["key"]: entry["config_key"] for entry in problems if entry["status"] == "done"}
    assert said
    assert said.items() <= served.items()


def test_an_export_says_it(shell: Shell, served: Said) -> None:
    path = shell.home / "table.json"
    assert shell("export", "--all", "--out", str(path)).code == 0
    entries = json.loads(path.read_text())["entries"]
    assert {entry["problem"]["key"]: key_of(entry["config"]) for entry in entries} == served


def test_the_service_says_it_on_every_route_that_the_pages_read(http: TestClient, served: Said) -> None:
    table = http.get("/v1/bests:columns", params={"device": DEVICE}).json()
    assert dict(zip(table["columns"]["key"], configs_in(table), strict=True)) == served
    studies = dict(zip(table["columns"]["key"], table["columns"]["study_id"], strict=True))
    for key, config in served.items():
        asked = fields_of(key) | {"device": DEVICE}
        assert key_of(http.get("/v1/best", params=asked).json()["config"]) == config
        assert key_of(http.get("/v1/importance", params=asked).json()["winner"]) == config
        finals = http.get(f"/v1/studies/{studies[key]}").json()["finals"]
        assert [key_of(one["config"]) for one in finals if one["served"]] == [config]
