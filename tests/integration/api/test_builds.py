"""Shared builds: the service keeps only consistent ones, and workers use only intact ones."""

from __future__ import annotations

import base64
import hashlib
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, text, update
from sqlalchemy.orm import undefer

from api import bodies
from api.access import AccessPolicy
from api.app import create_app
from space.config import Config
from space.kinds.gemm import Gemm
from tests.integration.api.asking import problem_of, serving
from tests.support import FAMILY
from tuner.cubins import release_of
from tuner.errors import BuildRefused, Unreachable
from tuner.evidence import tokens
from tuner.evidence.campaign_models import BuildRow
from tuner.evidence.store import Store
from tuner.fleet import builds
from tuner.fleet.agent.build_cache import HttpBuildCache
from tuner.fleet.service_client import ServiceClient
from workers.build import Build, compile_source, digest_of
from workers.builder import Builder, source_of

PROBLEM = Gemm.parse("4096x4096x4096")
CONFIG = FAMILY.config({})
ARCH = "sm_90a"


@pytest.fixture(scope="module")
def made() -> Build:
    build = compile_source(source_of(PROBLEM, CONFIG, ARCH), ARCH, None)
    assert isinstance(build, Build)
    return build


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


@pytest.fixture
def http(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    # Each refused build would make the next one wait for a second.
    monkeypatch.setattr(bodies, "_BARRED_SECONDS", 0.0)
    _, secret = tokens.make(store, "node-7", ["work", "read"])
    app = create_app(store, AccessPolicy(tokens=True))
    headers = {"Authorization": f"Bearer {secret}"}
    with TestClient(app, headers=headers, raise_server_exceptions=False) as client:
        yield client


def offer(build: Build, **change: object) -> dict[str, Any]:
    return {
        "digest": build.digest, "problem": PROBLEM.key, "config": CONFIG.key, "arch": ARCH,
        "nvrtc": build.nvrtc, "registers": build.registers, "warnings": list(build.warnings), "seconds": build.seconds,
        "cubin": base64.b64encode(build.cubin).decode(),
    } | change  # fmt: skip


def test_a_build_is_kept_once_and_given_to_workers(http: TestClient, made: Build) -> None:
    first = http.post("/v1/builds", json=offer(made))
    again = http.post("/v1/builds", json=offer(made))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json() == http.get(f"/v1/builds/{made.digest}").json()
    assert first.json()["offered_by"] == "node-7"
    found = http.get(f"/v1/builds/{made.digest}/cubin").json()
    assert base64.b64decode(found["cubin"]) == made.cubin
    assert [item["digest"] for item in http.get("/v1/builds", params={"arch": ARCH}).json()["items"]] == [
        made.digest
    ]
    assert http.get("/v1/builds", params={"arch": "sm_80"}).json()["items"] == []


def forged(cubin: bytes, at: int, value: bytes) -> str:
    return base64.b64encode(cubin[:at] + value + cubin[at + len(value) :]).decode()


def test_what_is_not_what_it_says_is_refused_and_nothing_stored(http: TestClient, store: Store, made: Build) -> None:
    other = FAMILY.config({"tile_n": 64})
    refused = [
        {"digest": "0" * 64},
        {"config": other.key},
        {"config": "sm70_wmma:tile_m=1"},
        {"config": FAMILY.config({"tile_n": 256, "stages": 16}).key},
        {"arch": "sm_80"},
        {"nvrtc": "1.0"},
        {"cubin": base64.b64encode(b"\x7fELF" + b"\0" * 100).decode()},
        {"cubin": base64.b64encode(b"short").decode()},
        {"cubin": forged(made.cubin, 18, struct.pack("<H", 62))},  # a program for x86
        {"cubin": forged(made.cubin, 49, b"\x50")},  # for sm_80
    ]
    for change in refused:
        problem_of(http.post("/v1/builds", json=offer(made, **change)), 422, "build-refused")
    malformed = [
        {"digest": "A" * 64}, {"registers": 0}, {"registers": "9"}, {"seconds": -1}, {"cubin": "no base64!"},
        {"warnings": ["x" * 501]}, {"source": "int main() {}"}, {"nvrtc": "13"},
    ]  # fmt: skip
    for change in malformed:
        problem_of(http.post("/v1/builds", json=offer(made, **change)), 422, "malformed-request")
    assert builds.page(store, 0, 10) == []


def test_other_bytes_for_the_same_source_are_a_conflict(http: TestClient, made: Build) -> None:
    http.post("/v1/builds", json=offer(made))
    middle = len(made.cubin) // 2
    changed = forged(made.cubin, middle, bytes([made.cubin[middle] ^ 1]))
    problem = problem_of(http.post("/v1/builds", json=offer(made, cubin=changed)), 409, "build-differs")
    assert "damaged or forged" in problem["detail"]


def of_another_release(made: Build) -> Build:
    """The build as an NVRTC of the same version and another release would make it."""
    before = release_of(made.cubin)
    assert before.startswith(f"{made.nvrtc}.")
    other = f"{before[:-1]}{(int(before[-1]) + 1) % 10}"
    return replace(made, cubin=made.cubin.replace(f"V{before}".encode(), f"V{other}".encode()))


def test_bytes_of_another_release_of_nvrtc_are_not_called_forged(http: TestClient, store: Store, made: Build) -> None:
    other = of_another_release(made)
    assert http.post("/v1/builds", json=offer(other)).status_code == 201
    detail = problem_of(http.post("/v1/builds", json=offer(made)), 409, "build-differs")["detail"]
    said = f"NVRTC {release_of(other.cubin)} wrote the stored one and {release_of(made.cubin)} the other"
    assert said in detail
    assert "forged" not in detail
    [(_, why)] = builds.verify(store, 10, 0)
    assert said in why


def test_unknown_builds_and_other_scopes(store: Store, http: TestClient, made: Build) -> None:
    problem_of(http.get(f"/v1/builds/{made.digest}"), 404, "unknown-build")
    problem_of(http.get(f"/v1/builds/{made.digest}/cubin"), 404, "unknown-build")
    _, secret = tokens.make(store, "reader", ["read"])
    app: Any = http.app
    app.state.follower.poll()
    headers = {"Authorization": f"Bearer {secret}"}
    problem_of(http.post("/v1/builds", json=offer(made), headers=headers), 403, "scope-needed")
    problem_of(http.get(f"/v1/builds/{made.digest}/cubin", headers=headers), 403, "scope-needed")


def forge(store: Store, made: Build) -> None:
    """Changes the stored bytes, as only the owner of the tables can."""
    with store.transaction(writes=True) as session:
        session.execute(text(f"DROP TRIGGER build_fixed{'' if store.embedded else ' ON build'}"))
        session.execute(update(BuildRow).values(cubin=made.cubin[:-1] + b"\x01"))


def test_verify_finds_what_was_forged_before_anybody_else_offered_it(store: Store, made: Build) -> None:
    builds.offer(store, builds.Offer(PROBLEM, CONFIG.key, ARCH, made), "node-7")
    assert [why for _, why in builds.verify(store, 10, 0)] == [""]
    forge(store, made)
    assert [why for _, why in builds.verify(store, 10, 0)] == ["its bytes differ from what its source compiles to"]


@pytest.mark.parametrize(
    "changed", [{"config_key": "wgmma/knob=1"}, {"config_key": f"{CONFIG.key},later=1"}, {"problem_key": "conv2d/8x8"}]
)
def test_verify_goes_on_after_a_build_of_another_version(
    store: Store, made: Build, changed: dict[str, str]
) -> None:
    builds.offer(store, builds.Offer(PROBLEM, CONFIG.key, ARCH, made), "node-7")
    with store.transaction(writes=True) as session:
        row = session.scalars(select(BuildRow).options(undefer(BuildRow.cubin))).one()
        values = {column.key: getattr(row, column.key) for column in BuildRow.__table__.columns}
        session.add(BuildRow(**values | {"id": row.id + 1, "digest": "0" * 64} | changed))
    found = {build.digest: why for build, why in builds.verify(store, 10, 0)}
    assert found[made.digest] == ""
    assert "this version can't compile it" in found["0" * 64]


class Failing:
    """A service that is out of reach, and counts who asks it."""

    def __init__(self) -> None:
        self.asked = list[str]()

    def call(self, method: str, *_: object, **__: object) -> object:
        self.asked.append(method)
        raise Unreachable("no answer")


class TestBuildCache:
    def test_one_worker_compiles_and_the_other_takes(self, store: Store, tmp_path: Path) -> None:
        _, secret = tokens.make(store, "nodes", ["work"])
        with serving(create_app(store, AccessPolicy(tokens=True))) as url, ServiceClient(url, secret) as service:
            first, second = HttpBuildCache(service, ARCH), HttpBuildCache(service, ARCH)
            one = self.built(Builder(tmp_path / "one", 1, first))
            first.close()
            two = self.built(Builder(tmp_path / "two", 1, second))
            second.close()
        assert (first.fetched, first.offered, second.fetched, second.offered) == (0, 1, 1, 0)
        assert (one.cubin, one.digest, two.seconds) == (two.cubin, two.digest, 0.0)

    def test_a_service_that_is_away_costs_nothing_but_the_compiling(self, tmp_path: Path) -> None:
        with ServiceClient("http://127.0.0.1:9") as service:
            build_cache = HttpBuildCache(service, ARCH)
            assert self.built(Builder(tmp_path, 1, build_cache)).seconds > 0
            build_cache.close()

    def test_bytes_that_were_changed_in_the_store_are_not_used(
        self, store: Store, made: Build, tmp_path: Path
    ) -> None:
        builds.offer(store, builds.Offer(PROBLEM, CONFIG.key, ARCH, made), "node-7")
        forge(store, made)
        with serving(create_app(store)) as url, ServiceClient(url) as service:
            build_cache = HttpBuildCache(service, ARCH)
            assert self.built(Builder(tmp_path, 1, build_cache)).cubin == made.cubin
            build_cache.close()
        assert build_cache.fetched == 0

    @pytest.mark.parametrize("change", [{"digest": "0" * 64}, {"arch": "sm_80"}, {"cubin_sha256": "0" * 64}])
    def test_another_build_than_was_asked_for_is_rejected(self, made: Build, change: dict[str, str]) -> None:
        sha256 = hashlib.sha256(made.cubin).hexdigest()
        about: dict[str, Any] = {"digest": made.digest, "arch": ARCH, "cubin_sha256": sha256, "registers": 9}
        about |= {"warnings": [], "nvrtc": "13.5"}
        build_cache = HttpBuildCache(cast("ServiceClient", Failing()), ARCH)
        cubin = base64.b64encode(made.cubin).decode()
        assert build_cache._checked(made.digest, ARCH, {"cubin": cubin, "build": about}).cubin == made.cubin
        with pytest.raises(BuildRefused):
            build_cache._checked(made.digest, ARCH, {"cubin": cubin, "build": about | change})
        build_cache.close()

    def test_a_service_that_fails_is_left_alone_for_a_while(self, made: Build) -> None:
        service = Failing()
        build_cache = HttpBuildCache(cast("ServiceClient", service))
        assert build_cache.fetch(made.digest) is None
        assert service.asked == []  # no arch is known yet
        build_cache.arch = ARCH
        for _ in range(3):
            assert build_cache.fetch(made.digest) is None
            build_cache.offer(PROBLEM, CONFIG, ARCH, made)
        while not build_cache._waiting.empty():
            time.sleep(0.01)
        build_cache.close()
        assert service.asked == ["GET"]

    def test_offers_that_nobody_takes_are_dropped(self, made: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(HttpBuildCache, "_run", lambda self: None)
        build_cache = HttpBuildCache(cast("ServiceClient", Failing()), ARCH)
        for _ in range(300):
            build_cache.offer(PROBLEM, CONFIG, ARCH, replace(made, cubin=b""))
        assert build_cache._waiting.qsize() == 256

    def test_a_removed_build_stays_in_the_caches_of_those_that_fetched_it(
        self, store: Store, made: Build, tmp_path: Path
    ) -> None:
        forged = replace(made, cubin=made.cubin + b"forged")
        builds.offer(store, builds.Offer(PROBLEM, CONFIG.key, ARCH, forged), "node-7")
        with serving(create_app(store)) as url, ServiceClient(url) as service:
            build_cache = HttpBuildCache(service, ARCH)
            assert self.built(Builder(tmp_path, 1, build_cache)).cubin == forged.cubin
            build_cache.close()
        assert builds.remove(store, made.digest)
        assert self.built(Builder(tmp_path, 1)).cubin == forged.cubin
        rmtree(tmp_path / "builds")
        assert self.built(Builder(tmp_path, 1)).cubin == made.cubin

    @staticmethod
    def built(builder: Builder, config: Config = CONFIG) -> Build:
        ((_, build),) = builder.builds(PROBLEM, [config])
        builder.close()
        assert isinstance(build, Build)
        return build


def test_digests_depend_on_source_arch_and_compiler() -> None:
    digests = {digest_of(*parts) for parts in (("a", "sm_80", "13.5"), ("b", "sm_80", "13.5"), ("a", "sm_90a", "13.5"),
                                               ("a", "sm_80", "13.6"))}  # fmt: skip
    assert len(digests) == 4


def test_a_token_has_a_quota_and_an_admin_removes_a_build(
    store: Store, made: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, work = tokens.make(store, "node-8", ["work"])
    _, admin = tokens.make(store, "chief", ["admin"])
    path = f"/v1/builds/{made.digest}"
    with TestClient(create_app(store, AccessPolicy(tokens=True))) as client:
        mine, theirs = ({"Authorization": f"Bearer {secret}"} for secret in (work, admin))
        monkeypatch.setattr(builds, "MOST_OF_A_TOKEN", 0)
        assert "the limit" in problem_of(client.post("/v1/builds", json=offer(made), headers=mine), 422,
                                         "build-refused")["detail"]  # fmt: skip
        monkeypatch.setattr(builds, "MOST_OF_A_TOKEN", 1)
        assert client.post("/v1/builds", json=offer(made), headers=mine).status_code == 201
        assert client.post("/v1/builds", json=offer(made), headers=mine).status_code == 200
        problem_of(client.delete(path, headers=mine), 403, "scope-needed")
        assert client.delete(path, headers=theirs).status_code == 204
        problem_of(client.delete(path, headers=theirs), 404, "unknown-build")
