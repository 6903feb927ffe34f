"""GpuProcess: the parent's half of the process that owns a GPU. It never touches the driver."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from space.family import families_for
from space.problem import Problem
from space.registry import registered_modules
from workers import errors
from workers.builder import BuildCache, Builder
from workers.errors import DriverError, ProcessError, WorkerError
from workers.kernels.source import sources_digest
from workers.measurement import ROTATION_BYTES, DeviceFacts, Program, from_json
from workers.supervisor import Died, LostContext, Supervisor

#: Limit for the first answer, which waits for the driver, the libraries and the verification kernels.
HELLO_SECONDS: Final = 120.0
PROCESS: Final = ("-m", "workers.cuda.process")


class GpuProcess:
    """One GPU of this machine: its process, the builder of its candidates, and the process's facts about itself.

    Attributes:
        libraries: versions of NVRTC and of third-party libraries, by name.
        notices: remarks for readers of its measurements, such as another process on the same GPU.
        prepared: the round whose operands the GPU process holds.
    """

    def __init__(
        self, ordinal: int, cache_dir: Path, deadline_seconds: float = 20.0, process: Sequence[str] = PROCESS,
        build_cache: BuildCache | None = None,
    ) -> None:  # fmt: skip
        """Starts the GPU process.

        Args:
            deadline_seconds: how long one candidate may keep the GPU before it counts as hung.
            process: what to start, as arguments of the interpreter.
            build_cache: builds of other machines.

        Raises:
            DriverError: no such GPU, or one that no family serves.
            ProcessError: the process doesn't come up.
        """
        self.cache_dir, self.deadline_seconds = cache_dir, deadline_seconds
        self.prepared: object = None
        self._open = 0
        self.builder = Builder(cache_dir, build_cache=build_cache)
        self.supervisor = Supervisor([*process, str(ordinal), str(cache_dir), *registered_modules()])
        try:
            hello = self.ask({"do": "hello"}, HELLO_SECONDS)
        except (Died, LostContext) as error:
            self.close()
            raise DriverError(
                f"cuda:{ordinal} can't be used ({error}): check it with nvidia-smi, and dmesg for Xid errors"
            ) from error
        except WorkerError:
            self.close()
            raise
        self._facts = from_json(DeviceFacts, json.dumps(hello["facts"]))
        self.builder.arch = self._facts.arch
        self.libraries: dict[str, str] = hello["libraries"]
        self.notices: tuple[str, ...] = tuple(hello["notices"])

    @property
    def facts(self) -> DeviceFacts:
        return self._facts

    def program(self, problem: Problem) -> Program:
        """The program that would run for a problem."""
        competing = families_for(self.facts.arch, problem)
        sources, libraries = sources_digest(competing, problem), self.libraries
        cublaslt = libraries.get("cublaslt", "")
        return Program(sources, libraries["nvrtc"], self.facts.driver, cublaslt, ROTATION_BYTES)

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        """One question to the GPU process.

        Raises:
            Died: it hung or ended.
            LostContext: a CUDA error; the process may be gone.
            WorkerError: it refused, with the reason.
        """
        self.settle()
        self.tell(question)
        return self.hear(seconds)

    def settle(self) -> None:
        """Discards the answers to open questions: answers come in order."""
        while self._open:
            with contextlib.suppress(Died, LostContext, WorkerError):
                self.hear(self.deadline_seconds)

    def tell(self, question: dict[str, Any]) -> None:
        """Sends a question ahead; `hear` returns its answer.

        Raises:
            ProcessError: no process can be started.
        """
        self.supervisor.tell(question)
        self._open += 1

    def hear(self, seconds: float) -> dict[str, Any]:
        """The answer to the oldest open question. After a failure of the process none is open.

        Raises:
            Died: it hung or ended.
            LostContext: a CUDA error; the process may be gone.
            WorkerError: it refused, with the reason.
        """
        try:
            answer = self.supervisor.hear(seconds)
        except Died:
            self._open = 0
            raise
        self._open -= 1
        if "error" not in answer:
            return answer
        if answer["kind"] == "CudaError":
            if answer["lost"]:
                self.supervisor.kill()
                self._open = 0
            raise LostContext(answer["error"], answer["name"], answer["lost"])
        raise getattr(errors, answer["kind"], ProcessError)(answer["error"])

    def gpu_busy_seconds(self) -> float:
        """How long the GPU has worked on candidates since its process was started.

        Raises:
            Died: the process hung or ended.
        """
        return float(self.ask({"do": "busy"}, HELLO_SECONDS)["busy_us"]) / 1e6

    def close(self) -> None:
        """Ends the GPU process and the compilers.

        Raises:
            ProcessError: the GPU process does not end.
        """
        try:
            self.supervisor.close()
        finally:
            self.builder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
