"""The parent's half of the GPU worker, against a process that hangs, crashes or vanishes on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from space.cards import CARDS
from space.config import Config
from space.family import family_named
from space.kinds.gemm import Gemm
from tests.fleet import eventually
from workers.build import Build, BuildFailure
from workers.builder import Builder, BuildResult, Constants
from workers.cuda.round import reference_seconds
from workers.cuda.worker import CudaWorker
from workers.errors import DriverError, ProcessError
from workers.measurement import Outcome

FAMILY = family_named("sm90_wgmma")
PROBLEM = Gemm.parse("256x256x256")
#: What the library runs of 8x8x8 and doesn't list: the higher its tile, the faster, but from 100 on it is slow.
#: `stages` of one says how it behaves, as `tile_n` of ours does.
UNLISTED = [
    family_named("cublaslt").config({"algorithm": 66, "tile": tile, "stages": stages})
    for tile, stages in ((1, 64), (99, 16), (3, 64), (2, 64), (100, 64), (4, 64))
]

#: Answers as the GPU process does. `stages` of a config says how it behaves; what it did stands in the log.
PROCESS = """
import json, os, sys, time
sys.path.insert(0, {root!r})
from space.family import family_named
from workers.framing import receive, send
from workers.measurement import Measurement, Outcome, Policy, Verification, to_json
log, read_fd, write_fd = {log!r}, int(sys.argv[3]), int(sys.argv[4])
FACTS = dict(name="NVIDIA H200", arch="sm_90a", kind="cuda", uuid="GPU-0", driver="580.1", sm_count=132,
             l2_bytes=1, memory_bytes=1)
def measured(question):
    config = family_named(question["family"]).parse(question["knobs"])
    us = 1.0 if config.family != "cublaslt" else 1 - config["tile"] / 1000 if config["tile"] < 100 else 1.06
    made = Measurement({problem!r}, config, "screen", Policy.BURST, Outcome.CORRECT, (us,),
                       verification=Verification(1, 0, 0.5, ""))
    return json.loads(to_json(made))
def note(line):
    with open(log, "a") as out: print(line, file=out)
prepared, armed, sick = False, [], ""
if os.path.exists(log + ".gone"):
    receive(read_fd)
    send(write_fd, dict(error="cuda:0 is not here: this machine has 0 GPU", kind="DriverError"))
while True:
    question = receive(read_fd)
    match question["do"]:
        case "hello": send(write_fd, dict(facts=FACTS, libraries=dict(cublaslt="130100", nvrtc="13.0"), notices=[]))
        case "prepare":
            note(f"prepare {{question['problem']}} {{question['seed']}}")
            prepared = True
            if question["problem"].find(":9x9x8:") > 0: time.sleep(60)
            if question["problem"].find(":7x7x8:") > 0:
                send(write_fd, dict(error="cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", kind="CudaError",
                                    name="CUDA_ERROR_OUT_OF_MEMORY", lost=False))
            else: send(write_fd, dict(baselines=[], unlisted={unlisted!r} if ":8x8x8:" in question["problem"] else []))
        case "screen" | "arm":
            assert prepared
            knobs = dict(pair.split("=") for pair in question["knobs"].split(","))
            note(f"{{question['do']}} {{question['knobs']}}")
            match knobs.get("tile_n", knobs.get("stages")):
                case "8": time.sleep(60)
                case "16": os.abort()
                case "24":
                    send(write_fd, dict(error="cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS", kind="CudaError",
                                        name="CUDA_ERROR_ILLEGAL_ADDRESS", lost=True))
                    os._exit(1)
                case "136" | "144":
                    send(write_fd, dict(error="cuLaunchKernel: CUDA_ERROR_INVALID_VALUE", kind="CudaError",
                                        name="CUDA_ERROR_INVALID_VALUE", lost=False))
                    sick = knobs["tile_n"]
                    continue
                case "32":
                    open(log + ".gone", "w").close()
                    os._exit(1)
                case "40" if not os.path.exists(log + ".once"):
                    # Dies once, as when a candidate sent ahead kills the process while it is made ready.
                    open(log + ".once", "w").close()
                    os._exit(1)
            if question["do"] == "arm":
                armed.append(knobs.get("tile_n"))
                send(write_fd, dict(reason=""))
            else: send(write_fd, measured(question))
        case "drop" if sick == "136": os._exit(1)
        case "drop" if sick == "144":
            send(write_fd, dict(error="cuMemFree: CUDA_ERROR_UNKNOWN", kind="CudaError", name="CUDA_ERROR_UNKNOWN",
                                lost=False))
        case "drop" | "baselines": send(write_fd, dict())
        case "finals":
            note("finals")
            if "56" in armed: os._exit(1)
            if "152" in armed: time.sleep(60)
            if "88" in armed and not os.path.exists(log + ".timed"):
                open(log + ".timed", "w").close()
                os._exit(1)
            send(write_fd, dict(measurements=[]))
"""


#: Of a GPU that answers nothing but this.
UNUSABLE = """
import os, sys
sys.path.insert(0, {root!r})
from workers.framing import receive, send
receive(int(sys.argv[3]))
if {name!r}:
    send(int(sys.argv[4]), dict(error="cuDevicePrimaryCtxRetain: {name}", kind="CudaError", name={name!r}, lost=True))
os._exit(1)
"""


def config(tile_n: int, **knobs: object) -> Config:
    return FAMILY.config({"tile_n": tile_n, "epilogue": "direct", **knobs})


@pytest.fixture
def worker(tmp_path: Path, script: Callable[..., str]) -> Iterator[CudaWorker]:
    process = [script(PROCESS, problem=PROBLEM.key, unlisted=[one.key for one in UNLISTED])]
    with CudaWorker(0, tmp_path / "cache", process=process) as opened:
        # Nothing is compiled here: what a candidate's build is does not matter to the protocol.
        opened.builder._compile = lambda problem, config, constants: (  # type: ignore[method-assign]
            BuildFailure("planted", "") if config["tile_n"] == 48 else Build(config.key, b"", 0, (), "", 0.0)
        )
        yield opened
        opened.builder.close()


@pytest.mark.parametrize(
    ("name", "said"), [("CUDA_ERROR_DEVICE_UNAVAILABLE", "DEVICE_UNAVAILABLE"), ("", "ended .exit status 1")]
)
def test_a_gpu_that_cannot_be_opened_is_told_with_the_reason_and_what_to_do(
    tmp_path: Path, script: Callable[..., str], name: str, said: str
) -> None:
    with pytest.raises(DriverError, match=rf"cuda:0 can't be used \(.*{said}.*\): check it with nvidia-smi"):
        CudaWorker(0, tmp_path / "cache", process=[script(UNUSABLE, name=name)])


def outcomes(worker: CudaWorker, candidates: list[Config]) -> dict[int, Outcome]:
    round_ = worker.begin(PROBLEM)
    measured = list(round_.screen(candidates))
    assert len(measured) == len(candidates)
    return {m.config.number("tile_n"): m.outcome for m in measured}


#: Of a test in which a candidate hangs; others outlast a machine that is slow or pauses.
HANG_SECONDS = 3.0
GOOD = [64, 72, 80, 88, 96, 104, 112, 120, 128]


@pytest.mark.parametrize(
    ("bad", "outcome"), [(8, Outcome.TIMEOUT), (16, Outcome.LAUNCH), (24, Outcome.LAUNCH), (48, Outcome.COMPILE)]
)
def test_a_bad_candidate_costs_itself_alone(worker: CudaWorker, log: Path, bad: int, outcome: Outcome) -> None:
    if outcome is Outcome.TIMEOUT:
        worker.deadline_seconds = HANG_SECONDS
    got = outcomes(worker, [config(n) for n in [*GOOD[:4], bad, *GOOD[4:]]])
    assert got == {bad: outcome} | dict.fromkeys(GOOD, Outcome.CORRECT)
    prepared = [line for line in log.read_text().splitlines() if line.startswith("prepare")]
    # The same operands before and after the loss of the process.
    assert len(set(prepared)) == 1
    assert (len(prepared) > 1) == (outcome is not Outcome.COMPILE)


@pytest.mark.parametrize("bad", [136, 144])
def test_a_process_that_cannot_drop_what_it_holds_is_replaced(worker: CudaWorker, log: Path, bad: int) -> None:
    got = outcomes(worker, [config(n) for n in [*GOOD[:4], bad, *GOOD[4:]]])
    assert got == {bad: Outcome.LAUNCH} | dict.fromkeys(GOOD, Outcome.CORRECT)
    assert sum(line.startswith("prepare") for line in log.read_text().splitlines()) == 2
    (failed,) = worker.begin(PROBLEM).finals([config(64), config(bad)], 5)
    assert (failed.config, failed.outcome) == (config(bad), Outcome.LAUNCH)


def test_all_kinds_of_bad_candidates_in_one_screening(worker: CudaWorker) -> None:
    worker.deadline_seconds = HANG_SECONDS
    bad = {8: Outcome.TIMEOUT, 16: Outcome.LAUNCH, 24: Outcome.LAUNCH, 48: Outcome.COMPILE}
    got = outcomes(worker, [config(n) for n in [16, *GOOD[:3], 24, 8, *GOOD[3:], 48]])
    assert got == bad | dict.fromkeys(GOOD, Outcome.CORRECT)


@pytest.mark.parametrize(("finalists", "attempts"), [([64, 72, 80, 56], 3), ([64, 56, 72, 80], 4), ([56, 64], None)])
def test_what_ends_the_process_among_others_is_left_out_by_halves(
    worker: CudaWorker, log: Path, finalists: list[int], attempts: int | None
) -> None:
    round_ = worker.begin(PROBLEM)
    if attempts is None:
        with pytest.raises(ProcessError, match="failed 4 times, at last: the GPU process ended"):
            round_.finals([config(n) for n in finalists], 5)
    else:
        assert round_.finals([config(n) for n in finalists], 5) == ()
    assert log.read_text().splitlines().count("finals") == (attempts or 4)


def test_a_finalist_that_does_not_compile_costs_itself_alone(worker: CudaWorker) -> None:
    (failed,) = worker.begin(PROBLEM).finals([config(64), config(48), config(72)], 5)
    assert (failed.config, failed.outcome, failed.stage) == (config(48), Outcome.COMPILE, "final")


@pytest.mark.parametrize("others", [GOOD, []])
def test_a_process_that_was_ended_once_is_blamed_on_nobody(worker: CudaWorker, others: list[int]) -> None:
    candidates = [*others[:3], 40, *others[3:]]
    assert outcomes(worker, [config(n) for n in candidates]) == dict.fromkeys(candidates, Outcome.CORRECT)


def test_a_finalist_at_which_the_process_was_ended_once_stays(worker: CudaWorker) -> None:
    assert worker.begin(PROBLEM).finals([config(64), config(40)], 5) == ()


def test_none_is_left_out_where_the_process_ended_once_at_one_of_them_and_once_at_all(
    worker: CudaWorker, log: Path
) -> None:
    finalists = [config(64), config(72), config(40), config(88)]
    assert worker.begin(PROBLEM).finals(finalists, 5) == ()
    assert log.read_text().splitlines()[-5:] == [*(f"arm {one.knobs_text}" for one in finalists), "finals"]


def test_the_others_go_on_however_many_finalists_end_the_process_before(worker: CudaWorker) -> None:
    bad = [config(16, stages=stages) for stages in range(2, 7)]
    failed = worker.begin(PROBLEM).finals([config(64), *bad], 5)
    assert [(one.config, one.outcome) for one in failed] == [(one, Outcome.LAUNCH) for one in bad]


def test_more_is_asked_for_before_the_device_has_to_wait(worker: CudaWorker, log: Path) -> None:
    # 48 does not build, and the last of the further ones is illegal: neither is sent.
    further = [[config(n) for n in GOOD[5:]], [config(48), FAMILY.config({"tile_n": 256, "tile_m": 256, "stages": 12})]]
    taken: list[int] = []
    asked_at: list[int] = []

    def more() -> list[Config]:
        asked_at.append(len(taken))
        return further.pop(0) if further else []

    for measurement in worker.begin(PROBLEM).screen([config(n) for n in GOOD[:5]], more):
        taken.append(measurement.config.number("tile_n"))
    assert sorted(taken) == sorted([*GOOD, 48, 256])
    sent = [line for line in log.read_text().splitlines() if line.startswith("screen")]
    assert len(sent) == len(GOOD)
    assert asked_at[0] < 5, "candidates were still under way"


def test_compilers_that_have_nothing_to_do_are_given_more_before_the_first_build_is_done(worker: CudaWorker) -> None:
    together = threading.Barrier(4)

    def compiled(problem: Gemm, config: Config, constants: Constants) -> BuildResult:
        # No build finishes before four have started.
        together.wait(60)
        return Build(config.key, b"", 0, (), "", 0.0)

    builder = worker.builder = Builder(None, threads=4)
    builder._compile = compiled  # type: ignore[method-assign]
    further = [config(n) for n in GOOD[1:8]]
    screening = worker.begin(PROBLEM).screen([config(GOOD[0])], lambda: [further.pop(0)] if further else [])
    assert {m.config.number("tile_n") for m in screening} == set(GOOD[:8])


def test_an_illegal_candidate_is_told_and_never_sent(worker: CudaWorker, log: Path) -> None:
    illegal = FAMILY.config({"tile_n": 256, "tile_m": 256, "stages": 12})
    (measured,) = worker.begin(PROBLEM).screen([illegal])
    assert measured.outcome is Outcome.CONSTRAINTS
    assert "screen" not in log.read_text()


def test_a_device_that_vanishes_ends_the_screening_and_blames_no_candidate(worker: CudaWorker) -> None:
    round_ = worker.begin(PROBLEM)
    before = list(round_.screen([config(n) for n in GOOD]))
    with pytest.raises(DriverError, match="cuda:0 is not here"):
        list(round_.screen([config(32)]))
    assert len(before) == len(GOOD)


def test_a_screening_that_is_left_early_leaves_no_answers_behind(worker: CudaWorker) -> None:
    round_ = worker.begin(PROBLEM)
    screening = round_.screen([config(n) for n in GOOD])
    next(screening)
    assert round_.finals([config(64)], 5) == ()
    assert {m.config.number("tile_n") for m in round_.screen([config(72)])} == {72}


def test_a_hang_behind_a_screening_that_was_left_is_nobodys_fault(worker: CudaWorker) -> None:
    worker.deadline_seconds = HANG_SECONDS
    round_ = worker.begin(PROBLEM)
    for first in (config(8), config(64), config(72)):
        worker.tell(round_._question("screen", first, ""))
    assert round_.finals([config(80)], 5) == ()


def test_a_finalist_that_fails_is_told_and_the_others_go_on(worker: CudaWorker) -> None:
    worker.deadline_seconds = HANG_SECONDS
    round_ = worker.begin(PROBLEM)
    failed = round_.finals([config(64), config(24), config(8), config(72)], 5)
    assert {(m.config.number("tile_n"), m.outcome, m.stage) for m in failed} == {
        (24, Outcome.LAUNCH, "final"), (8, Outcome.TIMEOUT, "final"),
    }  # fmt: skip
    assert all(m.build_digest for m in failed)


#: Products of float64 that a multiprocessor adds in a clock; of the archs that are missing, 2.
FLOAT64_PER_CLOCK = {"sm_80": 32, "sm_90a": 64, "sm_100a": 64}


@pytest.mark.parametrize("name", CARDS)
def test_the_reference_has_time_on_every_card(name: str) -> None:
    card, problem = CARDS[name], Gemm.parse("16384x16384x16384")
    most = 2 * FLOAT64_PER_CLOCK.get(card.arch, 2) * card.sm_count * card.boost_ghz * 1e9
    assert reference_seconds(problem, card.arch, card.sm_count) > 3 * problem.flops / most


def test_a_wrong_candidates_answer_may_wait_for_the_reference(worker: CudaWorker) -> None:
    problem, waited = Gemm.parse("8192x8192x8192"), list[float]()
    round_, hear = worker.begin(problem), worker.hear

    def heard(seconds: float) -> dict[str, object]:
        waited.append(seconds)
        return hear(seconds)

    worker.hear = heard  # type: ignore[method-assign]
    assert len(list(round_.screen([config(64)]))) == 1
    assert waited == [worker.deadline_seconds + reference_seconds(problem, "sm_90a", 132)]


def test_two_rounds_do_not_mix_their_operands(worker: CudaWorker, log: Path) -> None:
    first = worker.begin(PROBLEM)
    worker.begin(Gemm.parse("512x256x256"))
    list(first.screen([config(64)]))
    prepared = [line.split()[1] for line in log.read_text().splitlines() if line.startswith("prepare")]
    assert prepared[0] == prepared[2] != prepared[1]


def test_a_problem_that_does_not_fit_is_one_sentence_and_the_next_one_works(worker: CudaWorker) -> None:
    with pytest.raises(DriverError, match="needs more memory than NVIDIA H200 has free"):
        worker.begin(Gemm.parse("7x7x8"))
    assert outcomes(worker, [config(64)]) == {64: Outcome.CORRECT}


def test_a_problem_at_which_the_process_hangs_is_waited_for_once(
    worker: CudaWorker, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.cuda.round.PREPARE_SECONDS", 0.5)
    with pytest.raises(ProcessError, match=r"9x9x8 can't be prepared \(no answer within .*; all measurements are kept"):
        worker.begin(Gemm.parse("9x9x8"))
    assert log.read_text().count("prepare") == 1
    assert not worker.supervisor.alive


def test_library_candidates_are_measured_like_ours(worker: CudaWorker) -> None:
    wanted = [family_named("cublaslt").config({"rank": rank}) for rank in range(3)]
    measured = list(worker.begin(PROBLEM).screen([*wanted, config(64)]))
    assert {m.config for m in measured} == {*wanted, config(64)}
    assert {m.outcome for m in measured} == {Outcome.CORRECT}


def test_finals_of_a_worker_that_is_closed_end_and_start_no_process_again(worker: CudaWorker, log: Path) -> None:
    round_, errors = worker.begin(PROBLEM), list[BaseException]()

    def finals() -> None:
        try:
            round_.finals([config(64), config(152)], 5)
        except BaseException as error:
            errors.append(error)

    timing = threading.Thread(target=finals)
    timing.start()
    eventually(lambda: "finals" in log.read_text())
    worker.close()
    timing.join(60)
    assert [str(error) for error in errors] == ["the GPU process was closed: open the device again"]
    assert sum(line.startswith("prepare") for line in log.read_text().splitlines()) == 1


def test_the_fastest_that_the_library_does_not_list_go_into_the_finals(worker: CudaWorker, log: Path) -> None:
    round_ = worker.begin(Gemm.parse("8x8x8"))
    list(round_.screen([config(64)]))
    assert round_.finals([config(64)], 5) == ()
    armed = [line for line in log.read_text().splitlines() if line.startswith("arm")]
    # The one with tile 99 ends the process, so it has no time.
    assert armed == [f"arm {one.knobs_text}" for one in (config(64), UNLISTED[5], UNLISTED[2], UNLISTED[3])]


def test_what_the_library_does_not_list_stays_out_of_the_finals_where_it_is_slow(worker: CudaWorker, log: Path) -> None:
    round_ = worker.begin(Gemm.parse("8x8x8"))
    round_.unlisted = (UNLISTED[4],)
    list(round_.screen([config(64)]))
    assert round_.finals([config(64)], 5) == ()
    assert [line for line in log.read_text().splitlines() if line.startswith("arm")] == [f"arm {config(64).knobs_text}"]
