"""Commands in this process: what `gemmtune …` prints and returns, without the time that a process takes to start."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gemmtune.command import main
from tuner.settings import settings


@dataclass(frozen=True)
class Ran:
    """What a command did; `code` is its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401  (a JSON document)
        """Its standard output, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """Its standard error in one line, as a terminal of any width shows it."""
        return " ".join(self.err.split())


class Shell:
    """Runs commands in an environment of their own, in a home folder of their own.

    Args:
        environment: GEMMTUNE_* variables.
    """

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.environment = dict(environment or {})

    def __call__(self, *words: str, **environment: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        code = 0
        typed = patch.object(sys, "argv", ["gemmtune", *words])
        with self.around(environment), typed, redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 0
        return Ran(code, out.getvalue(), err.getvalue())

    @contextmanager
    def around(self, environment: Mapping[str, str] | None = None) -> Iterator[None]:
        """The environment of its commands, in this process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GEMMTUNE_")}
        given = kept | {"HOME": str(self.home)} | self.environment | dict(environment or {})
        with patch.dict(os.environ, given, clear=True):
            settings.cache_clear()
            try:
                yield
            finally:
                settings.cache_clear()

    def files(self) -> dict[str, int]:
        """Every path below its home, with the time of its last change."""
        return {str(path.relative_to(self.home)): path.stat().st_mtime_ns for path in sorted(self.home.rglob("*"))}
