"""CudaWorker: a GPU of this machine behind the worker port. The parent's half: builds, deadlines, outcomes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from space.config import Config
from space.explain import explain
from space.family import family_named
from space.problem import Problem
from workers import errors
from workers.build import BuildFailure
from workers.builder import Builder
from workers.cuda.supervisor import Died, Supervisor
from workers.errors import DriverError, ProcessError, WorkerError
from workers.kernels.render import source_digest
from workers.measurement import DeviceFacts, Measurement, Outcome, Policy, Provenance, from_json

#: The first answer waits for the driver, the library and the verification kernels.
HELLO_SECONDS: Final = 120.0
PREPARE_SECONDS: Final = 180.0
#: Tries of the finals before the device is given up.
FINAL_TRIES: Final = 3


class CudaWorker:
    """One GPU; see `workers.ports.Worker`.

    Attributes:
        notices: what a reader of its measurements should know, as in another process on the same GPU.
    """

    def __init__(self, ordinal: int, cache_dir: Path, deadline_seconds: float = 20.0) -> None:
        """Starts the GPU process.

        Raises:
            DriverError: no such GPU, or one that our kernels can't run on.
            ProcessError: the process doesn't come up.
        """
        self.deadline_seconds = deadline_seconds
        self.builder = Builder(cache_dir)
        self.supervisor = Supervisor(["-m", "workers.cuda.process", str(ordinal), str(cache_dir)])
        try:
            hello = self.ask({"do": "hello"}, HELLO_SECONDS)
        except (Died, LostContext) as error:
            self.close()
            raise DriverError(f"cuda:{ordinal} can't be used: {error}") from error
        except WorkerError:
            self.close()
            raise
        self._facts = from_json(DeviceFacts, json.dumps(hello["facts"]))
        self.libraries = {"cublaslt": str(hello["cublaslt"]), "nvrtc": str(hello["nvrtc"])}
        self.notices: tuple[str, ...] = tuple(hello["notices"])

    @property
    def facts(self) -> DeviceFacts:
        """The GPU."""
        return self._facts

    def measurable(self, problem: Problem) -> None:
        """Any legal candidate can be measured."""
        return

    def begin(self, problem: Problem, policy: Policy) -> CudaRound:
        """Prepares operands and reference.

        Raises:
            WorkerError: the problem doesn't fit the device's memory, or the device is lost.
        """
        round_ = CudaRound(self, problem, policy)
        round_.prepare()
        return round_

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        """One question to the GPU process.

        Raises:
            Died: it hung or ended.
            LostContext: a CUDA error; the process may be gone.
            WorkerError: it refused, with the reason.
        """
        answer = self.supervisor.ask(question, seconds)
        if "error" not in answer:
            return answer
        if answer["kind"] == "CudaError":
            if answer["lost"]:
                self.supervisor.kill()
            raise LostContext(answer["error"], answer["name"], answer["lost"])
        raise getattr(errors, answer["kind"], ProcessError)(answer["error"])

    def close(self) -> None:
        """Ends the GPU process and the compilers."""
        self.supervisor.close()
        self.builder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LostContext(Exception):
    """A CUDA error that the GPU process reports; `lost` where its context went with it."""

    def __init__(self, message: str, name: str, lost: bool) -> None:
        super().__init__(message)
        self.name = name
        self.lost = lost


class CudaRound:
    """One problem on one GPU; see `workers.ports.Round`."""

    def __init__(self, worker: CudaWorker, problem: Problem, policy: Policy) -> None:
        self._worker, self._problem, self._policy = worker, problem, policy
        self._seed = secrets.randbits(48)
        self._digests: dict[str, str] = {}

    @property
    def provenance(self) -> Provenance:
        """What this round's measurements depend on."""
        facts, libraries = self._worker.facts, self._worker.libraries
        return Provenance(
            facts.name, facts.uuid, facts.driver, libraries["nvrtc"], source_digest("sm90_wgmma"),
            libraries["cublaslt"], _own_version(), self._seed,
        )  # fmt: skip

    def prepare(self) -> None:
        """Operands and reference, again after the process was lost; the same seed gives the same data."""
        try:
            self._worker.ask({"do": "prepare", "problem": self._problem.key, "seed": self._seed}, PREPARE_SECONDS)
        except Died as error:
            raise ProcessError(f"{self._problem.shape} can't be prepared: {error}") from error
        except LostContext as error:
            if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
                raise DriverError(
                    f"{self._problem.shape} needs more memory than {self._worker.facts.name} has free: "
                    f"tune a smaller problem, or free the GPU"
                ) from error
            raise ProcessError(f"{self._problem.shape} can't be prepared: {error}") from error

    def screen(self, candidates: Sequence[Config]) -> Iterator[Measurement]:
        """Builds on CPU threads, and measures each candidate as soon as it is built."""
        legal = []
        for config in candidates:
            said = explain(family_named(config.family), self._problem, config)
            if said.legal:
                legal.append(config)
            else:
                yield self._outcome(config, Outcome.CONSTRAINTS, f"{said.broken[0].rule}: {said.broken[0].numbers}")
        for config, build in self._worker.builder.builds(self._problem, legal):
            if isinstance(build, BuildFailure):
                yield self._outcome(config, Outcome.COMPILE, build.reason)
            else:
                self._digests[config.key] = build.digest
                yield self._screen_one(config, build.digest)

    def finals(self, finalists: Sequence[Config], rounds: int) -> tuple[Measurement, ...]:
        """Interleaved rounds; a finalist that fails here is reported as failed, the others go on without it.

        Raises:
            ProcessError: the GPU process died again and again.
        """
        left, failed = list(finalists), list[Measurement]()
        for _ in range(FINAL_TRIES):
            try:
                bad = self._arm_all(left)
                if bad is None:
                    self._worker.ask({"do": "library"}, PREPARE_SECONDS)
                    seconds = PREPARE_SECONDS + rounds
                    answer = self._worker.ask({"do": "rounds", "rounds": rounds, "policy": self._policy.value}, seconds)
                    measured = (from_json(Measurement, json.dumps(entry)) for entry in answer["measurements"])
                    return (*failed, *measured)
                failed.append(bad)
                left = [config for config in left if config != bad.config]
            except (Died, LostContext):
                pass
            self._recover()
        raise ProcessError(f"the GPU process died in {FINAL_TRIES} tries of the finals of {self._problem.shape}")

    def _arm_all(self, finalists: Sequence[Config]) -> Measurement | None:
        """Makes the finalists ready; the first that fails, as a measurement."""
        for config in finalists:
            question = self._question("arm", config, self._digest_of(config))
            try:
                reason = self._worker.ask(question, self._worker.deadline_seconds)["reason"]
            except Died as error:
                outcome = Outcome.TIMEOUT if error.hung else Outcome.LAUNCH
                return self._outcome(config, outcome, str(error), stage="final")
            except LostContext as error:
                return self._outcome(config, Outcome.LAUNCH, str(error), stage="final")
            if reason:
                return self._outcome(config, Outcome.WRONG_RESULT, reason, stage="final")
        return None

    def _screen_one(self, config: Config, digest: str) -> Measurement:
        try:
            answer = self._worker.ask(self._question("screen", config, digest), self._worker.deadline_seconds)
            return from_json(Measurement, json.dumps(answer))
        except Died as error:
            outcome = Outcome.TIMEOUT if error.hung else Outcome.LAUNCH
            failure = self._outcome(config, outcome, str(error), digest)
        except LostContext as error:
            failure = self._outcome(config, Outcome.LAUNCH, str(error), digest)
        self._recover()
        return failure

    def _recover(self) -> None:
        """A fresh process with the same operands, or the same process without its arms."""
        if self._worker.supervisor.alive:
            self._worker.ask({"do": "drop"}, PREPARE_SECONDS)
        else:
            self.prepare()

    def _digest_of(self, config: Config) -> str:
        if config.key not in self._digests:
            _, build = next(iter(self._worker.builder.builds(self._problem, [config])))
            self._digests[config.key] = build.digest
        return self._digests[config.key]

    def _question(self, do: str, config: Config, digest: str) -> dict[str, Any]:
        return {"do": do, "family": config.family, "knobs": config.knobs_text, "digest": digest,
                "policy": self._policy.value}  # fmt: skip

    def _outcome(
        self,
        config: Config,
        outcome: Outcome,
        detail: str,
        digest: str = "",
        stage: Any = "screen",  # noqa: ANN401
    ) -> Measurement:
        return Measurement(self._problem.key, config, stage, self._policy, outcome, detail=detail, build_digest=digest)


def _own_version() -> str:
    try:
        return version("gemmtune")
    except PackageNotFoundError:
        return "0+source"
