"""Answers: exact, then nearest, then predicted; each with its interval and grounds."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime

import numpy as np
import pytest

from space.config import Config
from space.devices import profile_named
from space.errors import ProfileError
from space.explain import explain, is_legal
from space.families.common import plain_twin
from space.family import family_named
from space.kinds.gemm import Gemm
from space.rank import roofline_us
from tests.support import DEVICE, FAMILY, PROVENANCE, measured
from tuner.answering.answers import answer
from tuner.evidence.records import Best, StoredMeasurement
from tuner.prediction.examples import Group
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import first_choice
from tuner.prediction.train import train, with_portfolio
from tuner.tables.tables import TableBests
from workers.measurement import Policy

H200 = profile_named("NVIDIA H200")

ASKED = Gemm.parse("2048x4096x4096")
SHAPES = ("1024x4096x4096", "4096x4096x4096", "2048x2048x4096", "512x4096x2048")
#: Legal at all of them, and unlike each other.
TILES = [FAMILY.config({"tile_n": n, "epilogue": epilogue, "stages": stages})
         for n in (64, 96, 128, 192) for epilogue in ("tma", "direct") for stages in (3, 4)]  # fmt: skip


class Bests(TableBests):
    """What was measured."""

    def __init__(self, *bests: Best) -> None:
        super().__init__(bests)


def best_of(shape: str, config: Config, us: float, runner_up: Config | None = None) -> Best:
    problem = Gemm.parse(shape)
    stored = StoredMeasurement(
        1, 1, DEVICE, "cuda", datetime.now(UTC), PROVENANCE, measured(config, us, problem, "final", samples=31)
    )
    return Best(problem, DEVICE, "cuda", stored, None, None, runner_up, 40, {})


@pytest.fixture(scope="module")
def model() -> LearnedModel:
    """Learned where the analytic estimate is a third too short, and direct stores cost a fifth."""
    groups = []
    for problem in map(Gemm.parse, SHAPES):
        direct = np.array([config["epilogue"] == "direct" for config in TILES])
        times = FAMILY.estimate_us(FAMILY.columns(problem, TILES), H200) * 1.33 * (1 + 0.2 * direct)
        groups.append(Group(problem, DEVICE, tuple(TILES), times))
    return with_portfolio(train(groups, FAMILY, DEVICE, trees=48), groups, FAMILY, shapes=24)


def test_the_very_problem_is_measured_with_the_interval_of_its_samples() -> None:
    best = best_of(ASKED.shape, TILES[0], 100.0)
    found = answer(Bests(best), ASKED, DEVICE)
    assert (found.source, found.config, found.time_us) == ("measured", TILES[0], 100.0)
    assert found.interval_us is not None
    assert found.interval_us[0] < 100.0 < found.interval_us[1]
    assert "31 samples" in found.grounds[0]
    assert answer(Bests(best), ASKED, "h200") == found


def test_a_best_is_looked_up_once() -> None:
    asked = []

    class Counting(Bests):
        def best(self, problem: Gemm, device: str, policy: Policy | None = None) -> Best | None:
            asked.append(problem)
            return super().best(problem, device, policy)

    assert answer(Counting(), ASKED, DEVICE).source == "predicted"
    assert asked == [ASKED]


@pytest.mark.parametrize("learned", [False, True])
def test_a_neighbours_config_is_served_with_its_time_brought_here(model: LearnedModel, learned: bool) -> None:
    judge = model if learned else None
    predicted = first_choice(model, ASKED, H200)
    assert predicted is not None
    config = predicted.config if learned else TILES[0]
    there = best_of("2048x4096x3072", config, 80.0)
    found = answer(Bests(there), ASKED, DEVICE, model=judge)
    assert (found.source, found.config, found.best) == ("nearest", config, there)
    assert found.time_us == pytest.approx(80.0 * 4 / 3, rel=0.1)
    assert found.interval_us is not None
    assert found.interval_us[0] < found.time_us < found.interval_us[1]
    assert "80.00 µs measured at 2048x4096x3072" in found.grounds[0]


def test_a_neighbours_time_keeps_its_policy() -> None:
    there = best_of("2048x4096x3072", TILES[0], 80.0)
    for asked in (None, Policy.CHAIN, there.policy):
        found = answer(Bests(there), ASKED, DEVICE, asked)
        assert (found.source, found.policy) == ("nearest", there.policy)
        assert (f"its time under {there.policy.value} scaled" in found.why) is (asked is not there.policy)


def test_what_was_replayed_or_changed_nearby_is_called_that() -> None:
    there = best_of("2048x4096x3072", TILES[0], 80.0)
    plain = answer(Bests(there), ASKED, DEVICE)
    assert not [ground for ground in plain.grounds if "replayed" in ground or "changed" in ground]
    replayed = answer(Bests(dataclasses.replace(there, device_kind="recorded")), ASKED, DEVICE)
    assert "at 2048x4096x3072 (replayed from a recording; no GPU was used), 0.42 octaves away" in replayed.grounds[0]
    older = dataclasses.replace(PROVENANCE, kernel_source_digest="older")
    changed = dataclasses.replace(there, winner=dataclasses.replace(there.winner, provenance=older))
    for kind, said in (("cuda", "its kernel has changed since: "), ("recorded", "our kernels have changed since ")):
        found = answer(Bests(dataclasses.replace(changed, device_kind=kind)), ASKED, DEVICE)
        assert found.grounds[1].startswith(f"2048x4096x3072: {said}")


def test_a_neighbours_runner_up_is_called_that(model: LearnedModel) -> None:
    fast = min(TILES, key=lambda config: model.predict(ASKED, FAMILY.columns(ASKED, [config])).time_us[0])
    winner = answer(Bests(best_of("2048x4096x3072", fast, 80.0)), ASKED, DEVICE, model=model)
    assert winner.config == fast
    assert "the winner of 2048x4096x3072 is legal" in winner.why
    runner_up = answer(Bests(best_of("2048x4096x3072", FAMILY.config({"tile_n": 64, "stages": 2}), 80.0, fast)), ASKED,
                       DEVICE, model=model)  # fmt: skip
    assert (runner_up.source, runner_up.config) == ("nearest", fast)
    assert "the runner-up of 2048x4096x3072 is legal" in runner_up.why
    assert "80.00 µs measured at 2048x4096x3072 for its winner" in runner_up.grounds[0]


def test_a_runner_up_is_as_far_behind_as_expected_and_never_ahead_of_the_winner() -> None:
    asked, there = Gemm.parse("2048x4095x4096"), Gemm.parse("2048x4096x4096")

    def expected_us(problem: Gemm, config: Config) -> float:
        return float(FAMILY.estimate_us(FAMILY.columns(problem, [config], H200), H200)[0])

    # Rows of C at the asked shape are not what TMA stores: only the runner-up is legal there.
    fast, slow = ({"tile_n": 128, "stages": 4}, {"tile_n": 64, "stages": 2})
    for won, second, behind in ((fast, slow, True), (slow, fast, False)):
        winner, runner_up = FAMILY.config(won | {"epilogue": "tma"}), FAMILY.config(second | {"epilogue": "direct"})
        found = answer(Bests(best_of(there.shape, winner, 800.0, runner_up)), asked, DEVICE)
        lag = expected_us(there, runner_up) / expected_us(there, winner)
        assert (found.config, lag > 1.05) == (runner_up, behind)
        growth = expected_us(asked, runner_up) / expected_us(there, runner_up)
        assert found.time_us == pytest.approx(800.0 * growth * max(lag, 1.0))


def test_the_neighbours_configs_are_ranked_anew_at_the_asked_shape(model: LearnedModel) -> None:
    ordered = sorted(TILES, key=lambda config: model.predict(ASKED, FAMILY.columns(ASKED, [config])).time_us[0])
    # The slow neighbour is nearer, and both have the same measured time.
    near, far = best_of("2048x4096x3584", ordered[-1], 90.0), best_of("2048x4096x3072", ordered[0], 75.0)
    found = answer(Bests(near, far), ASKED, DEVICE, model=model)
    if found.source == "nearest":
        assert found.config == ordered[0]
    else:
        assert "would be much slower" in found.why


def test_a_neighbours_config_that_is_illegal_here_is_passed_over() -> None:
    odd = Gemm.parse("2048x4095x4096")
    # Rows of C of 4,095 elements are not a multiple of 16 bytes: TMA can't store them.
    there = best_of("2048x4096x4096", FAMILY.config({"epilogue": "tma"}), 80.0)
    found = answer(Bests(there), odd, DEVICE)
    assert found.source == "predicted"
    assert found.config is not None
    assert is_legal(FAMILY, odd, found.config)


@pytest.mark.parametrize(
    ("shape", "layout", "offered"),
    [("2048x4096x3072", "nt", True), ("2047x4096x4096", "nt", True), ("2048x4096x4095", "nt", False),
     ("2048x4095x4096", "nt", False), ("2048x4096x4095", "tn", True), ("2047x4096x4096", "tn", False)],
)  # fmt: skip
def test_the_librarys_algorithm_is_not_taken_to_where_rows_are_aligned_worse(
    shape: str, layout: str, offered: bool
) -> None:
    def of(shape: str) -> Gemm:
        return dataclasses.replace(Gemm.parse(shape), layout=layout)

    # No rule of ours says what the library's algorithms take.
    config = family_named("cublaslt").config({"algorithm": 66, "tile": 20, "stages": 27})
    there = dataclasses.replace(best_of(ASKED.shape, config, 90.0), problem=of(ASKED.shape))
    found = answer(Bests(there), of(shape), DEVICE)
    assert (found.source == "nearest", found.config == config) == (offered, offered)


def test_a_neighbours_interval_is_wider_where_the_training_ends(model: LearnedModel) -> None:
    for shape, wider in (("2048x4096x4096", 1.0), ("2048x49152x4096", 2.0)):
        there = best_of(shape.replace("2048x", "1536x"), TILES[13], 10_000.0)
        found = answer(Bests(there), Gemm.parse(shape), DEVICE, model=model)
        assert (found.source, model.domain(Gemm.parse(shape)).inside) == ("nearest", wider == 1.0)
        assert found.time_us is not None
        assert found.interval_us is not None
        assert math.log(found.interval_us[1] / found.time_us) == pytest.approx(wider * model.facts.high)


def test_neighbours_under_the_asked_policy_come_before_others() -> None:
    def under(shape: str, policy: Policy, us: float) -> Best:
        best = best_of(shape, TILES[0], us)
        taken = dataclasses.replace(best.winner.measurement, policy=policy)
        return dataclasses.replace(best, winner=dataclasses.replace(best.winner, measurement=taken))

    # A chain's times are shorter than sustained ones; neither says anything of the other.
    bests = Bests(under("1024x4096x4096", Policy.CHAIN, 10.0), under("4096x4096x4096", Policy.SUSTAINED, 400.0))
    assert answer(bests, ASKED, DEVICE).policy is Policy.SUSTAINED
    assert answer(bests, ASKED, DEVICE, Policy.CHAIN).policy is Policy.CHAIN


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize(("shape", "policy", "pdl"), [
    ("2048x4096x4096", Policy.CHAIN_PDL, 1), ("2048x4096x4096", Policy.CHAIN, 0),
    # Too long for an early launch to show.
    ("65536x8192x8192", Policy.CHAIN_PDL, 0),
])  # fmt: skip
def test_what_was_not_measured_starts_early_where_the_neighbours_allow_it(
    model: LearnedModel, near: bool, shape: str, policy: Policy, pdl: int
) -> None:
    problem, config = Gemm.parse(shape), FAMILY.config({})
    bests = Bests(best_of(shape.replace("4096", "4032").replace("8192x", "8064x"), config, 50.0)) if near else Bests()
    found = answer(bests, problem, DEVICE, policy, None if near else model)
    assert found.source == ("nearest" if near else "predicted")
    assert found.config is not None
    assert found.config["pdl"] == pdl
    assert any("an early launch (pdl=1)" in ground for ground in found.grounds) == bool(pdl)


def test_what_was_measured_among_neighbours_that_allow_an_early_launch_is_served_as_it_was() -> None:
    early = FAMILY.config({"pdl": 1, "prefetch_stages": 4})
    best = best_of("2048x4096x4032", early, 50.0)
    taken = dataclasses.replace(best.winner.measurement, policy=Policy.CHAIN_PDL)
    bests = Bests(dataclasses.replace(best, winner=dataclasses.replace(best.winner, measurement=taken)))
    found = answer(bests, ASKED, DEVICE, Policy.CHAIN_PDL)
    assert (found.source, found.policy, found.config) == ("nearest", Policy.CHAIN_PDL, early)
    assert "the winner of" in found.why
    assert not any("without one" in ground for ground in found.grounds)
    assert answer(bests, ASKED, DEVICE).config == plain_twin(early)


def test_a_neighbour_out_of_reach_says_nothing(model: LearnedModel) -> None:
    assert answer(Bests(best_of("1024x4096x4096", TILES[0], 80.0)), ASKED, DEVICE).source == "nearest"
    there = best_of("256x4096x4096", TILES[0], 20.0)
    assert answer(Bests(there), ASKED, DEVICE, model=model).source == "predicted"


def test_a_prediction_has_a_time_an_interval_and_says_what_it_learned_from(model: LearnedModel) -> None:
    found = answer(Bests(), ASKED, DEVICE, model=model)
    assert (found.source, found.best) == ("predicted", None)
    assert found.config is not None
    assert is_legal(FAMILY, ASKED, found.config)
    assert found.config["epilogue"] != "direct"
    assert found.time_us is not None
    assert found.interval_us is not None
    assert found.interval_us[0] <= found.time_us <= found.interval_us[1]
    assert found.time_us > roofline_us(ASKED, H200)
    assert "4 problems" in found.grounds[0]
    assert "octaves" in found.grounds[1]


@pytest.mark.parametrize(("policy", "said"), [(Policy.ROUNDS, True), (Policy.CHAIN, False), (Policy.BURST, False)])
def test_a_prediction_under_a_policy_that_was_not_learned_says_whose_time_it_is(
    model: LearnedModel, policy: Policy, said: bool
) -> None:
    facts = model.facts.model_copy(update={"served": {"chain": (0.0, 0.1, 0.2)}})
    found = answer(Bests(), ASKED, DEVICE, policy, dataclasses.replace(model, facts=facts))
    sentence = f"no times under {policy.value} were learned: the expected one is burst's"
    assert (sentence in found.grounds) == said


def test_without_a_model_of_this_device_the_analytic_one_predicts(model: LearnedModel) -> None:
    other = dataclasses.replace(model, facts=model.facts.model_copy(update={"device": "NVIDIA H100 PCIe"}))
    found = answer(Bests(), ASKED, DEVICE, model=other)
    assert (found.source, found.interval_us is not None) == ("predicted", True)
    assert "analytic model" in found.why
    assert found.grounds[-1] == "the analytic model expects the same time under every policy"


def test_a_card_with_the_same_multiprocessors_has_its_model_and_says_so(model: LearnedModel) -> None:
    found = answer(Bests(), ASKED, "NVIDIA H100 80GB HBM3", model=model)
    assert (found.source, found.interval_us) == ("predicted", None)
    assert found.config is not None
    assert found.config["epilogue"] != "direct"  # what the model learned
    assert "the learned model ranks this config first" in found.why
    assert "none was measured" in found.grounds[0]
    assert found.grounds[1] == "configs are ranked as on NVIDIA H200, which has the same multiprocessors"


def test_a_card_whose_rates_are_estimated_has_the_interval_of_a_model_of_its_own(model: LearnedModel) -> None:
    card = "NVIDIA H100 80GB HBM3"
    own = dataclasses.replace(model, facts=model.facts.model_copy(update={"device": card, "devices": (card,)}))
    found = answer(Bests(), ASKED, card, model=own)
    assert (found.source, found.interval_us is not None) == ("predicted", True)
    assert found.grounds[0].endswith("%")
    assert f"of 4 problems on {card}; on problems left out" in found.grounds[0]
    assert not any("same multiprocessors" in ground for ground in found.grounds)


def test_a_family_that_the_model_does_not_cover_claims_nothing_of_it(model: LearnedModel) -> None:
    found = answer(Bests(), Gemm.of(2048, 4096, 4096, "fp16_acc16"), DEVICE, model=model)
    assert found.config is not None
    assert found.config.family == "mma_sync"
    assert "the analytic model ranks this config first" in found.why
    assert found.grounds[0] == "the analytic model of mma_sync, whose errors too few measurements show"
    assert found.interval_us is None


def test_a_neighbour_of_another_family_is_scaled_by_its_own_estimate_and_says_so(model: LearnedModel) -> None:
    there = best_of("1x4096x4096", family_named("gemv").config({}), 8.0)
    found = answer(Bests(there), Gemm.parse("1x4096x4608"), DEVICE, model=model)
    assert found.source == "nearest"
    assert "the analytic model scales the time to the new shape" in found.grounds[0]
    assert "learned" not in " ".join(found.grounds)
    assert found.interval_us is None


@pytest.mark.parametrize("shape", ["4096x4096x4096", "1x8192x3584", "300x7168x2048", "128x128x65536"])
def test_no_interval_reaches_below_what_the_device_can(shape: str) -> None:
    problem = Gemm.parse(shape)
    found = answer(Bests(), problem, DEVICE)
    assert found.interval_us is not None
    assert found.interval_us[0] >= roofline_us(problem, H200)


def test_a_batch_is_said_where_nothing_is_near() -> None:
    batched = dataclasses.replace(ASKED, batch=8)
    assert f"no best near {ASKED.shape} ×8 is stored for {DEVICE}" in answer(Bests(), batched, DEVICE).why


def test_operands_that_do_not_fit_the_device_get_none() -> None:
    found = answer(Bests(), Gemm.parse("262144x262144x262144"), DEVICE)
    assert (found.source, found.config) == ("none", None)
    assert found.why.startswith("the operands take 384 GiB, NVIDIA H200 has 1")


def test_an_unknown_device_is_refused_with_the_nearest_known_ones() -> None:
    with pytest.raises(ProfileError, match="'NVIDIA H300' is unknown: the nearest known ones are NVIDIA H"):
        answer(Bests(), ASKED, "NVIDIA H300")
    with pytest.raises(ProfileError, match=r"'H100' names several cards: write one of h100 sxm, h100 pcie, h100 nvl$"):
        answer(Bests(), ASKED, "H100")


def test_nothing_is_answered_from_a_card_that_only_its_driver_knows() -> None:
    with pytest.raises(ProfileError, match="what was measured on an unknown card is stored, never served"):
        answer(Bests(best_of("64x64x64", TILES[0], 5.0)), ASKED, "NVIDIA Imaginary")


@pytest.mark.parametrize("device", ["NVIDIA B200", "NVIDIA B300 SXM6 AC"])
def test_a_card_that_no_family_serves_gets_none_with_the_reason(device: str) -> None:
    found = answer(Bests(), ASKED, device)
    assert (found.source, found.config, found.time_us) == ("none", None, None)
    assert "no kernel family is built for sm_" in found.why
    assert found.device == profile_named(device).name


@pytest.mark.parametrize(
    "device", ["A100 80GB SXM", "A10", "L4", "L40S", "RTX 3090", "RTX 4090", "RTX 5090", "PRO 6000", "GB10"]
)
@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_a_card_of_an_arch_that_nobody_measured_is_predicted_for_and_says_so(device: str, dtype: str) -> None:
    profile, problem = profile_named(device), Gemm.of(*ASKED.extents, dtype)
    found = answer(Bests(), problem, device)
    assert (found.source, found.interval_us) == ("predicted", None)
    assert found.why.startswith(f"predicted, never measured on this architecture ({profile.arch.name})")
    assert found.config is not None
    assert is_legal(family_named(found.config.family), problem, found.config, profile)
    assert found.time_us is not None
    assert found.time_us >= roofline_us(problem, profile)


def test_a_dtype_that_the_tensor_cores_lack_is_one_sentence_with_what_they_have() -> None:
    found = answer(Bests(), Gemm.of(*ASKED.extents, "fp8_e4m3"), "RTX 3090")
    assert (found.source, found.config) == ("none", None)
    assert found.why == "sm_86 has no mma.sync of fp8_e4m3 x fp8_e4m3: it has bf16, fp16, tf32, int8, uint8"


def test_what_nothing_is_legal_for_names_the_rules_that_leave_none(monkeypatch: pytest.MonkeyPatch) -> None:
    roomy = dataclasses.replace(H200, memory_bytes=2**70)
    monkeypatch.setattr("tuner.answering.answers.find_profile", lambda _: roomy)
    found = answer(Bests(), Gemm(2**31 - 2048, 2**31 - 2048, 2**31 - 1), DEVICE)
    assert (found.source, found.config) == ("none", None)
    assert "rules " in found.why
    assert "leave none" in found.why


def test_a_portfolio_holds_a_good_config_for_shapes_it_was_not_made_for(model: LearnedModel) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        problem = Gemm(*(int(2 ** rng.uniform(low, high)) for low, high in ((0, 14), (7, 15), (7, 14))))
        found = first_choice(model, problem, H200)
        assert found is not None, problem
        assert is_legal(FAMILY, problem, found.config)
        handicap = 1 if explain(FAMILY, problem, found.config).not_worth else 1 + model.facts.doubt
        assert found.time_us <= found.prediction.time_us.min() * handicap
