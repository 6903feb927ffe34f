"""`benchmarks.deployed` without a GPU: which arms are timed, in which order, and what a row says of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from benchmarks import deployed_measuring, deployed_timing  # noqa: E402
from benchmarks.deployed_timing import Arm, Energy, Times  # noqa: E402
from gemmtune.torch import kernels  # noqa: E402
from gemmtune.torch.operands import problem_of  # noqa: E402
from space.config import Config  # noqa: E402
from space.families.cublaslt import NOT_LISTED  # noqa: E402
from space.family import family_named  # noqa: E402
from space.kinds.gemm import LAYOUTS, Gemm  # noqa: E402
from tests.support import DEVICE, PROVENANCE, keep_best, measured, study_key  # noqa: E402
from tuner.evidence.picks import bests_of  # noqa: E402
from tuner.evidence.store import Store  # noqa: E402
from workers.measurement import Policy  # noqa: E402

PROBLEM = Gemm.parse("16x4096x4096")
OWN, SLOWER = (family_named("sm90_wgmma").config({"tile_n": width}) for width in (64, 256))
FIRST, BEST, UNLISTED = (family_named("cublaslt").config({"rank": rank}) for rank in (0, 1, 2))
OURS = (OWN, 8.0), (SLOWER, 9.0), (FIRST, 12.0), (BEST, 10.0)


class Torch:
    """Stands in for `gemmtune.torch`: what is configured last is prepared next, or refused."""

    served: Config

    def __init__(self, refused: set[Config]) -> None:
        self.refused, self.prepared = refused, list[object]()
        self._found: Any = None

    def configure(self, named: object, trusted: object) -> None:
        self._found = named.config if isinstance(named, deployed_measuring.Planted) else None

    def gemm(self, a: object, b: object, out: object) -> None:
        config = self._found or self.served
        if config in self.refused:
            self.prepared.append(type("Absent", (), {"why": "another cuBLASLt"})())
        else:
            self.prepared.append(kernels.Kernel.__new__(kernels.Kernel))


def row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: tuple[tuple[Config, float], ...], refused: set[Config]
) -> tuple[deployed_measuring.Row, list[str]]:
    stand_in, timed = Torch(refused), list[str]()

    def times(arms: Mapping[str, Arm], *_: object, settles: bool) -> dict[str, Times]:
        timed.extend(arms)
        return {arm: Times({"alone": float(place)}, 1.0) for place, arm in enumerate(arms)}

    monkeypatch.setattr(deployed_measuring, "configure", stand_in.configure)
    monkeypatch.setattr(deployed_measuring, "gemm", stand_in.gemm)
    monkeypatch.setattr(kernels, "everything", lambda: stand_in.prepared)
    monkeypatch.setattr(deployed_measuring, "theirs", lambda problem: lambda each: None)
    monkeypatch.setattr(deployed_measuring, "sets_of", lambda *_: [(None, None, None, None)])
    monkeypatch.setattr(deployed_measuring, "times", times)
    monkeypatch.setattr(deployed_measuring, "_error", lambda one: 1.0)
    with Store.open(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        study = store.begin_study(study_key(PROBLEM))
        finals = [measured(config, us, PROBLEM, "final", policy=Policy.CHAIN) for config, us in taken]
        finals = [replace(one, note=NOT_LISTED) if one.config == UNLISTED else one for one in finals]
        # Under another policy another one is the fastest of ours.
        finals.append(measured(SLOWER, 1.0, PROBLEM, "final", policy=Policy.ROUNDS))
        bests = bests_of(PROBLEM, store.record_many(study.id, finals, PROVENANCE), 4, {})
        store.set_bests(bests)
        stand_in.served = bests[0].config
        found = deployed_measuring.row(store, "store.db", "a", "decode", PROBLEM, DEVICE, Energy())
    assert isinstance(found, deployed_measuring.Row)
    return found, timed


def test_an_arm_with_the_config_that_is_served_is_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, timed = row(tmp_path, monkeypatch, OURS, set())
    assert timed == ["torch", "served", "library"]
    assert found.us["own"] is found.us["served"]
    assert found.served == "sm90_wgmma, chain"


def test_where_the_library_is_served_the_best_of_ours_is_timed_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, timed = row(tmp_path, monkeypatch, ((OWN, 8.0), (FIRST, 6.0), (BEST, 5.0)), set())
    assert timed == ["torch", "served", "own"]
    assert found.us["library"] is found.us["served"]
    assert found.served == "cublaslt, chain"


def test_what_the_library_does_not_list_is_an_arm_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, timed = row(tmp_path, monkeypatch, (*OURS, (UNLISTED, 9.0)), set())
    assert timed == ["torch", "served", "library", "unlisted"]
    assert found.us["library"] != found.us["unlisted"]


def test_an_arm_that_torch_computes_has_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, timed = row(tmp_path, monkeypatch, OURS, {BEST})
    assert timed == ["torch", "served"]
    assert {*found.us} == {"torch", "served", "own"}
    assert found.served == "sm90_wgmma, chain"


def test_a_served_config_that_torch_computes_is_not_called_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, timed = row(tmp_path, monkeypatch, OURS, {OWN})
    assert timed == ["torch", "served", "library"]
    assert {*found.us} == {"torch", "served", "library"}
    assert found.served == "torch: another cuBLASLt"


@pytest.mark.parametrize(("served", "torchs", "error"), [
    (6.0, 5.0, 2.0), (4.0, 4.0, 0.0), (5.0, 4.0, math.inf), (math.nan, 4.0, math.inf),
])  # fmt: skip
def test_an_error_is_a_multiple_of_torchs_and_infinite_where_torch_has_none(
    monkeypatch: pytest.MonkeyPatch, served: float, torchs: float, error: float
) -> None:
    everything = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda count, device: everything(count))
    a, b = torch.ones(2, 4), torch.ones(4, 3)
    assert deployed_measuring._error((a, b, torch.full((2, 3), served), torch.full((2, 3), torchs))) == error


def test_a_product_that_the_arms_do_not_compute_is_refused_before_it_is_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: DEVICE)
    monkeypatch.setattr(deployed_measuring, "tuner_of", lambda *_: nullcontext(None))
    wanted = [("batch", "moe", Gemm.of(16, 64, 64, batch=4)), ("bias", "decode", Gemm.of(16, 64, 64, epilogue="bias"))]
    wanted.append(("sums", "decode", Gemm.of(16, 64, 64, "fp16_acc16")))
    found = dict(deployed_measuring.measured(wanted, str(tmp_path / "store.db"), 4, math.inf))
    assert [*found] == ["batch", "bias", "sums"]
    assert found["batch"] == found["bias"] == "the arms multiply two matrices, without a batch or an epilogue"
    assert str(found["sums"]).endswith("int8, not fp16_acc16")


def test_nothing_is_tuned_where_cublaslt_can_not_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = SimpleNamespace(facts=SimpleNamespace(name=DEVICE), program=lambda _: SimpleNamespace(cublaslt=""))
    monkeypatch.setattr(deployed_measuring, "open_worker", lambda *_: nullcontext(alone))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: DEVICE)
    wanted = [("square", "square", Gemm.of(64, 64, 64))]
    with pytest.raises(SystemExit, match="cuBLASLt can't be loaded"):
        dict(deployed_measuring.measured(wanted, str(tmp_path / "store.db"), 4, math.inf))


@pytest.mark.parametrize(("clause", "count"), [("", 0), ("its kernel has changed since", 1)])
def test_what_the_store_has_as_stale_is_tuned_again(monkeypatch: pytest.MonkeyPatch, clause: str, count: int) -> None:
    """Torch would compute what is stale, and every ratio would be 1."""
    tuned = list[Gemm]()
    worker = SimpleNamespace(facts=SimpleNamespace(name=DEVICE), program=lambda _: SimpleNamespace(cublaslt="130100"))
    monkeypatch.setattr(deployed_measuring, "open_worker", lambda *_: nullcontext(worker))
    monkeypatch.setattr(deployed_measuring, "staleness_here", lambda _: clause)
    monkeypatch.setattr(deployed_measuring, "tune", lambda *given, **_: tuned.append(given[2]))
    with Store.open("sqlite://") as store, deployed_measuring.tuner_of(store, 4) as tune:
        keep_best(store, PROBLEM)
        tune(PROBLEM)
    assert len(tuned) == count


def test_the_problem_that_is_tuned_is_the_one_that_torch_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = list[Gemm]()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: DEVICE)
    monkeypatch.setattr(deployed_measuring, "tuner_of", lambda *_: nullcontext(tuned.append))
    wanted = [("row", "decode", Gemm.of(1, 64, 64, layout="tn")), ("column", "decode", Gemm.of(64, 1, 64))]
    found = dict(deployed_measuring.measured(wanted, str(tmp_path / "store.db"), 4, math.inf))
    assert [problem.layout for problem in tuned] == ["nn", "nt"]
    assert found["row"] == "bf16 nn 1x64x64 was not tuned"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", list(itertools.product((1, 7), (1, 5), (1, 3))))
def test_layouts_are_read_off_operands_like_those_that_are_timed(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], layout: str
) -> None:
    randn, empty = torch.randn, torch.empty
    monkeypatch.setattr(torch, "randn", lambda *sizes, device, dtype: randn(*sizes, dtype=dtype))
    monkeypatch.setattr(torch, "empty", lambda *sizes, device, dtype: empty(*sizes, dtype=dtype))
    problem = Gemm.of(*shape, layout=layout)
    a, b, *_ = deployed_measuring.sets_of(problem, 1)[0]
    asked = problem_of(a, b, None, None, 1.0, "none", torch.bfloat16, False)
    assert deployed_measuring.as_seen(problem) == asked


class Replayed:
    """A graph whose replays take given times, one after the other, and are noted."""

    def __init__(self, name: str, count: int, us: list[float], noted: list[str]) -> None:
        self.name, self.count, self._us, self._noted = name, count, us, noted

    def us(self) -> float:
        self._noted.append(self.name)
        return self._us[(self._noted.count(self.name) - 1) % len(self._us)]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What replays, and the seconds of rest and of work between."""
    noted = list[str]()
    monkeypatch.setattr(deployed_timing.time, "sleep", lambda seconds: noted.append(f"rest {seconds}"))

    def work(graph: Replayed, about_us: float, seconds: float) -> float:
        noted.append(f"{graph.name} {seconds:.2f}")
        return graph.us()

    monkeypatch.setattr(deployed_timing, "_work", work)
    return noted


@pytest.mark.parametrize(("other_us", "warmed"), [(100.0, 0), (99.0, 11)])
def test_bursts_rest_before_each_and_where_a_graph_is_short_all_run_once_more(
    noted: list[str], other_us: float, warmed: int
) -> None:
    times = {"long": [100.0, 104.0, 101.0], "other": [other_us]}
    graphs: Any = {name: Replayed(name, 4, us, noted) for name, us in times.items()}
    assert deployed_timing.bursts(graphs)["other"] == other_us
    rest = "rest 0.015"
    assert noted[:4] == [rest, "long", rest, "other"]
    # The order changes; all arms begin alike.
    assert noted[4:10] == ([rest, "other", "other", rest, "long", "long"] if warmed else
                           [rest, "other", rest, "long", rest, "long"])  # fmt: skip
    assert (noted.count("long"), noted.count("other")) == (12 + warmed, 12 + warmed)


def test_a_short_bursts_uncounted_run_is_not_counted(noted: list[str]) -> None:
    # The first is counted, then each second replay.
    graphs: Any = {"short": Replayed("short", 4, [90.0, 80.0], noted)}
    assert deployed_timing.bursts(graphs) == {"short": 90.0}


def test_turns_change_their_order_and_there_are_as_many_of_long_products(noted: list[str]) -> None:
    a = [9.0, 1.0, 2.0, 3.0, 9.0, 9.0] * 4
    graphs: Any = {"a": Replayed("a", 4, a, noted), "b": Replayed("b", 4, [5.0], noted)}
    assert deployed_timing.in_turn(graphs, 0.0) == {"a": 6.0, "b": 5.0}
    assert noted == ["a", "b", "b", "a"] * (deployed_timing.FEWEST_TURNS // 2)


@pytest.mark.parametrize("settles", [True, False])
def test_blocks_alone_come_in_two_orders_behind_uncounted_work(noted: list[str], settles: bool) -> None:
    graphs: Any = {"a": Replayed("a", 4, [1.0, 2.0], noted), "b": Replayed("b", 4, [3.0], noted)}
    uncounted = Energy.__new__(Energy)
    uncounted._nvml = None
    found = deployed_timing.alone(graphs, {"a": 1.0, "b": 3.0}, uncounted, settles=settles)
    before, counted = ("0.25", "0.85") if settles else ("0.10", "0.25")
    blocks = [f"{name} {seconds}" for name in "abba" for seconds in (before, counted)]
    assert [word for word in noted if " " in word] == ["a 4.00"] * settles + blocks
    assert [len(found[name]) for name in "ab"] == [2, 2]
    assert {block.us for block in found["b"]} == {3.0}
    assert {block.us for block in found["a"]} == ({1.0} if settles else {2.0})
    assert {block.watts for each in found.values() for block in each} == {None}


def test_an_arms_joules_are_its_power_alone_by_its_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = {"a": [deployed_timing.Block(8.0, 600.0), deployed_timing.Block(12.0, 700.0)],
              "b": [deployed_timing.Block(9.0, None)]}  # fmt: skip
    monkeypatch.setattr(torch, "zeros", lambda *_, device: None)
    monkeypatch.setattr(deployed_timing.Graph, "of", lambda arm, sets, count: (arm, count))
    monkeypatch.setattr(deployed_timing, "bursts", lambda graphs: dict.fromkeys(graphs, 1.0))
    monkeypatch.setattr(deployed_timing, "in_turn", lambda graphs, seconds: (
        # Chains are behind a small kernel; what is behind none is the arm itself.
        {name: 2.0 if graph[0] is arms[name] else 3.0 for name, graph in graphs.items()}
    ))  # fmt: skip
    monkeypatch.setattr(deployed_timing, "alone", lambda *_, settles: blocks)
    arms = {name: Arm(lambda each: None) for name in "ab"}
    found = deployed_timing.times(arms, [None], 3.0, Energy.__new__(Energy), settles=True)
    assert found["a"].us == {"turns": 2.0, "alone": 10.0, "burst": 1.0, "chain": 3.0}
    assert (found["a"].joules, found["b"].joules) == (pytest.approx(650 * 10e-6), None)
