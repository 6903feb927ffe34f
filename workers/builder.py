"""Builder: compiles candidates on CPU threads, ahead of the device that will run them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from space.config import Config
from space.family import family_named
from space.problem import Problem
from workers.build import Build, BuildFailure, compile_source
from workers.kernels.render import render


class Builder:
    """Candidates in, builds out, in the order in which they are done.

    Candidates that differ in launch knobs only share one build. Usable from one thread at a time.

    Args:
        cache_dir: where builds are kept; None keeps none.
        threads: compilers at work; NVRTC releases the interpreter while it compiles.
    """

    def __init__(self, cache_dir: Path | None, threads: int | None = None) -> None:
        self._cache_dir = cache_dir
        self._threads = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="build")

    def builds(self, problem: Problem, candidates: Sequence[Config]) -> Iterator[tuple[Config, Build | BuildFailure]]:
        """Each candidate with its build, as soon as that is done.

        Raises:
            CacheError: a build can't be kept.
        """
        waiting: dict[Future[Build | BuildFailure], list[Config]] = {}
        by_source: dict[tuple[str, str], Future[Build | BuildFailure]] = {}
        for config in candidates:
            source, arch = self.source_of(problem, config), family_named(config.family).arch
            if (source, arch) not in by_source:
                by_source[source, arch] = self._pool.submit(compile_source, source, arch, self._cache_dir)
            waiting.setdefault(by_source[source, arch], []).append(config)
        try:
            for future in as_completed(waiting):
                for config in waiting[future]:
                    yield config, future.result()
        finally:
            for future in waiting:
                future.cancel()

    def source_of(self, problem: Problem, config: Config) -> str:
        """The text that is compiled for a candidate."""
        return render(config.family, family_named(config.family).compile_constants(problem, config))

    def close(self) -> None:
        """Lets the compilers that are at work finish, and starts no others."""
        self._pool.shutdown(cancel_futures=True)
