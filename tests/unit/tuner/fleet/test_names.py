"""Names of campaigns and workers: one rule, whoever checks them."""

from __future__ import annotations

import pytest

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from tests.support import FACTS
from tuner.errors import FleetError
from tuner.fleet.campaigns.records import CampaignRequest
from tuner.fleet.campaigns.workers import check_facts


@pytest.mark.parametrize("name", ["", "  ", "a\tb", "\u202egpj", "\udc80", "x" * 201], ids=ascii)
def test_what_names_no_campaign_names_no_worker(name: str) -> None:
    with pytest.raises(ProblemError, match=r"^name .* is invalid: give up to 200 printable characters$"):
        CampaignRequest(name, (Gemm.parse("64x64x64"),), (("NVIDIA H200", "cuda"),))
    with pytest.raises(FleetError, match=r"^worker name .* is invalid: give up to 100 printable characters$"):
        check_facts(name, FACTS)


@pytest.mark.parametrize("name", ["a", "nächtlich · 3", "x" * 100])
def test_what_names_one_names_the_other(name: str) -> None:
    assert CampaignRequest(name, (Gemm.parse("64x64x64"),), (("NVIDIA H200", "cuda"),)).name == name
    check_facts(name, FACTS)
