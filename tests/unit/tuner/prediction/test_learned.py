"""The learned model: corrects the analytic one from measurements, and knows its limits."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from space.devices import profile_named
from space.enumerate import enumerate_space
from space.explain import is_legal
from space.kinds.gemm import Gemm
from space.rank import rank
from tests.support import FAMILY
from tests.unit.tuner.prediction.groups import H100, H200, SHAPES, TREES, group, predicted, taught
from tuner.errors import ModelError
from tuner.evidence.picks import precedence
from tuner.evidence.similarity import octaves
from tuner.prediction import files
from tuner.prediction.examples import Group, digest_of
from tuner.prediction.features import Features, features_of
from tuner.prediction.forest import Forest
from tuner.prediction.learned import VERSION, LearnedModel
from tuner.prediction.portfolio import first_choice
from tuner.prediction.train import train
from workers.measurement import Policy


@pytest.fixture(scope="module")
def model() -> LearnedModel:
    return taught()


def test_of_equals_the_first_of_the_portfolio_is_answered_on_every_processor(model: LearnedModel) -> None:
    problem = Gemm.parse("4096x4096x4096")
    words = itertools.product((128, 64, 32), (0, 64, 128, 256), ("none", "stream_a"), (0, 4), (2, 3, 4))
    # The estimate reads none of these knobs but the last.
    configs = [
        FAMILY.config({"swizzle_b": span, "l2_promotion": size, "cache_hint": hint, "prefetch_stages": ahead,
                       "stages": stages}) for span, size, hint, ahead, stages in words
    ]  # fmt: skip
    legal = [config for config in configs if is_legal(FAMILY, problem, config)]
    for seed in range(24):
        configs = [legal[place] for place in np.random.default_rng(seed).permutation(len(legal))]
        facts = model.facts.model_copy(update={"portfolio": tuple(each.knobs_text for each in configs), "trust": 0.0})
        found = first_choice(dataclasses.replace(model, facts=facts), problem, H200)
        assert found is not None
        estimates = FAMILY.estimate_us(FAMILY.columns(problem, configs), H200)
        assert 32 < (estimates == estimates.min()).sum() < len(configs)
        assert found.config == configs[int(estimates.argmin())]


def test_what_looks_fast_to_a_few_trees_alone_is_not_answered(
    model: LearnedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Gemm.parse("1024x1024x2048")
    ranked = rank(enumerate_space(FAMILY, problem), H200)
    configs = [ranked.config(place) for place in range(0, 64 * 40, 40)]
    facts = model.facts.model_copy(update={"portfolio": tuple(each.knobs_text for each in configs)})
    monkeypatch.setattr(Forest, "predict", lambda _, rows, trees=None: np.full(len(rows), -1.0 if trees else 0.0))
    found = first_choice(dataclasses.replace(model, facts=facts), problem, H200)
    assert found is not None
    assert found.config == configs[0]


def test_what_looks_slow_to_a_few_trees_is_not_asked_of_all(
    model: LearnedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.prediction.learned.GLANCE_TREES", 24)
    held = group(Gemm.parse("1024x1024x2048"))
    features = features_of(FAMILY, held.problem, FAMILY.columns(held.problem, held.configs), H200)
    whole = model.predict_features(held.problem, features).time_us
    quick = model.predict_features(held.problem, features, closely=30).time_us
    same = quick == whole
    assert same[np.argsort(whole)[:15]].all()
    assert not same.all()
    assert quick == pytest.approx(whole, rel=0.1)


def test_it_corrects_the_analytic_model_on_a_problem_it_never_saw(model: LearnedModel) -> None:
    held = group(Gemm.parse("1024x1024x2048"))
    estimate = FAMILY.estimate_us(FAMILY.columns(held.problem, held.configs), H200)
    wrong = np.abs(np.log(predicted(model, held) / held.time_us))
    assert 3 * np.median(wrong) < np.median(np.abs(np.log(estimate / held.time_us)))


def test_it_says_how_wrong_it_is_and_when_a_problem_is_outside(model: LearnedModel) -> None:
    held = group(Gemm.parse("1024x1024x2048"))
    columns = FAMILY.columns(held.problem, held.configs)
    near = model.predict(held.problem, columns)
    assert (near.low_us < held.time_us).mean() > 0.8
    assert (near.low_us < near.high_us).all()
    assert model.domain(held.problem).inside
    far = Gemm.parse("65536x65536x128")
    assert not model.domain(far).inside
    assert "octaves" in model.domain(far).sentence
    other = Gemm.parse("1024x1024x2048", "fp8_e4m3")
    assert "fp8_e4m3 nt none was not in the training" in model.domain(other).sentence
    wide = model.predict(far, FAMILY.columns(far, held.configs[:3]))
    assert wide.doubt == pytest.approx(2 * near.doubt)


def test_a_batch_is_told_from_its_single_product(model: LearnedModel) -> None:
    known = Gemm.parse(SHAPES[0])
    batched = dataclasses.replace(known, batch=8)
    away = octaves(batched, known)
    just = dataclasses.replace(model, facts=model.facts.model_copy(update={"reach": away - 0.004}))
    said = just.domain(batched).sentence
    assert said.startswith(f"{known.shape} ×8 lies {away:.2f} octaves from {known.shape}, the nearest")
    assert said.endswith(f"which covers {away - 0.004:.2f}")


def test_a_model_survives_its_file(model: LearnedModel, tmp_path: Path) -> None:
    size = files.save(model, tmp_path / "model.npz")
    assert size <= files.MOST_BYTES
    again = files.load(tmp_path / "model.npz")
    again.check()
    held = group(Gemm.parse("1024x1024x2048"))
    assert predicted(again, held) == pytest.approx(predicted(model, held))
    assert again.facts == model.facts


def test_too_little_to_learn_from_is_one_sentence() -> None:
    with pytest.raises(ModelError, match="0 problems"):
        train([], FAMILY, H200.name)
    with pytest.raises(ModelError, match="2 problems"):
        train([group(Gemm.parse(shape)) for shape in SHAPES[:2]], FAMILY, H200.name)
    with pytest.raises(ModelError, match="is unknown: the nearest known ones are"):
        train([], FAMILY, "NVIDIA Imaginary")


def changed(model: LearnedModel, path: Path, **facts: object) -> Path:
    document = json.loads(model.facts.model_dump_json()) | facts
    arrays = {name: getattr(model.forest, name) for name in ("roots", "feature", "threshold", "right", "value")}
    text = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    np.savez(path, facts=text, problem_rows=model.problem_rows, levels=model.levels, **arrays)
    return path


def test_cards_with_the_same_multiprocessors_teach_one_model_and_others_do_not() -> None:
    here = [group(Gemm.parse(shape)) for shape in SHAPES]
    # On the other card the knob that costs a third here costs nothing, and all is half as fast.
    there = [dataclasses.replace(each, device=H100, time_us=2.4 * estimated(each, H100)) for each in here]
    alien = [dataclasses.replace(each, device="NVIDIA H100 PCIe", time_us=9 * each.time_us) for each in here]
    both = train([*there, *alien, *here], FAMILY, H200.name, trees=TREES)
    assert both.facts == train([*here, *there], FAMILY, H200.name, trees=TREES).facts
    assert both.devices == (H200.name, H100)
    assert both.facts.candidates == 2 * sum(len(each.configs) for each in here)
    assert (far := both.on(H100))
    assert far.learned_here
    assert (far.facts.doubt, far.facts.high) == (both.facts.doubt, both.facts.high)
    # Each card's own times say how far its estimates are off.
    problem = Gemm.parse("1024x1024x2048")
    assert far.level(problem) - both.level(problem) > 0.2
    assert (unlike := far.on("NVIDIA GH200 480GB"))
    assert not unlike.learned_here
    assert unlike.facts.doubt == 2 * both.facts.doubt
    with pytest.raises(ModelError, match="0 problems of NVIDIA GH200 480GB"):
        train([*here, *there], FAMILY, "NVIDIA GH200 480GB", trees=TREES)


def estimated(known: Group, device: str) -> np.ndarray:
    return FAMILY.estimate_us(FAMILY.columns(known.problem, known.configs), profile_named(device))


def test_times_under_the_policy_that_decides_are_learned_from_finals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.prediction.judge.LEAST_SERVED", 2)
    groups = []
    for shape in SHAPES:
        screened = group(Gemm.parse(shape))
        ahead = np.argsort(screened.time_us)[:3]
        finals = {screened.configs[place]: 1.3 * float(screened.time_us[place]) for place in ahead}
        groups.append(dataclasses.replace(screened, served_us=finals))
    assert groups[0].digest != group(Gemm.parse(SHAPES[0])).digest
    model = train(groups, FAMILY, H200.name, trees=TREES)
    assert set(model.facts.served) == {precedence(each.problem, H200.name)[0].value for each in groups}
    held = groups[0]
    prediction = model.predict(held.problem, FAMILY.columns(held.problem, held.configs))
    policy = precedence(held.problem, H200.name)[0]
    time_us, low_us, high_us = model.under(policy, prediction, 0)
    assert low_us <= time_us <= high_us
    assert 1.1 < time_us / prediction.time_us[0] < 1.6
    # Of a policy that was not learned, times are those of screenings.
    assert model.under(Policy.ROUNDS, prediction, 0)[0] == prediction.time_us[0]
    elsewhere = model.on("NVIDIA H100 80GB HBM3")
    assert elsewhere is not None
    _, there_low_us, there_high_us = elsewhere.under(policy, prediction, 0)
    assert there_high_us / there_low_us > high_us / low_us


class TestAModelThatDoesNotFit:
    def choice(self, model: LearnedModel, folder: Path, **facts: object) -> files.Choice:
        folder.mkdir(exist_ok=True)
        changed(model, folder / files.file_name(H200.name), **facts)
        return files.model_for(H200.name, folder)

    def test_one_of_another_version_is_refused_by_name(self, model: LearnedModel, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=f"version {VERSION + 1}"):
            files.load(changed(model, tmp_path / "m.npz", version=VERSION + 1))

    @pytest.mark.parametrize("content", [b"", b"PK nonsense", b"x" * 1000, b"PAR1" * 99])
    def test_a_damaged_file_is_refused(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "m.npz").write_bytes(content)
        with pytest.raises(ModelError, match="is not a model") as refused:
            files.load(tmp_path / "m.npz")
        # NumPy's own sentence says how to unpickle it.
        assert "pickle" not in str(refused.value)
        with pytest.raises(ModelError, match="is not there"):
            files.load(tmp_path / "none.npz")

    def test_whatever_bytes_are_damaged_it_is_refused(self, model: LearnedModel, tmp_path: Path) -> None:
        files.save(model, tmp_path / "m.npz")
        whole = (tmp_path / "m.npz").read_bytes()
        # In the archive's directory: the version that unpacks its first array, whether that is encrypted, and how it is
        # compressed. Then the array itself.
        entry = whole.index(b"PK\x01\x02")
        places = [(entry + 6, 0xFF), (entry + 8, 0x01), (entry + 10, 0xFF), *((byte, 0xFF) for byte in range(80, 120))]
        for place, bits in places:
            damaged = bytearray(whole)
            damaged[place] ^= bits
            (tmp_path / "m.npz").write_bytes(damaged)
            with pytest.raises(ModelError, match="train it again"):
                files.load(tmp_path / "m.npz")

    def test_a_folder_and_a_device_that_are_no_names_of_files_have_no_model(self, tmp_path: Path) -> None:
        assert files.model_for(H200.name, tmp_path / ("x" * 300)).model is not None
        assert "no model was trained on xxx" in files.model_for("x" * 300, tmp_path).why

    def test_one_of_another_device_is_passed_over(self, model: LearnedModel, tmp_path: Path) -> None:
        assert "not on NVIDIA H200" in self.choice(model, tmp_path, device="NVIDIA H100 PCIe").why

    def test_a_device_with_the_same_multiprocessors_has_it_with_wider_intervals(
        self, model: LearnedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "SHIPPED", tmp_path)
        files.save(model, tmp_path / files.file_name(H200.name))
        own, found = files.model_for(H200.name).model, files.model_for("NVIDIA H100 80GB HBM3")
        assert own
        assert found.model
        assert (found.model.device, found.model.facts.device) == ("NVIDIA H100 80GB HBM3", H200.name)
        assert "measured on NVIDIA H200, which has the same multiprocessors as NVIDIA H100" in found.why
        assert found.model.facts.doubt == 2 * own.facts.doubt
        # It predicts with the rates of its own card: an H100 reads memory more slowly.
        few = group(Gemm.parse("16x4096x14336"))
        here, there = (
            each.predict(few.problem, FAMILY.columns(few.problem, few.configs, profile_named(each.device))).time_us
            for each in (own, found.model)
        )
        assert there.min() > 1.2 * here.min()
        for other in ("NVIDIA H100 PCIe", "NVIDIA A100-SXM4-80GB", "NVIDIA Imaginary"):
            assert files.model_for(other).model is None

    def test_a_card_has_its_model_by_all_of_its_names(
        self, model: LearnedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "SHIPPED", tmp_path)
        # Of the same multiprocessors, and first in the folder.
        other = dataclasses.replace(model, facts=model.facts.model_copy(update={"device": "NVIDIA H100 80GB HBM3"}))
        for each in (model, other):
            files.save(each, tmp_path / files.file_name(each.facts.device))
        named, found = files.model_for("H200").model, files.model_for(H200.name).model
        assert found
        assert named
        assert named.facts == found.facts == model.facts
        there = found.on("H100 80GB HBM3")
        assert there
        assert there.facts.doubt == 2 * model.facts.doubt
        assert there.on("NVIDIA H100 80GB HBM3") is there
        assert (back := there.on("H200"))
        assert back.facts.doubt == there.facts.doubt

    def test_one_of_an_older_analytic_model_is_passed_over(self, model: LearnedModel, tmp_path: Path) -> None:
        older = [us * 1.01 for us in model.facts.probe_us]
        assert "analytic estimate" in self.choice(model, tmp_path, probe_us=older).why

    def test_one_of_other_features_is_passed_over(self, model: LearnedModel, tmp_path: Path) -> None:
        assert "features of sm90_wgmma are gone (knob.gone)" in self.choice(model, tmp_path, features=["knob.gone"]).why
        assert "gemm problems changed" in self.choice(model, tmp_path, problem_features=["problem.gone"]).why

    def test_features_in_another_order_change_nothing(self, model: LearnedModel) -> None:
        held = group(Gemm.parse("1024x1024x2048"))
        features = features_of(FAMILY, held.problem, FAMILY.columns(held.problem, held.configs), H200)
        turned = Features(features.names[::-1], features.rows[:, ::-1], features.estimate_us)
        assert model.predict_features(held.problem, turned).time_us == pytest.approx(predicted(model, held))

    def test_one_that_fits_is_used_and_one_trained_later_replaces_it(self, model: LearnedModel, tmp_path: Path) -> None:
        assert self.choice(model, tmp_path).model is not None
        files.save(dataclasses.replace(model, levels=model.levels + 1.0), tmp_path / files.file_name(H200.name))
        again = files.model_for(H200.name, tmp_path).model
        assert again is not None
        assert again.levels == pytest.approx(model.levels + 1.0)

    def test_without_any_the_reason_is_told(self) -> None:
        assert "no model was trained on NVIDIA Imaginary" in files.model_for("NVIDIA Imaginary").why


def test_features_name_what_bounds_a_candidate() -> None:
    problem = Gemm.parse("128x28672x4096")
    configs: Sequence = rank(enumerate_space(FAMILY, problem), H200).configs(50)
    features = features_of(FAMILY, problem, FAMILY.columns(problem, configs), H200)
    columns = dict(zip(features.names, features.rows.T, strict=True))
    assert (columns["model.hbm"] >= 0).all()
    # Few rows: reading B from memory bounds the fastest of them, the tensor cores don't.
    assert columns["model.hbm"][0] > columns["model.tensor"][0]
    assert len(set(features.names)) == len(features.names) == features.rows.shape[1]
    assert np.isfinite(features.rows).all()


def test_the_digest_of_examples_does_not_depend_on_their_order() -> None:
    groups = [group(Gemm.parse(shape)) for shape in SHAPES[:2]]
    assert digest_of(groups) == digest_of(groups[::-1]) != digest_of(groups[:1])
