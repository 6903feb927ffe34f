"""A store of a few shapes, the service on it, and a store of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from space.kinds.gemm import Gemm
from tests.support import keep_best
from tuner.evidence.store import Store

SHAPES = [(256, 256, 256), (512, 256, 256), (1, 4096, 4096), (300, 1024, 640), (8192, 8192, 8192)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('snapshot')}/store.db") as opened:
        for m, n, k in SHAPES:
            keep_best(opened, Gemm(m, n, k))
        keep_best(opened, Gemm.of(64, 64, 64, "fp8_e4m3"))
        yield opened


@pytest.fixture(scope="module")
def http(store: Store) -> Iterator[TestClient]:
    with TestClient(create_app(store), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened
