"""`deploy/`: metrics exist, alerts parse and fire on an incident of the real service, units and manifests are valid."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from api import access
from api.app import create_app
from gemmtune.command import COMMANDS
from tests.fleet import PROBLEMS, Fleet
from tests.promql import Scrapes, samples
from tuner.evidence.store import Store
from tuner.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RULES = [rule for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
         for rule in group["rules"]]  # fmt: skip
PANELS = json.loads((DEPLOY / "grafana" / "gemmtune.json").read_text())["panels"]
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "gemmtune.yaml").read_text()))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
EXPRESSIONS = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]
#: What the scraping server adds.
OF_PROMETHEUS = {"up"}


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Scrapes:
    """A service before and after: its worker vanished in a round, a problem was parked, a route failed slowly."""
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('incident')}/store.db") as store:
        fleet = Fleet(store)
        fleet.campaign(PROBLEMS[:2])
        hand = fleet.hand()
        app = create_app(store)
        with TestClient(app, raise_server_exceptions=False) as http:
            assert http.get("/v1/best", params={"m": 64, "n": 256, "k": 256}).status_code == 200
            before = http.get("/metrics").text
            hand.report(hand.claimed(), failure="no config is legal", hopeless=True)
            hand.claimed()
            fleet.fall_silent()
            fleet.sweeper.sweep()
            metrics = app.state.metrics
            metrics.requests.count("/v1/best", "GET", 500, 0.3)
            # The follower is told to stop: nothing polls the store any more.
            metrics.snapshot_age.set_function(lambda: 60.0)
            # Fleet numbers are read from the store at most once a second.
            for collector in list(metrics.registry._collector_to_names):
                if hasattr(collector, "_cached"):
                    collector._cached = None
            after = http.get("/metrics").text
    return Scrapes(before, after + 'up{job="gemmtune"} 0\n', 60.0)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_parses_and_fires_on_the_incident_but_not_before(incident: Scrapes, rule: dict[str, Any]) -> None:
    pytest.importorskip("promql_parser")
    assert incident.value(rule["expr"]), rule["expr"]
    calm = Scrapes(incident.before, incident.before + 'up{job="gemmtune"} 1\n', 60.0)
    assert not calm.value(rule["expr"]), rule["expr"]
    assert rule["annotations"]["summary"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_names_metrics_and_labels_that_the_service_has(incident: Scrapes, expression: str) -> None:
    known: dict[str, set[str]] = {}
    for name, labels, _ in samples(incident.after):
        known.setdefault(name, set()).update(labels)
    named = re.findall(r"\b(gemmtune_\w+|up)\b(?:\{([^}]*)\})?", re.sub(r'"[^"]*"', '""', expression))
    assert named
    for name, labels in named:
        assert name in known.keys() | OF_PROMETHEUS, name
        assert set(re.findall(r"(\w+)[=!]", labels)) <= known[name], name


def test_the_operators_page_explains_every_alert() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert {rule["alert"] for rule in RULES} == set(re.findall(r"^\| `(Gemmtune\w+)` \|", page, re.MULTILINE))


def test_every_expression_of_the_dashboard_parses() -> None:
    parser = pytest.importorskip("promql_parser")
    for expression in EXPRESSIONS:
        parser.parse(expression)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_run_commands_and_settings_that_exist(path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    assert set(unit.sections()) == {"Unit", "Service", "Install"}
    service = unit["Service"]
    assert service["ExecStart"].split()[1] in {command.name for command in COMMANDS}
    named = set(re.findall(r"GEMMTUNE_(\w+)=", path.read_text()))
    assert {name.lower() for name in named - {"NAME"}} <= Settings.model_fields.keys()
    # A worker ends with 0 when it was drained, and its node is to stay so.
    assert service["Restart"] == ("on-failure" if path.stem == "gemmtune-worker" else "always")
    assert service["NoNewPrivileges"] == "yes"
    assert int(service["TimeoutStopSec"]) > 30


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_knows_every_line_of_the_units(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name
    unit.write_text(path.read_text().replace("/opt/gemmtune/bin/gemmtune", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if path.name in line] == []


def test_a_service_without_settings_keeps_what_it_writes_where_its_unit_may_write() -> None:
    # ProtectHome hides the home folder, where all three lie by default.
    unit = (DEPLOY / "systemd" / "gemmtune.service").read_text()
    kept = dict(re.findall(r"GEMMTUNE_(\w+)=(/var/(?:lib|cache)/gemmtune\S*)", unit))
    assert kept.keys() == {"DB", "CACHE_DIR", "MODEL_DIR"}
    assert all(name in unit for name in ("StateDirectory=gemmtune\n", "CacheDirectory=gemmtune\n"))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_manifests_fit_the_schema_of_kubernetes(manifest: dict[str, Any]) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(manifest, "1.31", strict=True)


def test_manifests_name_settings_commands_and_images_that_exist() -> None:
    images = set(re.findall(r"docker build --target \w+ --tag (\S+) ", (ROOT / "Dockerfile").read_text()))
    for manifest in MANIFESTS:
        pod = manifest["spec"].get("template", {}).get("spec", {})
        for container in [*pod.get("initContainers", ()), *pod.get("containers", ())]:
            assert container["image"] in images
            assert container["args"][0] in {command.name for command in COMMANDS}
            names = {entry["name"].removeprefix("GEMMTUNE_").lower() for entry in container["env"]}
            assert names <= Settings.model_fields.keys()
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["resources"]["limits"]["memory"]


def test_pods_get_no_variables_of_services_which_settings_have_too() -> None:
    # For a Service named gemmtune the cluster sets GEMMTUNE_PORT = tcp://10.0.0.1:8643, unless the pod refuses.
    services = {one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "Service"}
    clashes = {f"{name}_port" for name in services} & {f"gemmtune_{name}" for name in Settings.model_fields}
    pods = [pod for one in MANIFESTS if (pod := one["spec"].get("template", {}).get("spec"))]
    assert len(pods) == 2
    assert not clashes or [pod.get("enableServiceLinks") for pod in pods] == [False, False]


def test_probes_reach_a_service_that_names_its_hosts(tmp_path: Path) -> None:
    (service,) = [one for one in MANIFESTS if one["kind"] == "Deployment"]
    (container,) = service["spec"]["template"]["spec"]["containers"]
    policy = access.decide("auto", "0.0.0.0", False, frozenset({"tuner.example"}))
    with Store.open(f"sqlite:///{tmp_path}/store.db") as store, TestClient(create_app(store, policy)) as http:
        for name in ("readinessProbe", "livenessProbe"):
            probe = container[name]["httpGet"]
            headers = {each["name"]: each["value"] for each in probe.get("httpHeaders", ())}
            # Without a Host of its own the kubelet sends the pod's address.
            assert http.get(probe["path"], headers={"Host": "10.0.0.7:8643"} | headers).status_code == 200
