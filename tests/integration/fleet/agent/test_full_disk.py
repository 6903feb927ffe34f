"""A machine whose disk is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from space.config import Config
from space.kinds.gemm import Gemm
from tests.fleet import CALM, PROBLEMS, FakeDevice, Fleet, eventually
from tests.integration.fleet.agent.test_agent import SMALL, Running, ended
from tuner.evidence.store import Store
from tuner.fleet.agent.coordinator import LocalCoordinator
from tuner.fleet.campaigns import results
from tuner.fleet.campaigns.sweep import Maintenance
from workers.errors import CacheError
from workers.measurement import Measurement
from workers.ports import More, Round, no_more


class WithoutSpace(FakeDevice):
    """A device on a machine whose disk is full after three builds."""

    def begin(self, problem: Gemm) -> Round:
        round_ = super().begin(problem)
        screen = round_.screen

        def until_full(candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
            yield from islice(screen(candidates, more), 3)
            raise CacheError("build cache /cache can't be used (No space left on device): free space")

        round_.screen = until_full  # type: ignore[method-assign]
        return round_


def test_a_cache_that_is_full_ends_its_agent_and_is_no_problems_fault(database_url: str) -> None:
    with Store.open(database_url) as store, Maintenance(store, CALM):
        campaign = Fleet(store).campaign(PROBLEMS[:1], budget=SMALL)
        with Running(LocalCoordinator(store, CALM), WithoutSpace) as running:
            eventually(lambda: not running.alive or ended(store, campaign.id))
        assert isinstance(running.error, CacheError)
        problem = results.problems(store, campaign.id)[0]
        assert (problem.status.value, problem.attempts, problem.tried) == ("waiting", 0, 3)
        assert {worker.gone_because for worker in Fleet(store).workers.page(gone=True)} == {"left"}
