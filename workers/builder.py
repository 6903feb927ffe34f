"""Builder: compiles candidates on all cores, ahead of the device that will run them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from space.config import Config
from space.devices import reference_profile
from space.family import family_named
from space.problem import Problem
from workers.build import Build, BuildFailure, Elsewhere, compile_source
from workers.compilers import Compilers
from workers.errors import ProcessError
from workers.kernels.source import Constants, source_of_family

#: Builds started and not yet taken, per compiler: enough that no compiler waits for the device.
AHEAD_PER_COMPILER: Final = 4
#: Open builds below which further candidates are requested. With more of them open, proposals know too little: on 42
#: recorded problems the best of 96 candidates is as fast with 16 open as with batches that wait for all results (0.998
#: of the fastest); with 24 it is not (0.996). No device is faster than that many compilers.
MAX_AT_WORK: Final = 16
#: Compiler threads that one process can keep busy; further compilers are processes.
MAX_THREADS: Final = 2
#: A GPU is busy with fewer, and each takes 200 MB.
MAX_COMPILERS: Final = 32
#: Builds before the first process is started: a caller that wants only a few does not wait for it.
FEW: Final = 4

BuildResult = Build | BuildFailure


class BuildCache(Protocol):
    """Builds from other machines. Called from several threads."""

    def fetch(self, digest: str) -> Build | None:
        """The build with this digest; None when there is none or it can't be fetched now. Never raises."""

    def offer(self, problem: Problem, config: Config, arch: str, build: Build) -> None:
        """Accepts a build that was made here. Never raises, and never waits."""


def source_of(problem: Problem, config: Config, arch: str) -> str:
    """The source to compile for a candidate and a target: all devices of an arch share it.

    Raises:
        ProfileError: no known device has this arch.
    """
    family = family_named(config.family)
    return source_of_family(family).render(family.compile_constants(problem, config, reference_profile(arch)))


class Builder:
    """Builds candidates, and returns builds in the order in which they finish.

    Candidates whose kernels have the same constants share one build. Usable from one thread at a time.

    Args:
        cache_dir: folder in which builds are kept; None keeps none.
        threads: compilers at work; by default one per core. Each compiles by itself, during which NVRTC releases the
            interpreter; where they are many, each waits for a process that compiles.
        build_cache: builds of other machines.

    Attributes:
        arch: compile target; while it is empty, that of the reference device of each candidate's family.
    """

    def __init__(
        self, cache_dir: Path | None, threads: int | None = None, build_cache: BuildCache | None = None
    ) -> None:
        self.arch = ""
        self._cache_dir = cache_dir
        self._build_cache = build_cache
        self._threads = threads or min(len(os.sched_getaffinity(0)), MAX_COMPILERS)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="build")
        self._compilers, self._asked = Compilers(), count()

    def begin(self, problem: Problem, candidates: Sequence[Config]) -> Builds:
        """Starts building candidates."""
        return Builds(self, problem, candidates, self._threads)

    def builds(self, problem: Problem, candidates: Sequence[Config]) -> Iterator[tuple[Config, BuildResult]]:
        """Yields each candidate with its build as soon as that is done.

        Raises:
            CacheError: a build can't be kept.
            ProcessError: no compiler can be started.
        """
        begun = self.begin(problem, candidates)
        try:
            while (built := begun.take()) is not None:
                yield built
        finally:
            begun.cancel()

    def source_of(self, config: Config, constants: Constants) -> str:
        """The source to compile for a candidate with these constants."""
        return source_of_family(family_named(config.family)).render(constants)

    def arch_of(self, config: Config) -> str:
        """The compile target of a candidate."""
        return self.arch or family_named(config.family).reference.arch.name

    def submit(self, problem: Problem, config: Config, constants: Constants) -> Future[BuildResult]:
        """Compiles one candidate, given its constants, on one of the threads.

        Raises:
            ProcessError: no thread can be started, or another thread has closed the builder.
        """
        try:
            return self._pool.submit(self._compile, problem, config, constants)
        except RuntimeError as error:
            raise ProcessError(
                f"no compiler can be started ({error}): free memory or processes, and open the device again"
            ) from error

    def close(self) -> None:
        """Lets running compilers finish, and starts no others."""
        self._pool.shutdown(cancel_futures=True)
        self._compilers.close()

    def _compile(self, problem: Problem, config: Config, constants: Constants) -> BuildResult:
        source = self.source_of(config, constants)
        arch = self.arch_of(config)
        if self._build_cache is None:
            return compile_source(source, arch, self._cache_dir, elsewhere=self._elsewhere())
        made = compile_source(source, arch, self._cache_dir, self._build_cache.fetch, self._elsewhere())
        if isinstance(made, Build) and made.seconds:
            self._build_cache.offer(problem, config, arch, made)
        return made

    def _elsewhere(self) -> Elsewhere | None:
        """The compiler of the next source: a process, or None for the calling thread."""
        return self._compilers.compile if self._threads > MAX_THREADS and next(self._asked) >= FEW else None


class Builds:
    """Builds in progress: finished ones are taken in the order in which they finish, and more are started."""

    def __init__(self, builder: Builder, problem: Problem, candidates: Sequence[Config], compilers: int) -> None:
        self._builder, self._problem, self._compilers = builder, problem, compilers
        self._waiting = list(reversed(candidates))
        self._begun: dict[tuple[str, tuple[tuple[str, object], ...]], Future[BuildResult]] = {}
        self._done: SimpleQueue[tuple[Config, Future[BuildResult]]] = SimpleQueue()
        self._under_way = 0

    @property
    def left(self) -> int:
        """Candidates not taken yet."""
        return len(self._waiting) + self._under_way

    @property
    def done(self) -> int:
        """Candidates that can be taken without waiting."""
        return self._done.qsize()

    @property
    def idle(self) -> bool:
        """Whether a compiler is idle and few enough builds are open to propose more candidates."""
        return self.left - self.done < min(self._compilers, MAX_AT_WORK)

    def add(self, candidates: Sequence[Config]) -> None:
        """Appends candidates to the queue."""
        self._waiting[:0] = reversed(candidates)
        self._begin_waiting()

    def take(self, wait: bool = True) -> tuple[Config, BuildResult] | None:
        """Takes a candidate with its build; None when all were taken, or when none is done and `wait` is False.

        Raises:
            CacheError: a build can't be kept.
        """
        self._begin_waiting()
        if not self._under_way:
            return None
        try:
            config, future = self._done.get(wait)
        except Empty:
            return None
        self._under_way -= 1
        return config, future.result()

    def cancel(self) -> None:
        """Starts no more builds; those being compiled run to their end."""
        self._waiting = []
        for future in self._begun.values():
            future.cancel()

    def _begin_waiting(self) -> None:
        while self._waiting and self._under_way < self._compilers * AHEAD_PER_COMPILER:
            self._begin(self._waiting.pop())

    def _begin(self, config: Config) -> None:
        # A launch knob may decide a constant too: the source depends on whether K is split, not on how often.
        device = reference_profile(self._builder.arch_of(config))
        constants = family_named(config.family).compile_constants(self._problem, config, device)
        identity = (config.family, tuple(constants.items()))
        if identity not in self._begun:
            self._begun[identity] = self._builder.submit(self._problem, config, constants)
        self._under_way += 1
        self._begun[identity].add_done_callback(lambda future: self._done.put((config, future)))
