"""Bench: the state of the process that owns the GPU: one problem at a time, its candidates one after the other."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Final

from space.config import Config
from space.problem import Problem
from space.rank import roofline_us
from space.registry import FAMILIES, family_named, kind_named
from workers.build import BuildFailure, compile_source, kept_cubin, nvrtc_version
from workers.cuda.clocks import POWER_LIMITED, Monitor, processes_of
from workers.cuda.copies import OwnCopy
from workers.cuda.device import open_device
from workers.cuda.driver import CudaError, Stream
from workers.cuda.families import launcher_of
from workers.cuda.families.launcher import Launcher
from workers.cuda.families.shared import Shared
from workers.cuda.operands import Operands
from workers.cuda.pace import Pace
from workers.cuda.timing import GIVE_UP_REPLAYS, SCREEN_REPLAYS, STEADY_SPREAD, TimedGraph, hopeless, spread
from workers.cuda.toolbox import Toolbox
from workers.cuda.verification import Verdict, Verifier
from workers.errors import DriverError, WorkerError
from workers.kernels.verify import SOURCE as VERIFY
from workers.measurement import Clocks, Measurement, Outcome, Policy, Stage

#: Where arithmetic takes this share of the roofline's time, the tensor cores are busy enough to reach the power limit.
SHARE_OF_ROOFLINE: Final = 0.5
#: A replay that is expected to take longer is recorded again with the fewest launches.
LONGEST_REPLAY_US: Final = 100_000.0
#: Seconds between two looks for other processes on the GPU.
LOOK_AROUND_SECONDS: Final = 1.0


@dataclass
class Loaded:
    """A candidate whose program is on the GPU."""

    config: Config
    digest: str
    policy: Policy
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
        libraries: what the families that launch other people's kernels need, by family.
        baselines: those families' candidates for the problem, the first choice of each library first.
        busy_us: time that the GPU has worked on candidates since the process began.
    """

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
            raise DriverError(f"the verification kernels don't compile with NVRTC {nvrtc_version()}: {tools.reason}")
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
        self._anchor: Ready | None = None
        self._pace: Pace | None = None

    def prepare(self, problem: Problem, seed: int) -> None:
        """Allocates operands and reference of one problem, and frees those of the problem before it."""
        self._clear()
        self._operands = Operands(problem, seed, self._tools, self.stream, self.facts.l2_bytes)
        self._verifier = Verifier(self._operands, self._tools, self.stream)
        self._problem, self._hot = problem, False
        # Until a candidate is measured, the expected time is the roofline's.
        self._expected_us, self._expecting = roofline_us(problem, self._device), True
        self._best_once_us = float("inf")
        compute_us = problem.flops / self._device.peak_tflops(problem.dtype) / 1e6
        self._bound_by_arithmetic = compute_us > SHARE_OF_ROOFLINE * self._expected_us
        families = [family_named(name) for name in kind_named(problem.kind).baselines]
        found = (launcher_of(family).candidates(problem, self._shared) for family in families)
        self.baselines = tuple(chain.from_iterable(found))

    def ready(self, config: Config, digest: str, policy: Policy) -> Ready:
        """Loads a candidate and records its graph.

        Raises:
            CudaError: it can't be loaded or launched that way.
        """
        return self.record(self.load(config, digest, policy))

    def foresee(self, config: Config, digest: str) -> None:
        """Does the part of `load` that needs no GPU ahead of it; errors are left to `load`."""
        assert self._problem is not None
        launcher_of(family_named(config.family)).foresee(self._problem, config, self._device)
        if digest:
            with contextlib.suppress(WorkerError):
                self._cubin(digest)

    def load(self, config: Config, digest: str, policy: Policy) -> Loaded:
        """Loads a candidate's program onto the GPU. The driver may first wait for all work there (CUDA programming
        guide, lazy loading: loading kernels might require context synchronization).

        Raises:
            CudaError: it can't be loaded.
        """
        assert self._problem is not None
        launcher_class = launcher_of(family_named(config.family))
        cubin = self._cubin(digest) if digest else b""
        launcher = launcher_class(self._problem, config, cubin, self._device, self._shared)
        return Loaded(config, digest, policy, launcher)

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
        return Ready(
            loaded.config, loaded.digest, loaded.policy, launcher,
            lambda copy: launcher.launch(self.stream, copy), timed,
        )  # fmt: skip

    def _recorded(self, launcher: Launcher, expected_us: float) -> TimedGraph:
        recorder = self._recorder
        return TimedGraph(lambda copy: launcher.launch(recorder, copy), self._operands.copies, expected_us, recorder)

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
            # It may have written anywhere: restore everything for the next candidate.
            self._operands.refresh()
            self._shared.reset()
        return verdict

    def screen(self, ready: Ready, begun: Callable[[], None], meanwhile: Callable[[], None]) -> Measurement:
        """Verifies and briefly times one candidate.

        Args:
            begun: called once, when the GPU has started and this process is about to wait for it: the time to send
                earlier answers, and to do whatever waits for the GPU anyway.
            meanwhile: called once, while the GPU is busy for longer, to prepare the next candidate.

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
        if not self._hot:
            self._heat_up(ready)
        replays = GIVE_UP_REPLAYS if hopeless(verdict.once_us, self._best_once_us) else SCREEN_REPLAYS
        self._start(ready, replays)
        meanwhile()
        clocks = self.monitor.read()
        # This takes milliseconds once a second: do it while the GPU is busy, before `measured` needs it.
        self.others()
        samples, pace, steady = self._samples(ready)
        if spread(samples) > STEADY_SPREAD or not steady:
            self._start(ready, SCREEN_REPLAYS)
            samples, pace, _ = self._samples(ready)
        if (unsteady := spread(samples)) > STEADY_SPREAD:
            detail = f"samples lie {unsteady:.0%} of their median apart, twice: more than {STEADY_SPREAD:.0%}"
            return self.outcome(ready, Outcome.UNSTABLE, detail, verdict)
        self._best_once_us = min(self._best_once_us, verdict.once_us)
        # The first measured time takes the place of the roofline's.
        median_us = statistics.median(samples)
        self._expected_us = median_us if self._expecting else min(self._expected_us, median_us)
        self._expecting = False
        return self.measured(ready, "screen", samples, clocks, verdict, pace)

    def measured(
        self, ready: Ready, stage: Stage, samples: tuple[float, ...], clocks: Clocks, verdict: Verdict, remark: str = ""
    ) -> Measurement:
        """A correct candidate's measurement."""
        assert self._problem is not None
        note = "; ".join(filter(None, (ready.launcher.note, remark, self.others())))
        return Measurement(
            self._problem.key, ready.config, stage, ready.policy, Outcome.CORRECT, samples, clocks=clocks,
            verification=verdict.verification, build_digest=ready.digest, note=note,
        )  # fmt: skip

    def outcome(self, ready: Ready, outcome: Outcome, detail: str, verdict: Verdict | None = None) -> Measurement:
        """The measurement of a candidate that failed."""
        return self.failure(ready.config, ready.digest, ready.policy, outcome, detail, verdict)

    def failure(
        self, config: Config, digest: str, policy: Policy, outcome: Outcome, detail: str, verdict: Verdict | None = None
    ) -> Measurement:
        """The measurement of a candidate that may not even have been loaded."""
        assert self._problem is not None
        return Measurement(
            self._problem.key, config, "screen", policy, outcome, detail=detail,
            verification=verdict.verification if verdict else None, build_digest=digest,
        )  # fmt: skip

    def others(self) -> str:
        """Other processes on the GPU, at most a second old; empty where there are none."""
        now = time.monotonic()
        if now - self._looked_around > LOOK_AROUND_SECONDS:
            self._looked_around, self._others = now, "; ".join(self.monitor.others())
        return self._others

    def _heat_up(self, ready: Ready) -> None:
        """Keeps the GPU busy until its clock has settled. Where power may limit the clock, this candidate becomes the
        round's anchor."""
        self._hot = True
        anchor = self.ready(ready.config, ready.digest, ready.policy)
        heating = anchor.timed.heat_up(self.stream)
        self.busy_us += sum(heating) * anchor.timed.launches
        if self._bound_by_arithmetic or POWER_LIMITED in self.monitor.read().throttle_reasons:
            self._anchor, self._pace = anchor, Pace.of(anchor.timed, heating)
        else:
            anchor.discard()

    def _start(self, ready: Ready, replays: int) -> None:
        """Enqueues one replay that does not count, because an idle GPU waits for the host, then the timed replays."""
        ready.timed.start(self.stream, 1)
        if self._pace is not None:
            self._pace.start(self.stream)
        ready.timed.start(self.stream, replays)
        if self._pace is not None:
            self._pace.start(self.stream)

    def _samples(self, ready: Ready) -> tuple[tuple[float, ...], str, bool]:
        """A candidate's samples at the settled clock, a note of their scaling, and whether the clock was steady."""
        taken = ready.timed.samples_us()
        self.busy_us += sum(taken) * ready.timed.launches
        if self._pace is None:
            return taken[1:], "", True
        beside = self._pace.taken()
        self.busy_us += beside.spent_us
        return tuple(sample * beside.pace for sample in taken[1:]), f"pace {beside.pace:.3f}", beside.steady

    def _clear(self) -> None:
        if self._problem is None:
            return
        self._problem = None
        if self._anchor is not None:
            self._anchor.discard()
        self._anchor = self._pace = None
        self._verifier.free()
        self._operands.free()
        self._shared.free()


def _open_monitor(uuid: str, present: frozenset[int]) -> Monitor:
    try:
        return Monitor(uuid, present)
    except Exception as error:
        raise DriverError(
            f"NVML can't be used ({type(error).__name__}: {error}), and a time without its clocks is no measurement: "
            f"install the whole driver"
        ) from error
