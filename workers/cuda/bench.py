"""Bench: the state of the process that owns the GPU. One problem at a time, candidates one after the other."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cuda.bindings import driver as cu

from space.config import Config
from space.family import family_named
from space.problem import Problem
from workers.build import BuildFailure, compile_source, kept_cubin, nvrtc_version
from workers.cuda.clocks import DISTURBING, Monitor
from workers.cuda.driver import CudaError, Stream, check
from workers.cuda.families import Launcher, cublaslt, load
from workers.cuda.families.shared import Shared
from workers.cuda.operands import Copy, Operands
from workers.cuda.timing import TimedGraph
from workers.cuda.toolbox import Toolbox
from workers.cuda.verification import Verdict, Verifier
from workers.errors import DriverError
from workers.kernels.render import render
from workers.measurement import Clocks, DeviceFacts, Measurement, Outcome, Policy, Stage

#: A round whose SM clock is this far from the median of the rounds is taken again.
CLOCK_BAND: Final = 0.05


@dataclass
class Arm:
    """A rival in the finals: loaded, verified, its graph ready."""

    config: Config
    timed: TimedGraph
    verdict: Verdict
    digest: str
    note: str
    unload: Callable[[], None]


class Bench:
    """One GPU, its context, and the problem being measured."""

    def __init__(self, ordinal: int, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self.facts = _open_device(ordinal)
        self._stream = Stream()
        self.monitor = Monitor(self.facts.uuid)
        self.facts = replace(self.facts, driver=self.monitor.driver)
        tools = compile_source(render("verify", {}), self.facts.arch, cache_dir)
        if isinstance(tools, BuildFailure):
            raise DriverError(f"the verification kernels don't compile with NVRTC {nvrtc_version()}: {tools.reason}")
        self._tools = Toolbox(tools, self._stream, self.facts.sm_count)
        self.library, self.library_missing = _open_library()
        self._problem: Problem | None = None
        self._operands: Operands
        self._verifier: Verifier
        self._arms: list[Arm] = []
        self._shared = Shared()
        self._best_us = float("inf")
        self._hot = False

    def prepare(self, problem: Problem, seed: int) -> None:
        """Operands and reference of one problem; those of the problem before it are freed."""
        if self._problem is not None:
            self.drop_arms()
            self._operands.free()
            self._verifier.free()
            self._shared.free()
        self._problem = None
        self._operands = Operands(problem, seed, self._tools, self._stream, self.facts.l2_bytes)
        self._verifier = Verifier(self._operands, self._tools, self._stream)
        self._problem, self._best_us, self._hot = problem, float("inf"), False

    def screen(self, config: Config, digest: str, policy: Policy) -> Measurement:
        """Verifies and briefly times one candidate."""
        try:
            gemm = self._load(config, digest)
        except CudaError as error:
            return self._failed(config, policy, digest, error)
        try:
            return self._measure(config, digest, policy, lambda copy: gemm.launch(self._stream, copy))
        except CudaError as error:
            return self._failed(config, policy, digest, error)
        finally:
            _quietly(gemm.unload)

    def add_arm(self, config: Config, digest: str) -> str:
        """Makes a candidate ready for the finals; the reason if it can't be."""
        gemm = self._load(config, digest)
        launch = lambda copy: gemm.launch(self._stream, copy)  # noqa: E731
        verdict = self._verifier.verify(launch)
        if not verdict.reason:
            timed = TimedGraph(launch, self._operands.copies, self._stream)
            self._arms.append(Arm(config, timed, verdict, digest, "", gemm.unload))
        return verdict.reason

    def add_library_arms(self) -> None:
        """The library's first choice, and the best of its candidates where that is another one."""
        if self.library is None or self._problem is None or cublaslt.unsupported(self._problem):
            return
        matmul = cublaslt.Matmul(self.library, self._problem)
        arms = [arm for rank in matmul.ranks if (arm := self._library_arm(matmul, rank)) is not None]
        if not arms:
            return
        best = min(arms, key=lambda arm: statistics.median(arm.timed.screen(float("inf"))))
        for arm in arms:
            if arm is arms[0] or arm is best:
                self._arms.append(arm)
            else:
                arm.timed.destroy()

    def _library_arm(self, matmul: cublaslt.Matmul, rank: int) -> Arm | None:
        launch = lambda copy: matmul.launch(self._stream, copy, rank)  # noqa: E731
        try:
            verdict = self._verifier.verify(launch)
        except CudaError:
            raise
        except Exception:
            # The library refuses some of its own candidates when they are run.
            return None
        if verdict.reason:
            return None
        timed = TimedGraph(launch, self._operands.copies, self._stream)
        config = family_named("cublaslt").config({"rank": rank})
        return Arm(config, timed, verdict, "", matmul.note(rank), lambda: None)

    def finals(self, rounds: int, policy: Policy) -> list[Measurement]:
        """Interleaved rounds of all arms; disturbed rounds are taken again, at most as many as were asked for."""
        if not self._arms:
            return []
        self._arms[0].timed.heat_up()
        taken: list[tuple[list[float], Clocks]] = []
        for number in range(2 * rounds):
            order = [(number + place) % len(self._arms) for place in range(len(self._arms))]
            times = dict.fromkeys(order, 0.0)
            for place in order:
                times[place] = self._arms[place].timed.sample_us()
            taken.append(([times[place] for place in range(len(self._arms))], self.monitor.read()))
            if len(undisturbed(taken)) >= rounds:
                break
        kept = undisturbed(taken)[:rounds] or taken[:rounds]
        clocks = kept[-1][1]
        measurements = [
            self._final(arm, tuple(times[place] for times, _ in kept), clocks, policy)
            for place, arm in enumerate(self._arms)
        ]
        self.drop_arms()
        return measurements

    def drop_arms(self) -> None:
        """Frees the arms."""
        for arm in self._arms:
            _quietly(arm.timed.destroy)
            _quietly(arm.unload)
        self._arms = []

    def _load(self, config: Config, digest: str) -> Launcher:
        assert self._problem is not None
        cubin = kept_cubin(self._cache_dir, digest)
        return load(self._problem, config, cubin, self.facts.sm_count, self._shared)

    def _measure(self, config: Config, digest: str, policy: Policy, launch: Callable[[Copy], None]) -> Measurement:
        assert self._problem is not None
        verdict = self._verifier.verify(launch)
        about: dict[str, Any] = {"verification": verdict.verification, "build_digest": digest}
        key = self._problem.key
        if verdict.reason:
            return Measurement(key, config, "screen", policy, Outcome.WRONG_RESULT, detail=verdict.reason, **about)
        timed = TimedGraph(launch, self._operands.copies, self._stream)
        try:
            if not self._hot:
                timed.heat_up()
                self._hot = True
            samples = timed.screen(self._best_us)
            clocks = self.monitor.read()
        finally:
            _quietly(timed.destroy)
        self._best_us = min(self._best_us, statistics.median(samples))
        return Measurement(key, config, "screen", policy, Outcome.CORRECT, samples, clocks=clocks, **about)

    def _final(self, arm: Arm, samples: tuple[float, ...], clocks: Clocks, policy: Policy) -> Measurement:
        assert self._problem is not None
        stage: Stage = "final"
        return Measurement(
            self._problem.key, arm.config, stage, policy, Outcome.CORRECT, samples, clocks=clocks,
            verification=arm.verdict.verification, build_digest=arm.digest, note=arm.note,
        )  # fmt: skip

    def _failed(self, config: Config, policy: Policy, digest: str, error: CudaError) -> Measurement:
        if error.sticky:
            raise error
        assert self._problem is not None
        return Measurement(
            self._problem.key, config, "screen", policy, Outcome.LAUNCH, detail=str(error), build_digest=digest
        )


def undisturbed(rounds: list[tuple[list[float], Clocks]]) -> list[tuple[list[float], Clocks]]:
    """Rounds whose SM clock is near the median of all, and in which the card did not protect itself."""
    middle = statistics.median(clocks.sm_mhz for _, clocks in rounds)
    return [
        (times, clocks)
        for times, clocks in rounds
        if abs(clocks.sm_mhz - middle) <= CLOCK_BAND * middle and not DISTURBING & set(clocks.throttle_reasons)
    ]


def _open_device(ordinal: int) -> DeviceFacts:
    check("cuInit", cu.cuInit(0))
    count = int(check("cuDeviceGetCount", cu.cuDeviceGetCount()))
    if ordinal >= count:
        raise DriverError(f"cuda:{ordinal} is not here: this machine has {count} GPU, numbered from cuda:0")
    device = check("cuDeviceGet", cu.cuDeviceGet(ordinal))
    attribute = cu.CUdevice_attribute

    def read(name: str) -> int:
        return int(check(name, cu.cuDeviceGetAttribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device)))

    name = check("cuDeviceGetName", cu.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
    capability = read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR")
    if capability != (9, 0):
        raise DriverError(
            f"{name} is compute capability {capability[0]}.{capability[1]}: kernels exist for 9.0 (sm_90a) only"
        )
    context = check("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(device))
    check("cuCtxSetCurrent", cu.cuCtxSetCurrent(context))
    raw = bytes(check("cuDeviceGetUuid", cu.cuDeviceGetUuid(device)).bytes)
    digits = raw.hex()
    uuid = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    memory = int(check("cuDeviceTotalMem", cu.cuDeviceTotalMem(device)))
    return DeviceFacts(name, "sm_90a", "cuda", uuid, "", read("MULTIPROCESSOR_COUNT"), read("L2_CACHE_SIZE"), memory)


def _open_library() -> tuple[cublaslt.Library | None, str]:
    try:
        return cublaslt.Library(), ""
    except CudaError:
        raise
    except Exception as error:
        # Not installed, or not loadable here: there is no baseline then, and the reason is told.
        return None, f"cuBLASLt can't be used ({type(error).__name__}: {error}): no baseline is measured"


def _quietly(free: Callable[[], None]) -> None:
    """Frees something of a candidate; a lost context says so again at the next call."""
    with contextlib.suppress(CudaError):
        free()
