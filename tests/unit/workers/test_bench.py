"""A screening on a bench whose GPU is played: what it compares, repeats, restores and refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from space.devices import DriverFacts, profile_from
from space.kinds.gemm import Gemm
from tests.fake_bench import CLOCKS
from tests.support import FAMILY, PROBLEM
from tuner.evidence.picks import precedence
from workers.cuda import bench, driver
from workers.cuda.families import shared
from workers.cuda.outputs import Difference
from workers.cuda.timing import GIVE_UP_REPLAYS, SCREEN_REPLAYS
from workers.cuda.verification import Verdict
from workers.measurement import DeviceFacts, Measurement, Outcome, Policy, Verification

LAUNCHES = 20


class Played(bench.Bench):
    """The bench's own screening over a played GPU.

    Args:
        bursts: times of the replays of each burst, the first of which does not count.
        once_us: time of the single launch that was verified.
        wrong: why it is wrong when it is verified.
        found: what differs after the bursts.
    """

    def __init__(
        self, *bursts: list[float], once_us: float = 10.0, wrong: str = "", found: dict[int, Difference] | None = None
    ) -> None:
        self.log: list[str] = []
        self._bursts, self._found = list(bursts), found or {}
        verdict = Verdict(Verification(1, int(bool(wrong)), 0.5, ""), wrong, once_us, 30.0, 77)
        note = self.log.append
        self._verifier = SimpleNamespace(verify=lambda launch, meanwhile: (meanwhile(), verdict)[1])  # type: ignore[assignment]
        self._operands = SimpleNamespace(refresh=lambda: note("refresh"))  # type: ignore[assignment]
        self._shared = SimpleNamespace(reset=lambda: note("reset"))  # type: ignore[assignment]
        self.outputs = SimpleNamespace(  # type: ignore[assignment]
            poison=lambda: note("poison"), compare=lambda digest: note(f"compare {digest}"),
            differences=lambda: self._found,
        )  # fmt: skip
        self.monitor = SimpleNamespace(read=lambda: CLOCKS, others=lambda: ())  # type: ignore[assignment]
        self.stream, self._problem = None, PROBLEM  # type: ignore[assignment]
        self._expected_us, self._expecting, self._best_once_us = 5.0, True, math.inf
        self.busy_us, self._looked_around, self._others = 0.0, 0.0, ""

    def _start(self, _: object, replays: int, between: Callable[[], None]) -> None:
        for number in range(replays):
            self.log.append(f"replay {number}")
            between()

    def _recorded(self, launcher: Any, expected_us: float) -> Any:  # noqa: ANN401
        self.log.append(f"record for {expected_us:g} us")
        return SimpleNamespace(
            launches=LAUNCHES, start=self._start, samples_us=lambda: tuple(self._bursts.pop(0)),
            destroy=lambda: self.log.append("destroy"),
        )  # fmt: skip

    def screened(self) -> Measurement:
        """One candidate's measurement; the log begins with what its screening did."""
        launcher = SimpleNamespace(note="")
        ready: Any = SimpleNamespace(
            config=FAMILY.config({}), digest="d", launcher=launcher, launch=None, timed=self._recorded(launcher, 5.0)
        )
        self.log.clear()
        return self.screen(ready, lambda: self.log.append("begun"), lambda: self.log.append("meanwhile"))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.Rest, "wait", lambda _: None)


def test_what_every_replay_wrote_is_compared_and_poisoned_again() -> None:
    played = Played([99.0, 10.0, 11.0, 10.5])
    measured = played.screened()
    each = [word for number in range(1 + SCREEN_REPLAYS) for word in (f"replay {number}", "compare 77", "poison")]
    assert played.log == ["begun", "poison", "meanwhile", *each]
    assert (measured.outcome, measured.samples_us) == (Outcome.CORRECT, (10.0, 11.0, 10.5))
    assert played.busy_us == 30.0 + (99.0 + 10.0 + 11.0 + 10.5) * LAUNCHES
    assert (played._expected_us, played._expecting, played._best_once_us) == (10.5, False, 10.0)


def test_the_gpu_rests_for_as_long_as_it_works_for_one_as_fast_as_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = list[float]()
    monkeypatch.setattr(bench, "Rest", lambda seconds: SimpleNamespace(wait=lambda: rests.append(seconds)))
    played = Played([500.0] * 4, [900.0] * 4, [400.0] * 4, [5.0] * 4, [5.0] * 4)
    played._expected_us, played._expecting = 500.0, False
    for _ in range(5):
        played.screened()
    # Verified, replayed once uncounted and three times; the slower one changes nothing, and the least is 5 ms.
    work_us = [30 + (1 + SCREEN_REPLAYS) * LAUNCHES * fastest_us for fastest_us in (500, 500, 500, 400)]
    assert rests == [*(pytest.approx(us / 1e6) for us in work_us), bench.REST_SECONDS]


def test_a_candidate_far_behind_is_replayed_less_often() -> None:
    played = Played([300.0, 300.0, 300.0], once_us=300.0)
    played._best_once_us = 10.0
    assert len(played.screened().samples_us) == GIVE_UP_REPLAYS
    assert played._best_once_us == 10.0


def test_unsteady_samples_are_taken_once_more() -> None:
    steady = Played([9.0, 10.0, 20.0, 20.0], [9.0, 10.0, 10.0, 10.1])
    assert steady.screened().samples_us == (10.0, 10.0, 10.1)
    unsteady = Played([9.0, 10.0, 20.0, 20.0], [9.0, 10.0, 20.0, 20.0])
    assert unsteady.screened().outcome is Outcome.UNSTABLE
    assert unsteady._best_once_us == math.inf


def test_who_is_wrong_when_verified_is_not_timed_and_may_have_written_anywhere() -> None:
    played = Played(wrong="3 elements")
    measured = played.screened()
    assert (measured.outcome, measured.detail) == (Outcome.WRONG_RESULT, "3 elements")
    assert played.log == ["begun", "refresh", "reset"]


def test_who_is_wrong_while_it_is_timed_is_told_with_the_launch_and_may_have_written_anywhere() -> None:
    played = Played([9.0, 10.0, 10.0, 10.0], found={0: Difference(1, 4, 2)})
    measured = played.screened()
    assert measured.outcome is Outcome.WRONG_RESULT
    # The third of the four copies is the last launch but one of 20.
    assert "launch 19 of 20" in measured.detail
    assert played.log[-2:] == ["refresh", "reset"]


def test_a_graph_that_would_run_too_long_is_recorded_again_with_fewer_launches() -> None:
    long_us = bench.LONGEST_REPLAY_US / LAUNCHES + 1
    played = Played([long_us] * 4, once_us=long_us)
    played.screened()
    assert played.log[:3] == ["begun", "destroy", f"record for {long_us:g} us"]
    short = Played([long_us - 2] * 4, once_us=long_us - 2)
    short.screened()
    assert "destroy" not in short.log


@pytest.mark.parametrize("shape", ["4096x4096x4096", "16x4096x4096"])
@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H200 (500 W)", "NVIDIA RTX 9999"])
def test_finals_take_most_turns_under_the_policy_that_decides(
    name: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("Operands", "Outputs", "Verifier"):
        monkeypatch.setattr(bench, part, lambda *_: None)
    without = SimpleNamespace(candidates=lambda *_: ())
    monkeypatch.setattr(bench, "launcher_of", lambda _: without)
    played, problem = Played(), Gemm.parse(shape)
    played._problem, played._tools = None, None  # type: ignore[assignment]
    said = DriverFacts(name, "sm_90a", 132, 50 * 2**20, 80 * 2**30, highest_clock_ghz=1.98, memory_tbs=4.0)
    played._device = profile_from(said)
    played.facts = DeviceFacts(name, "sm_90a", "cuda", "GPU-0", "580.1", 132, 50 * 2**20)
    played.prepare(problem, seed=1)
    assert played.power_decides == (precedence(problem, name)[0] is Policy.SUSTAINED)


def test_errors_of_a_lost_context_are_told_by_the_next_call_when_a_candidate_is_freed() -> None:
    def lost() -> None:
        raise driver.CudaError("cuLibraryUnload", "CUDA_ERROR_ILLEGAL_ADDRESS")

    gone: Any = SimpleNamespace(unload=lost, destroy=lost)
    bench.Ready(FAMILY.config({}), "d", gone, None, gone).discard()  # type: ignore[arg-type]


@pytest.mark.parametrize("room", [False, True])
def test_the_program_of_a_candidate_for_which_memory_runs_out_is_freed(
    monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    class Launcher:
        """Loads its program, then asks for scratch memory."""

        def __init__(self, *of: Any) -> None:  # noqa: ANN401
            of[-1].loaded(b"", lambda _: SimpleNamespace(unload=lambda: freed.append("program")))
            of[-1].scratch("partials", 1 << 40)

    def allocate(size_bytes: int) -> SimpleNamespace:
        if not room:
            raise driver.CudaError("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY")
        return SimpleNamespace(address=1, size_bytes=size_bytes)

    freed = list[str]()
    monkeypatch.setattr(bench, "launcher_of", lambda _: Launcher)
    monkeypatch.setattr(shared, "Buffer", SimpleNamespace(allocate=allocate))
    played = Played()
    played._shared, played._device = shared.Shared(), None  # type: ignore[assignment]
    with nullcontext() if room else pytest.raises(driver.CudaError, match="OUT_OF_MEMORY"):
        played.load(FAMILY.config({}), "")
    assert freed == ([] if room else ["program"])
