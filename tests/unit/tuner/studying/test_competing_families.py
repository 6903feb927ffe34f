"""Candidates of several families in one study: ranked together, kept apart, and never mixed up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from space.devices import profile_named
from space.family import families_for, family_named
from space.kinds.gemm import Gemm
from tests.support import FACTS, measured
from tuner.answering.answers import Answer, answer
from tuner.evidence.records import Best
from tuner.prediction.correction import Correction
from tuner.prediction.expectation import expected_of
from tuner.prediction.trials import distributions_of, params_of
from tuner.studying.candidates import candidates_for, spread
from tuner.studying.records import Budget, Trial, names_of
from tuner.studying.screening import Search
from workers.measurement import DeviceFacts, Outcome, Policy

H200 = profile_named("NVIDIA H200")

PROBLEM = Gemm.parse("2x4096x4096")
WGMMA, GEMV = family_named("sm90_wgmma"), family_named("gemv")


@dataclass
class Device:
    """A worker as far as candidates need one."""

    keys: frozenset[str] | None = None

    @property
    def facts(self) -> DeviceFacts:
        return FACTS

    def measurable(self, problem: Gemm) -> frozenset[str] | None:
        return self.keys


def test_candidates_are_of_every_family_that_takes_the_problem() -> None:
    def families(shape: str) -> set[str]:
        return {config.family for config in candidates_for(Gemm.parse(shape), Device())}  # type: ignore[arg-type]

    assert families("2x4096x4096") == {"sm90_wgmma", "gemv"}
    assert families("64x4096x4096") == {"sm90_wgmma"}


def test_a_recording_of_one_family_is_replayed_as_before() -> None:
    wgmma = [config for config in candidates_for(PROBLEM, Device()) if config.family == "sm90_wgmma"][:20]  # type: ignore[arg-type]
    device = Device(frozenset(config.key for config in wgmma))
    assert set(candidates_for(PROBLEM, device)) == set(wgmma)  # type: ignore[arg-type]


def test_both_families_are_proposed_and_the_faster_one_is_gone_after() -> None:
    candidates = spread(candidates_for(PROBLEM, Device()), 400)  # type: ignore[arg-type]
    search = Search(PROBLEM, H200.name, candidates, Budget(candidates=80))
    while batch := search.propose():
        for config in batch:
            us = (6.0 if config.family == "gemv" else 9.0) + len(config.key) % 7 / 10
            search.tell(measured(config, us, PROBLEM))
    tried = [entry.config for entry in search.tried]
    assert len(set(tried)) == 80
    by_family = {name: sum(config.family == name for config in tried) for name in ("sm90_wgmma", "gemv")}
    assert by_family["sm90_wgmma"] >= 1  # the answer before anything is measured
    assert by_family["gemv"] > by_family["sm90_wgmma"]
    assert {config.family for config in search.finalists()} == {"gemv"}


def test_trials_name_their_knobs_by_family() -> None:
    for config in (WGMMA.config({"tile_n": 64, "split_k": 3}), GEMV.config({"split_k": 16, "lanes": 8})):
        params, known = params_of(config), distributions_of(family_named(config.family))
        assert params.keys() == known.keys()
        assert all(known[name]._contains(known[name].to_internal_repr(value)) for name, value in params.items())
        assert params[f"{config.family}.split_k"] == config["split_k"]


def test_what_is_known_of_one_family_says_nothing_of_the_others_candidates() -> None:
    candidates = [WGMMA.config({"tile_n": n}) for n in (64, 96, 128)]
    candidates += [GEMV.config({"rows": 2, "lanes": n}) for n in (8, 16)]
    joint = expected_of(PROBLEM, candidates, H200.name)
    alone = expected_of(PROBLEM, candidates[:3], H200.name)
    assert (alone.log_us == joint.log_us[:3]).all()
    residuals = np.array([0.0, 0.1, 0.2])
    correction = Correction(joint.features[:3], residuals, joint.doubt)
    assert correction.mean(joint.features[3:]) == pytest.approx(correction.offset)


def test_what_was_tried_of_a_family_without_candidates_is_passed_over() -> None:
    tried = [Trial(GEMV.config({"rows": 2}), Outcome.CORRECT, 5.0)]
    search = Search(PROBLEM, H200.name, [WGMMA.config({"tile_n": n}) for n in (64, 128)], Budget(), tried)
    assert [config.family for config in search.propose()] == ["sm90_wgmma"] * 2
    assert search.finalists() == [tried[0].config, tried[0].config.changed({"pdl": 1})]


def test_a_study_names_the_families_that_compete() -> None:
    assert names_of(families_for("sm_90a", PROBLEM)) == "sm90_wgmma+gemv"
    assert names_of(families_for("sm_90a", Gemm.parse("64x64x64"))) == "sm90_wgmma"


class Nothing:
    """A store in which nothing was measured."""

    def best(self, problem: Gemm, device: str, policy: Policy | None = None) -> Best | None:
        return None

    def neighbours(self, problem: Gemm, device: str, policy: Policy | None = None) -> list[Best]:
        return []

    def wrong(self, problem: Gemm, device: str) -> frozenset[str]:
        return frozenset()


@pytest.mark.parametrize("device", [H200.name, "NVIDIA H100 80GB HBM3"])
def test_no_answer_hides_that_its_rates_were_never_measured(device: str) -> None:
    found: Answer = answer(Nothing(), Gemm.parse("1x4096x4096"), device)
    assert found.source == "predicted"
    assert found.config is not None
    assert found.config.family == "sm90_wgmma"
    if device != H200.name:
        assert found.interval_us is None
        assert "none was measured" in found.grounds[0]
