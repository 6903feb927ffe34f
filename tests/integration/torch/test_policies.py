"""`benchmarks.policies` without a GPU: its program, whose answers run, and its table."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks import policies  # noqa: E402
from benchmarks.deployed_timing import Arm, Times  # noqa: E402
from gemmtune.torch.sources import Found  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import Gemm  # noqa: E402
from tests.support import DEVICE, PROVENANCE, measured, study_key  # noqa: E402
from tuner.evidence.picks import bests_of  # noqa: E402
from tuner.evidence.store import Store  # noqa: E402
from workers.measurement import Policy  # noqa: E402

OWN, LIBRARY = family_named("sm90_wgmma").config({}), family_named("cublaslt").config({})


def tiny() -> policies.Program:
    torch.manual_seed(1)
    return policies.Program(4, "cpu", hidden=16, qkv=24, inner=8)


def theirs(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.matmul(a, b.t(), out=c)


def test_each_layer_multiplies_its_problems_in_order() -> None:
    program, seen = tiny(), list[tuple[int, ...]]()

    def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        seen.append((*a.shape, *b.shape))
        theirs(a, b, c)

    program.run(multiply)

    of_layer = [(one.m, one.k, one.n, one.k) for one in program.problems()]
    assert seen == of_layer * policies.LAYERS


def test_a_product_that_is_wrong_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    program = tiny()
    monkeypatch.setattr(policies.kernels, "everything", lambda: [])
    monkeypatch.setattr(policies, "gemm", lambda a, b, out: torch.matmul(a, b, out=out))
    arm = Arm(lambda _: program.run(policies._ours))
    assert policies.difference(program, arm) == 0.0

    monkeypatch.setattr(policies, "gemm", lambda a, b, out: torch.matmul(a, b, out=out).mul_(1.5))
    assert policies.difference(program, arm) > 0.01


def test_a_config_that_torch_refuses_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = type("Absent", (), {"why": "another cuBLASLt"})()
    monkeypatch.setattr(policies.kernels, "everything", lambda: [absent])
    monkeypatch.setattr(policies, "gemm", lambda a, b, out: torch.matmul(a, b, out=out))
    program = tiny()
    with pytest.raises(SystemExit, match="another cuBLASLt"):
        policies.difference(program, Arm(lambda _: program.run(policies._ours)))


def test_answers_are_the_bests_under_the_policy_that_is_asked(tmp_path: Path) -> None:
    problem = Gemm.parse("4096x4096x4096")
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}", create=True) as store:
        study = store.begin_study(study_key(problem))
        finals = [
            measured(config, us, problem, "final", policy=policy)
            for policy, own_us in ((Policy.SUSTAINED, 200.0), (Policy.CHAIN, 215.5))
            for config, us in ((OWN, own_us), (LIBRARY, 215.0))
        ]
        store.set_bests(bests_of(problem, store.record_many(study.id, finals, PROVENANCE), 2, {}))

        alone = policies.Answers.of(store, [problem], DEVICE, Policy.SUSTAINED)
        chain = policies.Answers.of(store, [problem], DEVICE, Policy.CHAIN)
        with pytest.raises(SystemExit, match="no best under burst"):
            policies.Answers.of(store, [problem], DEVICE, Policy.BURST)

    assert (alone.families(), chain.families()) == ("sm90_wgmma", "cublaslt")
    assert alone.find(Gemm.parse("64x64x64"), DEVICE).config is None


def test_the_table_has_a_line_for_each_policy() -> None:
    us = dict.fromkeys(("turns", "alone", "burst", "chain"), 400.0)
    timed = {"torch": Times(us, 2.0), "chain": Times(us | {"alone": 320.0}, 1.5)}
    answers = {"chain": policies.Answers({"a": Found(OWN, "", "measured")})}

    lines = policies.table(4096, timed, answers, {"chain": 0.00912}).splitlines()

    assert "100.0 µs a layer" in lines[0]
    assert lines[-1] == "| chain | 1.000 | 1.250 | 1.000 | 1.000 | 0.750 | 0.0091 | sm90_wgmma |"
