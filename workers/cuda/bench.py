"""Bench: the state of the process that owns the GPU: one problem at a time, its candidates one after the other."""

from __future__ import annotations

import contextlib
import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Final

from space.config import Config
from space.devices import find_profile
from space.family import FAMILIES, family_named
from space.kind import kind_named
from space.problem import Problem
from space.rank import may_reach_power_limit, power_decides, roofline_us
from workers.build import BuildFailure, compile_source, kept_cubin, nvrtc_version
from workers.cuda.clocks import Monitor, processes_of
from workers.cuda.copies import OwnCopy
from workers.cuda.device import open_device
from workers.cuda.driver import Arguments, Buffer, CudaError, Stream
from workers.cuda.families import launcher_of
from workers.cuda.families.launcher import Launcher
from workers.cuda.families.shared import Shared
from workers.cuda.operands import Operands
from workers.cuda.outputs import Outputs
from workers.cuda.timing import (
    GIVE_UP_REPLAYS,
    SCREEN_REPLAYS,
    STEADY_SPREAD,
    TimedGraph,
    hopeless,
    launches_for,
    spread,
)
from workers.cuda.toolbox import Toolbox, pointer
from workers.cuda.verification import Verdict, Verifier
from workers.errors import DriverError, WorkerError
from workers.kernels.verify import SOURCE as VERIFY
from workers.measurement import SCREENING, Clocks, Measurement, Outcome, Policy, Stage

#: A replay that is expected to take longer is recorded again with the fewest launches.
LONGEST_REPLAY_US: Final = 100_000.0
#: Seconds between two looks for other processes on the GPU.
LOOK_AROUND_SECONDS: Final = 1.0
#: The GPU rests at least this long before a screening's replays, and as long as it would work for a candidate that is
#: as fast as the fastest so far. At half of its time at work a GPU stays below its power limit, an average over a tenth
#: of a second: what remains is the clock that the candidate's own power leaves it, as under `burst`.
#: `benchmarks.sustained_order` measures how well that predicts the order of `sustained` times.
REST_SECONDS: Final = 0.005
#: Of what a library doesn't name, as many are worth a screening (docs/kernels/search.md).
UNLISTED: Final = 16
#: Elements and threads of the small kernel around products under `chain`.
NEIGHBOUR_ELEMENTS, NEIGHBOUR_THREADS = 4096, 256


class Rest:
    """Idle time of the GPU that has begun; the host may work meanwhile."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = time.monotonic() + seconds

    def wait(self) -> None:
        """Waits for its end."""
        time.sleep(max(self._until - time.monotonic(), 0))


@dataclass
class Loaded:
    """A candidate whose program is on the GPU."""

    config: Config
    digest: str
    launcher: Launcher

    def discard(self) -> None:
        """Frees everything; a lost context is reported by the next call."""
        with contextlib.suppress(CudaError):
            self.launcher.unload()


@dataclass
class Ready(Loaded):
    """A candidate that is ready to run: its arguments are packed and its graph is recorded."""

    launch: Callable[[OwnCopy], None]
    timed: TimedGraph

    def rest(self) -> None:
        """Frees what needs no wait for the GPU; the candidate will not be timed again."""
        with contextlib.suppress(CudaError):
            self.timed.destroy()

    def discard(self) -> None:
        """Frees everything."""
        self.rest()
        super().discard()


class Bench:
    """One GPU, its context, and the problem being measured.

    Attributes:
        facts: of the device.
        libraries: libraries of the families that launch third-party kernels, by family.
        baselines: those families' candidates for the problem, the first choice of each library first.
        busy_us: time that the GPU has worked on candidates since the process began.
        outputs: of the problem, under watch while candidates are timed.
        may_reach_power_limit: whether arithmetic takes so much of the problem's time that power may limit the clock.
        power_decides: whether its times at that clock decide what is served.
    """

    outputs: Outputs
    may_reach_power_limit: bool
    power_decides: bool

    def __init__(self, ordinal: int, cache_dir: Path) -> None:
        self._cubin = lru_cache(maxsize=4)(partial(kept_cubin, cache_dir))
        present = processes_of(ordinal)
        self.facts = open_device(ordinal)
        self.stream, self._recorder = Stream(), Stream()
        self.monitor = _open_monitor(self.facts.uuid, present)
        self.facts = replace(self.facts, driver=self.monitor.driver)
        self._device = self.facts.profile
        tools = compile_source(VERIFY.render(), self.facts.arch, cache_dir)
        if isinstance(tools, BuildFailure):
            raise DriverError(
                f"the verification kernels don't compile with NVRTC {nvrtc_version()} ({tools.reason}): "
                f"install another version of nvidia-cuda-nvrtc"
            )
        try:
            self._tools = Toolbox(tools, self.stream, self.facts.sm_count)
        except CudaError as error:
            raise DriverError(
                f"driver {self.facts.driver} doesn't load what NVRTC {nvrtc_version()} compiles ({error}): "
                f"install a newer driver"
            ) from error
        libraries = {name: launcher_of(family).library() for name, family in FAMILIES.items()}
        self.libraries = {name: library for name, library in libraries.items() if library is not None}
        self.baselines: tuple[Config, ...] = ()
        self.busy_us = 0.0
        self._problem: Problem | None = None
        self._operands: Operands
        self._verifier: Verifier
        self._shared = Shared()
        self._looked_around, self._others = 0.0, ""
        self._neighbours = Arguments(
            pointer(Buffer.allocate(4 * NEIGHBOUR_ELEMENTS).address), ctypes.c_int(NEIGHBOUR_ELEMENTS)
        )

    def prepare(self, problem: Problem, seed: int) -> None:
        """Allocates operands and reference of one problem, and frees those of the problem before it."""
        self._clear()
        # Until a candidate is measured, the expected time is the roofline's.
        self._expected_us, self._expecting = roofline_us(problem, self._device), True
        launches = launches_for(self._expected_us, 1)
        self._operands = Operands(problem, seed, self._tools, self.stream, self.facts.l2_bytes, launches)
        self.outputs = Outputs(self._operands, self._tools, self.stream)
        self._verifier = Verifier(self._operands, self.outputs, self._tools, self.stream)
        self._problem = problem
        self._best_once_us = float("inf")
        self.may_reach_power_limit = may_reach_power_limit(problem, self._device)
        # By the name alone, as who picks the winner has it: of a card that no table has, `chain` decides.
        self.power_decides = power_decides(problem, find_profile(self.facts.name))
        found = (library.candidates(problem, self._shared) for library in self._libraries_of(problem))
        self.baselines = tuple(chain.from_iterable(found))

    def unlisted(self, most: int = UNLISTED) -> list[Config]:
        """What the libraries would run of the problem and don't name, the fastest expected first."""
        assert self._problem is not None
        problem, shared = self._problem, self._shared
        found = (library.unlisted(problem, shared, self._device) for library in self._libraries_of(problem))
        return list(islice(chain.from_iterable(found), most))

    @staticmethod
    def _libraries_of(problem: Problem) -> list[type[Launcher]]:
        """The launchers of the libraries that compete for a problem."""
        return [launcher_of(family_named(name)) for name in kind_named(problem.kind).baselines]

    def ready(self, config: Config, digest: str) -> Ready:
        """Loads a candidate and records its graph.

        Raises:
            CudaError: it can't be loaded or launched that way.
        """
        return self.record(self.load(config, digest))

    def foresee(self, config: Config, digest: str) -> None:
        """Does the part of `load` that needs no GPU ahead of it; errors are left to `load`."""
        assert self._problem is not None
        launcher_of(family_named(config.family)).foresee(self._problem, config, self._device)
        if digest:
            with contextlib.suppress(WorkerError):
                self._cubin(digest)

    def load(self, config: Config, digest: str) -> Loaded:
        """Loads a candidate's program onto the GPU. The driver may first wait for all work there (CUDA programming
        guide, lazy loading: loading kernels might require context synchronization).

        Raises:
            CudaError: it can't be loaded.
        """
        assert self._problem is not None
        launcher_class = launcher_of(family_named(config.family))
        cubin = self._cubin(digest) if digest else b""
        with self._shared.loading():
            launcher = launcher_class(self._problem, config, cubin, self._device, self._shared)
        return Loaded(config, digest, launcher)

    def record(self, loaded: Loaded) -> Ready:
        """Records the graph of a candidate; the GPU may be busy with another one meanwhile.

        Raises:
            CudaError: it can't be launched that way; it was unloaded.
        """
        launcher = loaded.launcher
        try:
            timed = self._recorded(launcher, self._expected_us)
        except CudaError:
            loaded.discard()
            raise
        return Ready(loaded.config, loaded.digest, launcher, lambda copy: launcher.launch(self.stream, copy), timed)

    def _recorded(self, launcher: Launcher, expected_us: float) -> TimedGraph:
        recorder = self._recorder
        return TimedGraph(lambda copy: launcher.launch(recorder, copy), self._operands.copies, expected_us, recorder)

    def chained(self, ready: Ready, *, early: bool) -> TimedGraph:
        """A candidate's launches as one graph, each behind a small elementwise kernel.

        Args:
            early: whether that kernel lets the candidate start before it ends.

        Raises:
            CudaError: the driver refuses.
        """
        small = self._tools.launch_of("early_neighbour" if early else "neighbour", pdl=early)
        small.set_grid(NEIGHBOUR_ELEMENTS // NEIGHBOUR_THREADS)

        def link(copy: OwnCopy) -> None:
            small(self._recorder, self._neighbours)
            ready.launcher.launch(self._recorder, copy)

        return TimedGraph(link, self._operands.copies, self._expected_us, self._recorder)

    def verify(self, ready: Ready, meanwhile: Callable[[], None] = lambda: None) -> Verdict:
        """Judges a candidate's results.

        Args:
            meanwhile: called once, when the GPU has started.

        Raises:
            CudaError: it failed.
        """
        verdict = self._verifier.verify(ready.launch, meanwhile)
        self.busy_us += verdict.whole_us
        if verdict.reason:
            self.restore()
        return verdict

    def restore(self) -> None:
        """Writes all operands anew for the next candidate: a wrong one may have written anywhere."""
        self._operands.refresh()
        self._shared.reset()

    def screen(self, ready: Ready, begun: Callable[[], None], meanwhile: Callable[[], None]) -> Measurement:
        """Verifies and briefly times one candidate.

        Args:
            begun: called once, when the GPU has started and this process is about to wait for it: the time to send
                earlier answers, and to do whatever waits for the GPU anyway.
            meanwhile: called once, while the GPU rests, to prepare the next candidate.

        Raises:
            CudaError: it failed; `begun` may not have been called.
        """
        verdict = self.verify(ready, begun)
        if verdict.reason:
            return self.outcome(ready, Outcome.WRONG_RESULT, verdict.reason, verdict)
        if verdict.once_us * ready.timed.launches > LONGEST_REPLAY_US:
            ready.timed.destroy()
            ready.timed = self._recorded(ready.launcher, verdict.once_us)
            if self._expecting:
                self._expected_us = verdict.once_us
        replays = GIVE_UP_REPLAYS if hopeless(verdict.once_us, self._best_once_us) else SCREEN_REPLAYS
        self.outputs.poison()
        work_us = verdict.whole_us + (1 + replays) * ready.timed.launches * self._expected_us
        rest = Rest(max(REST_SECONDS, work_us / 1e6))
        meanwhile()
        samples, clocks = self._burst(ready, replays, rest, verdict)
        if spread(samples) > STEADY_SPREAD:
            samples, clocks = self._burst(ready, SCREEN_REPLAYS, Rest(rest.seconds), verdict)
        if found := self.outputs.differences().get(0):
            self.restore()
            detail = found.text(ready.timed.launches)
            return self.outcome(ready, Outcome.WRONG_RESULT, detail, verdict)
        if (unsteady := spread(samples)) > STEADY_SPREAD:
            detail = f"samples lie {unsteady:.0%} of their median apart, twice: more than {STEADY_SPREAD:.0%}"
            return self.outcome(ready, Outcome.UNSTABLE, detail, verdict)
        self._best_once_us = min(self._best_once_us, verdict.once_us)
        # The first measured time takes the place of the roofline's.
        median_us = statistics.median(samples)
        self._expected_us = median_us if self._expecting else min(self._expected_us, median_us)
        self._expecting = False
        return self.measured(ready, "screen", SCREENING, samples, clocks, verdict)

    def _burst(self, ready: Ready, replays: int, rest: Rest, verdict: Verdict) -> tuple[tuple[float, ...], Clocks]:
        """Replays after rest, behind one that does not count; what each wrote is compared, and poisoned again."""

        def watched() -> None:
            self.outputs.compare(verdict.digest)
            self.outputs.poison()

        rest.wait()
        ready.timed.start(self.stream, 1 + replays, watched)
        clocks = self.monitor.read()
        # This takes milliseconds once a second: do it while the GPU is busy, before `measured` needs it.
        self.others()
        taken = ready.timed.samples_us()
        self.busy_us += sum(taken) * ready.timed.launches
        return taken[1:], clocks

    def measured(
        self, ready: Ready, stage: Stage, policy: Policy, samples: tuple[float, ...], clocks: Clocks, verdict: Verdict,
        remark: str = "", product_joules: float | None = None,
    ) -> Measurement:  # fmt: skip
        """A correct candidate's measurement."""
        assert self._problem is not None
        note = "; ".join(filter(None, (ready.launcher.note, remark, self.others())))
        return Measurement(
            self._problem.key, ready.config, stage, policy, Outcome.CORRECT, samples, clocks=clocks,
            verification=verdict.verification, build_digest=ready.digest, note=note, product_joules=product_joules,
        )  # fmt: skip

    def outcome(
        self, ready: Ready, outcome: Outcome, detail: str, verdict: Verdict | None = None, stage: Stage = "screen",
        policy: Policy = SCREENING,
    ) -> Measurement:  # fmt: skip
        """The measurement of a candidate that failed."""
        return self.failure(ready.config, ready.digest, outcome, detail, verdict, stage, policy)

    def failure(
        self, config: Config, digest: str, outcome: Outcome, detail: str, verdict: Verdict | None = None,
        stage: Stage = "screen", policy: Policy = SCREENING,
    ) -> Measurement:  # fmt: skip
        """The measurement of a candidate that may not even have been loaded."""
        assert self._problem is not None
        return Measurement(
            self._problem.key, config, stage, policy, outcome, detail=detail,
            verification=verdict.verification if verdict else None, build_digest=digest,
        )  # fmt: skip

    def others(self) -> str:
        """Other processes on the GPU, at most a second old; empty where there are none."""
        now = time.monotonic()
        if now - self._looked_around > LOOK_AROUND_SECONDS:
            self._looked_around, self._others = now, "; ".join(self.monitor.others())
        return self._others

    def _clear(self) -> None:
        if self._problem is None:
            return
        self._problem = None
        self._verifier.free()
        self.outputs.free()
        self._operands.free()
        self._shared.free()


def _open_monitor(uuid: str, present: frozenset[int]) -> Monitor:
    try:
        monitor = Monitor(uuid, present)
        # A virtual GPU may not tell its power: found out later, it would end the process at every candidate.
        monitor.read()
    except Exception as error:
        raise DriverError(
            f"NVML can't be used ({type(error).__name__}: {error}), and a time without its clocks is no measurement: "
            f"install the whole driver, or use a GPU whose clocks, power and temperature nvidia-smi shows"
        ) from error
    return monitor
