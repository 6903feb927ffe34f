"""For few rows of A two families compete, and the models of both say which is answered."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from space.config import Config
from space.devices import profile_named
from space.enumerate import enumerate_space
from space.explain import legal_mask, worth_mask
from space.family import family_named
from space.kinds.gemm import Gemm
from space.plug import Family
from space.rank import rank
from tuner.answering.answers import answer
from tuner.prediction import files
from tuner.prediction.examples import Group
from tuner.prediction.expectation import expected_of
from tuner.prediction.learned import LearnedModel
from tuner.prediction.portfolio import _shapes, first_choice
from tuner.prediction.train import train, with_portfolio

H200, H100 = profile_named("NVIDIA H200"), "NVIDIA H100 80GB HBM3"
WGMMA, GEMV = family_named("sm90_wgmma"), family_named("gemv")
FEW = [Gemm.parse(shape) for shape in ("1x1024x1024", "1x2048x1024", "2x1024x2048", "2x2048x2048")]
NOTHING = SimpleNamespace(best=lambda *_: None, neighbours=lambda *_: (), wrong=lambda *_: ())


def taught(family: Family, factor: float) -> LearnedModel:
    """A model that learned that the family's times are a multiple of its estimates."""
    groups = []
    for problem in FEW:
        ranked = rank(enumerate_space(family, problem, H200), H200)
        configs = [ranked.config(place) for place in range(0, len(ranked), max(len(ranked) // 40, 1))][:40]
        noise = np.exp(0.01 * np.random.default_rng(problem.k).standard_normal(len(configs)))
        times = family.estimate_us(family.columns(problem, configs, H200), H200) * factor * noise
        groups.append(Group(problem, H200.name, tuple(configs), times))
    return with_portfolio(train(groups, family, H200.name, trees=48), groups, family, shapes=8)


@pytest.fixture(scope="module")
def both() -> LearnedModel:
    return dataclasses.replace(taught(WGMMA, 2.0), beside=(taught(GEMV, 0.5),))


def test_the_family_that_is_expected_to_be_faster_is_answered(both: LearnedModel) -> None:
    (few,) = both.beside
    slow_few = dataclasses.replace(few, levels=few.levels + np.log(16.0))
    for model, family in ((both, GEMV), (dataclasses.replace(both, beside=(slow_few,)), WGMMA)):
        found = first_choice(model, Gemm.parse("1x1536x1024"), H200)
        assert found is not None
        assert (found.config.family, found.model.facts.family) == (family.name, family.name)
    many = first_choice(both, Gemm.parse("256x1536x1024"), H200)
    assert many is None or many.config.family == WGMMA.name


def test_an_answer_says_what_the_family_s_own_model_learned_from(both: LearnedModel) -> None:
    found = answer(NOTHING, Gemm.parse("1x1536x1024"), H200.name, model=both)
    assert found.config is not None
    assert (found.source, found.config.family) == ("predicted", GEMV.name)
    assert any(f"learned from {both.beside[0].facts.candidates:,} candidates" in ground for ground in found.grounds)


def test_a_family_for_want_of_another_is_expected_what_its_estimate_says() -> None:
    """Short products that TMA can't load taught the model of `mma_sync` on Hopper, none with f16 sums."""
    model = files.model_for(H200.name).model
    assert model is not None
    odd, half = Gemm.parse("16x1052x12288", layout="tn"), Gemm.parse("4096x4096x4096", "fp16_acc16")
    learned = model.of("mma_sync", odd)
    assert learned is not None
    assert learned.facts.family == "mma_sync"
    assert model.of("mma_sync", half) is None
    assert first_choice(model, half, H200) is None
    found = answer(NOTHING, half, H200.name, model=model)
    assert found.config is not None
    assert (found.config.family, found.config["copies"]) == ("mma_sync", "tma")


def test_a_search_expects_of_each_family_what_its_model_does(both: LearnedModel) -> None:
    problem = FEW[0]
    configs = [rank(enumerate_space(family, problem, H200), H200).config(0) for family in (WGMMA, GEMV)]
    expected = np.exp(expected_of(problem, configs, H200.name, both).log_us)
    for config, time_us in zip(configs, expected, strict=True):
        model = both.of(config.family, problem)
        assert model is not None
        columns = family_named(config.family).columns(problem, [config], H200)
        assert time_us == pytest.approx(model.predict(problem, columns).time_us[0])
    assert both.of("mma_sync", problem) is None


def test_both_are_in_one_file_and_predict_on_other_cards(both: LearnedModel, tmp_path: Path) -> None:
    files.save(both, tmp_path / "m.npz")
    read = files.load(tmp_path / "m.npz")
    assert [each.facts for each in (read, *read.beside)] == [each.facts for each in (both, *both.beside)]
    (few,) = files.load_for(tmp_path / "m.npz", H100).beside
    assert (few.device, few.facts.doubt) == (H100, 2 * both.beside[0].facts.doubt)


def test_one_that_no_longer_fits_its_family_is_refused_with_the_file(both: LearnedModel, tmp_path: Path) -> None:
    (few,) = both.beside
    changed = few.facts.model_copy(update={"probe_us": tuple(2 * us for us in few.facts.probe_us)})
    files.save(dataclasses.replace(both, beside=(dataclasses.replace(few, facts=changed),)), tmp_path / "m.npz")
    with pytest.raises(files.ModelError, match="the analytic estimate of gemv changed"):
        files.load_for(tmp_path / "m.npz", H200.name)


def test_a_kind_that_a_family_never_takes_has_no_shapes_in_its_portfolio() -> None:
    kinds = [Gemm.parse("1x64x64"), Gemm.parse("1x64x64", "fp16")]
    found = [*_shapes(kinds, 6, lambda problem: problem.dtype == "fp16")]
    assert [problem.dtype for problem in found] == ["fp16"] * 3


@pytest.mark.parametrize("shape", ["3x156x3689", "2x1460x1758", "3x7053x2665"])
def test_rows_that_tma_can_not_load_are_not_answered_by_tiles(shape: str) -> None:
    """Tiles take two to four times as long there."""
    model = files.model_for(H100, Path("/nowhere")).model
    assert model is not None
    found = first_choice(model, Gemm.parse(shape), profile_named(H100))
    assert found is not None
    assert found.config.family == GEMV.name


@pytest.mark.parametrize("rows", range(1, 5))
@pytest.mark.parametrize("k", [3689, 3690, 3692, 3696])
def test_the_shipped_portfolio_of_few_rows_has_configs_for_every_alignment(rows: int, k: int) -> None:
    model = files.model_for(H200.name).model
    beside = model.of(GEMV.name, FEW[0]) if model else None
    assert beside is not None
    columns = GEMV.columns(Gemm(rows, 4096, k), portfolio_of(beside), H200)
    assert legal_mask(GEMV, columns).sum() >= 16


def test_what_breaks_a_worth_rule_is_not_all_that_is_judged() -> None:
    problem = Gemm.parse("2x240x184")
    model = files.model_for(H100).model
    found = first_choice(model, problem, profile_named(H100)) if model else None
    assert found is not None
    # The analytic model prefers teams of eight warps, most of whose lanes have nothing to load.
    columns = GEMV.columns(problem, portfolio_of(found.model), profile_named(H100))
    legal, estimate_us = legal_mask(GEMV, columns), GEMV.estimate_us(columns, profile_named(H100))
    first = np.argsort(np.where(legal, estimate_us, np.inf), kind="stable")[:64]
    assert not worth_mask(GEMV, columns)[first].any()
    assert worth_mask(GEMV, GEMV.columns(problem, [found.config])).all()


def portfolio_of(model: LearnedModel) -> list[Config]:
    return [GEMV.parse(text) for text in model.facts.portfolio]
