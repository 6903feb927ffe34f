"""Dockerfile and docker-compose.yml match the tree and each other, and expose only what they should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tuner.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def test_everything_that_is_copied_into_an_image_is_there_and_not_ignored() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [name for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.M) for name in line.split()[:-1]]
    assert {"api", "tuner", "workers", "space", "pyproject.toml"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name
        assert name in let_in, name


def test_services_are_built_from_stages_that_are_there() -> None:
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.M)
    assert set(OURS) == {"api", "migrate", "worker-token", "worker"}
    assert all(service["build"]["target"] in stages for service in OURS.values())


def test_without_a_profile_there_are_the_database_and_the_service_and_with_gpu_the_workers() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == {
        "postgres", "migrate", "api", "proxy",
    }  # fmt: skip
    assert {name for name, service in SERVICES.items() if service.get("profiles") == ["gpu"]} == {
        "worker-token", "worker",
    }  # fmt: skip


def test_only_the_proxy_is_published_and_only_on_loopback() -> None:
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"proxy"}
    assert SERVICES["proxy"]["ports"] == ["${GEMMTUNE_PUBLISH:-127.0.0.1:8643}:8643"]


def test_the_service_believes_the_proxy_alone() -> None:
    assert {name for name, service in SERVICES.items() if "front" in service["networks"]} == {"proxy", "api"}
    (front,) = COMPOSE["networks"]["front"]["ipam"]["config"]
    assert SERVICES["api"]["environment"]["GEMMTUNE_TRUSTED_PROXIES"] == front["subnet"]
    source, _, _ = SERVICES["proxy"]["volumes"][0].split(":")
    assert (ROOT / source).exists()


def test_workers_do_not_see_the_database() -> None:
    assert COMPOSE["networks"]["store"] == {"internal": True}
    assert SERVICES["worker"]["networks"] == ["fleet"]
    assert "GEMMTUNE_DB" not in SERVICES["worker"]["environment"]


def test_the_database_is_healthy_only_once_others_can_reach_it() -> None:
    # `migrate` runs once: at a first start, the socket alone is answered by the server that makes the cluster.
    assert "--host=127.0.0.1" in SERVICES["postgres"]["healthcheck"]["test"]


def test_our_containers_can_do_little() -> None:
    for name, service in {**OURS, "proxy": SERVICES["proxy"]}.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    assert DOCKERFILE.count("USER gemmtune") == 2


def test_settings_have_the_names_that_the_program_reads() -> None:
    named = {name for service in OURS.values() for name in service.get("environment", {})}
    named |= set(re.findall(r"\b(GEMMTUNE_\w+)=", DOCKERFILE))
    assert {name.removeprefix("GEMMTUNE_").lower() for name in named} <= Settings.model_fields.keys()


def test_logs_rotate_and_memory_is_limited() -> None:
    for name, service in SERVICES.items():
        assert service["logging"]["options"].keys() >= {"max-size", "max-file"}, name
        assert service["mem_limit"], name


def test_only_migrations_log_in_as_the_owner_of_the_tables() -> None:
    owner = "://gemmtune:"
    assert owner in SERVICES["migrate"]["environment"]["GEMMTUNE_MIGRATION_DB"]
    others = [service for name, service in OURS.items() if name != "migrate"]
    assert not any(owner in str(service.get("environment", {})) for service in others)
    assert SERVICES["api"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
