"""Questions that name a policy."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gemmtune.command import app
from space.config import Config
from space.kinds.gemm import Gemm
from tests.support import DEVICE, FAMILY, PROVENANCE, measured, study_key
from tuner.answering.answers import answer
from tuner.answering.answers import measured as measured_answer
from tuner.evidence.picks import bests_of
from tuner.evidence.records import StoredMeasurement
from tuner.evidence.store import Store
from workers.measurement import Policy

PROBLEM = Gemm.parse("16x2112x7168")
PLAIN, EARLY = FAMILY.config({}), FAMILY.config({"pdl": 1})


def keep_policies(store: Store) -> None:
    """Bests under two policies, and among kernels that start early."""
    study = store.begin_study(study_key(PROBLEM))
    taken = [
        measured(PLAIN, 10.0, PROBLEM, "final", policy=Policy.CHAIN),
        measured(PLAIN, 9.0, PROBLEM, "final", policy=Policy.BURST),
        measured(EARLY, 9.5, PROBLEM, "final", policy=Policy.CHAIN_PDL),
    ]
    store.set_bests(bests_of(PROBLEM, store.record_many(study.id, taken, PROVENANCE), 3, {}))


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Store.open(url) as store:
        keep_policies(store)
    return url


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(None, (10.0, "chain")), (Policy.BURST, (9.0, "burst")), (Policy.CHAIN_PDL, (9.5, "chain_pdl"))],
)
def test_the_answer_is_of_the_policy_that_is_asked_for(
    url: str, policy: Policy | None, expected: tuple[float, str]
) -> None:
    with Store.open(url) as store:
        found = answer(store, PROBLEM, DEVICE, policy)
    assert (found.time_us, found.policy.value, found.source) == (*expected, "measured")


def test_what_was_not_measured_under_it_is_answered_with_what_was_and_named(url: str) -> None:
    with Store.open(url) as store:
        found = answer(store, PROBLEM, DEVICE, Policy.SUSTAINED)
    assert (found.time_us, found.policy) == (10.0, Policy.CHAIN)
    assert found.why.startswith("nothing was measured under sustained; measured on")


@pytest.mark.parametrize(
    ("config", "policy", "told"), [(EARLY, Policy.ROUNDS, True), (PLAIN, Policy.ROUNDS, False),
                                   (EARLY, Policy.CHAIN_PDL, False)])  # fmt: skip
def test_a_time_that_an_early_launch_gained_beside_its_own_copies_says_so(
    tmp_path: Path, config: Config, policy: Policy, told: bool
) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'old.db'}") as store, Store.open(f"sqlite:///{tmp_path / 'no.db'}") as none:
        taken = measured(config, 10.0, PROBLEM, "final", policy=policy)
        kept = store.record_many(store.begin_study(study_key(PROBLEM)).id, [taken], PROVENANCE)
        store.set_bests(bests_of(PROBLEM, kept, 1, {}))
        for found in (answer(store, PROBLEM, DEVICE), answer(none, PROBLEM, DEVICE, recordings=store)):
            assert found.config == config
            assert any("overlapped its own copies" in ground for ground in found.grounds) == told


@pytest.mark.parametrize(
    ("hint", "rotation_bytes", "told"), [("stream_a", 0, True), ("stream_b", 4 << 30, False), ("none", 0, False)]
)
def test_a_time_that_l2_flattered_says_so(tmp_path: Path, hint: str, rotation_bytes: int, told: bool) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'old.db'}") as store, Store.open(f"sqlite:///{tmp_path / 'no.db'}") as none:
        taken = measured(PLAIN.changed({"cache_hint": hint}), 10.0, PROBLEM, "final", policy=Policy.CHAIN)
        by = replace(PROVENANCE, rotation_bytes=rotation_bytes)
        kept = store.record_many(store.begin_study(study_key(PROBLEM)).id, [taken], by)
        store.set_bests(bests_of(PROBLEM, kept, 1, {}))
        for found in (answer(store, PROBLEM, DEVICE), answer(none, PROBLEM, DEVICE, recordings=store)):
            assert any("kept a part of the weights in L2" in ground for ground in found.grounds) == told


@pytest.mark.parametrize(("kind", "again"), [("cuda", "retune --stale`"), ("recorded", "tune` on the GPU")])
def test_a_flattered_time_names_the_command_that_measures_it_otherwise(kind: str, again: str) -> None:
    """No replay is stale of its rotation."""
    taken = measured(PLAIN.changed({"cache_hint": "stream_a"}), 10.0, PROBLEM, "final", policy=Policy.CHAIN)
    stored = StoredMeasurement(1, 1, DEVICE, kind, datetime.now(UTC), PROVENANCE, taken)
    (best,) = bests_of(PROBLEM, [stored], 1, {})
    assert measured_answer(best).grounds[-1].endswith(f"; `gemmtune {again} measures it so")


def test_the_command_takes_a_policy_or_neighbours(url: str) -> None:
    def said(*words: str) -> float:
        run = CliRunner().invoke(app, ["best", PROBLEM.shape, "--db", url, "--json", *words], catch_exceptions=False)
        return float(json.loads(run.stdout)["time_us"])

    assert (said(), said("--policy", "burst"), said("--neighbours", "pdl")) == (10.0, 9.0, 9.5)


def test_neighbours_are_refused_under_a_policy_that_has_none(url: str) -> None:
    words = ("best", PROBLEM.shape, "--db", url, "--neighbours", "pdl", "--policy")
    refused, chained = (CliRunner().invoke(app, [*words, policy]) for policy in ("burst", "chain"))
    assert "policy burst and neighbours pdl contradict each other" in str(refused.exception)
    assert "under chain_pdl" in chained.output


def test_the_command_names_the_policy_of_an_estimate(url: str) -> None:
    run = CliRunner().invoke(app, ["best", "16x2112x7000", "--db", url], catch_exceptions=False)
    assert " under chain, " in run.stdout.splitlines()[2]


@pytest.mark.parametrize(("joules", "shown"), [(0.1234, True), (None, False)])
def test_the_command_shows_energy_where_it_was_counted(tmp_path: Path, joules: float | None, shown: bool) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Store.open(url) as store:
        study = store.begin_study(study_key(PROBLEM))
        taken = replace(measured(PLAIN, 10.0, PROBLEM, "final", policy=Policy.SUSTAINED), product_joules=joules)
        store.set_bests(bests_of(PROBLEM, store.record_many(study.id, [taken], PROVENANCE), 1, {}))
    run = CliRunner().invoke(app, ["best", PROBLEM.shape, "--db", url], catch_exceptions=False)
    assert ("0.1234 J a product" in run.stdout) == shown
