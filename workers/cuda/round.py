"""CudaRound: one problem on one GPU. Every candidate becomes one measurement, whatever its outcome."""

from __future__ import annotations

import json
import math
import random
import secrets
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from space.config import Config
from space.explain import explain, legal_among
from space.family import config_named, family_named, is_own
from space.problem import Problem
from space.version import own_version
from workers.build import BuildFailure
from workers.builder import Builds
from workers.cuda.gpu import HELLO_SECONDS, GpuProcess
from workers.errors import DriverError, ProcessError
from workers.measurement import SCREENING, Measurement, Outcome, Provenance, Stage, from_json
from workers.ports import More, no_more
from workers.supervisor import Died, LostContext

#: Limit for preparing a problem or its library: a constant, plus the time of the reference.
PREPARE_SECONDS: Final = 30.0
#: Flops in float64 a second of one multiprocessor, a rate that the GPU exceeds several times over: of archs made for
#: float64, and of the others, which have two units (CUDA C++ Programming Guide, throughput of arithmetic instructions).
WIDE_FLOPS, NARROW_FLOPS = 7.5e9, 1e9
_WIDE: Final = frozenset({"sm_80", "sm_90a", "sm_100a"})
#: Open questions: the one that the GPU works on, the one being made ready, and as many more as the process answers
#: while a batch is proposed and its first build is read from the cache.
AHEAD: Final = 5
#: Limit for the finals: a constant, for bursts and blocks, plus a second a turn.
FINALS_SECONDS: Final = 120.0
#: Attempts at the finals before giving up on the device: two of all, then one of the first half and one of its half.
FINAL_TRIES: Final = 4

#: Of what no library lists, as many go into the finals, if they are behind the fastest that was screened by at most
#: this share of its time: screening runs cooler than the finals, and scatters.
UNLISTED_FINALISTS, UNLISTED_NEAR = 3, 0.05

_CHECK: Final = "check the GPU with nvidia-smi; all measurements are kept, and the same command resumes"


@dataclass(frozen=True, slots=True)
class Asked:
    """A candidate that the GPU process has been asked to measure."""

    config: Config
    digest: str


def reference_seconds(problem: Problem, arch: str, sm_count: int) -> float:
    """Limit for computing the reference of a problem."""
    return problem.flops / ((WIDE_FLOPS if arch in _WIDE else NARROW_FLOPS) * sm_count)


class CudaRound:
    """One problem on one GPU; see `workers.ports.Round`.

    Attributes:
        unlisted: what the libraries would run but don't name, the fastest expected first.
    """

    policy = SCREENING

    def __init__(self, gpu: GpuProcess, problem: Problem) -> None:
        self._gpu, self._problem = gpu, problem
        reference = reference_seconds(problem, gpu.facts.arch, gpu.facts.sm_count)
        self._patience_seconds = PREPARE_SECONDS + reference
        # Behind a wrong candidate the reference is computed again before the answer is sent.
        self._deadline_seconds = gpu.deadline_seconds + reference
        self._seed = secrets.randbits(48)
        self._digests: dict[str, str] = {}
        self._baselines: tuple[Config, ...] = ()
        self.unlisted: tuple[Config, ...] = ()
        self._fastest_us = math.inf
        self._ended: Counter[str] = Counter()

    @property
    def baselines(self) -> tuple[Config, ...]:
        """Candidates of third-party libraries, the first choice of each first."""
        return self._baselines

    @property
    def provenance(self) -> Provenance:
        """The provenance of this round's measurements."""
        facts, program = self._gpu.facts, self._gpu.program(self._problem)
        return Provenance(
            facts.name, facts.uuid, program.driver, program.nvrtc, program.kernel_source_digest, program.cublaslt,
            own_version(), self._seed, program.rotation_bytes,
        )  # fmt: skip

    def prepare(self) -> None:
        """Prepares operands and reference, again after the process was lost; the same seed gives the same data."""
        question = {"do": "prepare", "problem": self._problem.key, "seed": self._seed}
        self._gpu.prepared = None
        try:
            answer = self._asked_twice(question)
            self._baselines, self.unlisted = (
                tuple(map(config_named, answer[name])) for name in ("baselines", "unlisted")
            )
        except Died as error:
            raise ProcessError(f"{self._problem.shape} can't be prepared ({error}): {_CHECK}") from error
        except LostContext as error:
            # Some operands may have been allocated: the next problem starts with a fresh process.
            self._gpu.supervisor.kill()
            if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
                raise DriverError(
                    f"{self._problem.shape} needs more memory than {self._gpu.facts.name} has free: "
                    f"tune a smaller problem, or free the GPU"
                ) from error
            raise ProcessError(f"{self._problem.shape} can't be prepared ({error}): {_CHECK}") from error
        self._gpu.prepared = self

    def screen(self, candidates: Sequence[Config], more: More = no_more) -> Iterator[Measurement]:
        """Builds candidates on CPU threads and measures each as soon as it is built."""
        self._take_over()
        builds, library = self._gpu.builder.begin(self._problem, ()), list[Config]()
        try:
            yield from self._take_up(candidates, builds, library)
            yield from self._measure(builds, library, more)
        finally:
            builds.cancel()

    def _take_up(self, candidates: Sequence[Config], builds: Builds, library: list[Config]) -> Iterator[Measurement]:
        """Starts to build our own candidates, queues the library's, and yields the measurements of illegal ones."""
        own, legal = list[Config](), legal_among(self._problem, candidates, self._gpu.facts.profile)
        for config in candidates:
            family = family_named(config.family)
            if config in legal:
                (own if family.own else library).append(config)
            else:
                (first, *_) = explain(family, self._problem, config, self._gpu.facts.profile).broken
                yield self._outcome(config, Outcome.CONSTRAINTS, f"{first.rule}: {first.numbers}")
        # The first candidates find the card in another state: shuffle, so that no kind of candidate always comes first.
        random.Random(self._seed).shuffle(own)
        builds.add(own)

    def finals(self, finalists: Sequence[Config], turns: int) -> tuple[Measurement, ...]:
        """Times finalists under every policy. One that fails is reported as failed, and the others go on without it.

        Args:
            finalists: most promising first. Where the process dies twice while they are timed together, nothing says
                which of them ended it: the second half is left out, unreported.

        Raises:
            ProcessError: they failed again and again.
        """
        self._take_over()
        left, failed = [*finalists, *self._leading_unlisted()], list[Measurement]()
        tries, reason = 0, ""
        while tries < FINAL_TRIES:
            together = False
            try:
                bad = self._arm_all(left)
                together = bad is None
                if bad is None:
                    return (*failed, *self._run_finals(turns))
                # Each finalist can fail once without using up an attempt of the others.
                failed.append(bad)
                left = [config for config in left if config != bad.config]
            except (Died, LostContext) as error:
                # Each finalist can end the process once more while it is made ready: `_arm_all` counts these.
                tries, reason = tries + together, str(error)
                if together and tries > 1:
                    left = left[: -(-len(left) // 2)]
            self._recover()
        shape = self._problem.shape
        raise ProcessError(f"the finals of {shape} failed {FINAL_TRIES} times, at last: {reason}; {_CHECK}")

    def _leading_unlisted(self) -> list[Config]:
        """What no library lists, where a screening says that it is near the fastest; of that the fastest."""
        screened = [one for one in self.screen(self.unlisted) if one.outcome is Outcome.CORRECT]
        near = [one for one in screened if one.median_us <= self._fastest_us * (1 + UNLISTED_NEAR)]
        return [one.config for one in sorted(near, key=lambda one: one.median_us)[:UNLISTED_FINALISTS]]

    def _measure(self, builds: Builds, library: list[Config], more: More) -> Iterator[Measurement]:
        """Keeps a few questions ahead of the GPU process, and yields measurements as they are answered.

        A caller that stops iterating leaves questions open; the next question discards their answers.
        """
        asked: deque[Asked] = deque()
        while True:
            yield from self._feed(asked, builds, library)
            # Proposes and builds further candidates while the GPU works on the current ones.
            if builds.idle and not builds.done and not library and (further := more()):
                yield from self._take_up(further, builds, library)
                if not asked:
                    continue
            if asked:
                yield self._answered(asked)
            elif builds.left:
                yield from self._feed(asked, builds, library, wait=True)
            else:
                return

    def _feed(
        self, asked: deque[Asked], builds: Builds, library: list[Config], wait: bool = False
    ) -> Iterator[Measurement]:
        """Sends built candidates to the GPU process while it has room; failed builds are measurements."""
        while len(asked) < AHEAD:
            if library:
                self._ask_ahead(asked, Asked(library.pop(0), ""))
                continue
            made = builds.take(wait and not asked)
            if made is None:
                return
            config, build = made
            if isinstance(build, BuildFailure):
                yield self._outcome(config, Outcome.COMPILE, build.reason)
                continue
            self._digests[config.key] = build.digest
            self._ask_ahead(asked, Asked(config, build.digest))

    def _ask_ahead(self, asked: deque[Asked], candidate: Asked) -> None:
        self._gpu.tell(self._question("screen", candidate.config, candidate.digest))
        asked.append(candidate)

    def _answered(self, asked: deque[Asked]) -> Measurement:
        """The measurement of the oldest open question."""
        first = asked.popleft()
        try:
            return self._screened(self._gpu.hear(self._deadline_seconds))
        except Died as death:
            failure = self._died(first, death) if death.hung else self._alone(first)
        except LostContext as lost:
            failure = self._outcome(first.config, Outcome.LAUNCH, str(lost), first.digest)
        self._recover()
        for candidate in asked:
            self._gpu.tell(self._question("screen", candidate.config, candidate.digest))
        return failure

    def _alone(self, candidate: Asked) -> Measurement:
        """Measures a candidate alone after the process ended.

        The candidate, one that was being made ready, or something outside may have ended it. The candidate is to
        blame if it ends a process again that does nothing else.
        """
        self._recover()
        question = self._question("screen", candidate.config, candidate.digest)
        try:
            return self._screened(self._gpu.ask(question, self._deadline_seconds))
        except Died as death:
            return self._died(candidate, death)
        except LostContext as lost:
            return self._outcome(candidate.config, Outcome.LAUNCH, str(lost), candidate.digest)

    def _died(self, candidate: Asked, death: Died) -> Measurement:
        outcome = Outcome.TIMEOUT if death.hung else Outcome.LAUNCH
        return self._outcome(candidate.config, outcome, str(death), candidate.digest)

    def _screened(self, answer: dict[str, Any]) -> Measurement:
        measurement = from_json(Measurement, json.dumps(answer))
        self._fastest_us = min(self._fastest_us, measurement.median_us)
        return measurement

    def _run_finals(self, turns: int) -> tuple[Measurement, ...]:
        self._gpu.ask({"do": "baselines"}, self._patience_seconds)
        answer = self._gpu.ask({"do": "finals", "turns": turns}, self._patience_seconds + FINALS_SECONDS + turns)
        return tuple(from_json(Measurement, json.dumps(entry)) for entry in answer["measurements"])

    def _arm_all(self, finalists: Sequence[Config]) -> Measurement | None:
        """Makes the finalists ready; returns the first that fails, as a measurement.

        Raises:
            Died: the process ended at a finalist that had not ended one before.
        """
        for config in finalists:
            digest = self._digest_of(config)
            if isinstance(digest, BuildFailure):
                return self._outcome(config, Outcome.COMPILE, digest.reason, stage="final")
            try:
                question = self._question("arm", config, digest)
                reason = self._gpu.ask(question, self._deadline_seconds)["reason"]
            except Died as error:
                self._ended[config.key] += 1
                if not error.hung and self._ended[config.key] == 1:
                    raise
                outcome = Outcome.TIMEOUT if error.hung else Outcome.LAUNCH
                return self._outcome(config, outcome, str(error), digest, "final")
            except LostContext as error:
                return self._outcome(config, Outcome.LAUNCH, str(error), digest, "final")
            if reason:
                return self._outcome(config, Outcome.WRONG_RESULT, reason, digest, "final")
        return None

    def _asked_twice(self, question: dict[str, Any]) -> dict[str, Any]:
        """Asks a question that involves no candidate; twice if the process ends, since something outside may end it."""
        # A process that is started for it has to load driver and libraries first.
        start_seconds = 0.0 if self._gpu.supervisor.alive else HELLO_SECONDS
        try:
            return self._gpu.ask(question, self._patience_seconds + start_seconds)
        except Died as death:
            if death.hung:
                raise
            return self._gpu.ask(question, self._patience_seconds + HELLO_SECONDS)

    def _take_over(self) -> None:
        """Waits for open questions, and prepares this round's operands where the process holds others."""
        self._gpu.settle()
        if self._gpu.prepared is not self or not self._gpu.supervisor.alive:
            self.prepare()

    def _recover(self) -> None:
        """Drops the rivals of a process that is still alive, or prepares a fresh one."""
        if self._gpu.supervisor.alive:
            try:
                self._gpu.ask({"do": "drop"}, self._patience_seconds)
                return
            except (Died, LostContext):
                self._gpu.supervisor.kill()
        self.prepare()

    def _digest_of(self, config: Config) -> str | BuildFailure:
        if not is_own(config):
            return ""
        if config.key not in self._digests:
            _, build = next(iter(self._gpu.builder.builds(self._problem, [config])))
            if isinstance(build, BuildFailure):
                return build
            self._digests[config.key] = build.digest
        return self._digests[config.key]

    def _question(self, do: str, config: Config, digest: str) -> dict[str, Any]:
        return {"do": do, "family": config.family, "knobs": config.knobs_text, "digest": digest}

    def _outcome(
        self, config: Config, outcome: Outcome, detail: str, digest: str = "", stage: Stage = "screen"
    ) -> Measurement:
        return Measurement(self._problem.key, config, stage, SCREENING, outcome, detail=detail, build_digest=digest)
