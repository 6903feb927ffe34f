"""The toy family on a real GPU: a worker's child process learns of a family from outside and runs it right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from space.devices import profile_named
from space.enumerate import enumerate_space
from space.kinds.gemm import Gemm
from tests import toy_family
from tests.gpu.verified import unverified
from tests.toy_family import TOY
from tuner.studying.open_worker import driver_present
from workers.cuda.worker import CudaWorker

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver_present(), reason="no device")]


@pytest.fixture(autouse=True)
def joined() -> Iterator[None]:
    toy_family.join()
    yield
    toy_family.leave()


def test_every_config_is_right_with_every_epilogue(tmp_path: Path) -> None:
    with CudaWorker(0, tmp_path, deadline_seconds=10.0) as worker:
        for shape, dtype, batch, epilogue in [
            ("250x130x100", "bf16", 1, "none"), ("64x257x65", "fp16", 3, "alpha+beta+bias+gelu"),
        ]:  # fmt: skip
            problem = Gemm.parse(shape, dtype, "nt", batch, epilogue)
            space = enumerate_space(TOY, problem, profile_named(worker.facts.name))
            configs = TOY.configs_of(space.columns)
            measured = list(worker.begin(problem).screen(configs))
            assert unverified(measured) == {}
            assert len(measured) == len(configs) == 57
