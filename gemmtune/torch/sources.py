"""Where configs come from: the embedded store, a table file, or a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from gemmtune.client import Client, GemmtuneError
from space.config import Config
from space.errors import SpaceError
from space.problem import Problem
from space.registry import family_named
from tuner.answering.answers import Answer, answer
from tuner.errors import TunerError
from tuner.evidence.store import Store
from tuner.prediction.files import model_for
from tuner.settings import database_url, settings
from tuner.tables.tables import TableBests, read_table

#: Answers whose configs are launched: `default` ones were made legal, and nothing more is known of them.
TRUSTED: Final = ("measured", "nearest", "predicted")


@dataclass(frozen=True, slots=True)
class Found:
    """What a source says.

    Attributes:
        config: to launch; None where there is none.
        why: one sentence.
    """

    config: Config | None
    why: str


class Source(Protocol):
    """Answers one question."""

    def find(self, problem: Problem, device: str) -> Found:
        """The best config for a problem on a device model; never raises for what is not known."""
        ...


@dataclass
class Bests:
    """A store, or a table, in this process."""

    bests: Any
    trusted: Sequence[str] = TRUSTED

    def find(self, problem: Problem, device: str) -> Found:
        """See `Source`."""
        try:
            said: Answer = answer(self.bests, problem, device, model=model_for(device, settings().model_dir).model)
        except TunerError as error:
            return Found(None, str(error))
        return _trusted(said.source, said.config, said.why, self.trusted)


@dataclass
class Service:
    """A service, asked over HTTP; what it says is checked like everything that comes over a wire."""

    client: Client
    trusted: Sequence[str] = TRUSTED

    def find(self, problem: Problem, device: str) -> Found:
        """See `Source`."""
        question = problem.fields()
        try:
            (said,) = self.client.best_many([question], device)
            config = family_named(said.family).config(said.knobs) if said.family else None
        except (GemmtuneError, SpaceError) as error:
            return Found(None, str(error))
        return _trusted(said.source, config, said.why, self.trusted)


def _trusted(source: str, config: Config | None, why: str, trusted: Sequence[str]) -> Found:
    if config is not None and source not in trusted:
        return Found(None, f"the answer is {source}, not {' or '.join(trusted)} ({why})")
    return Found(config, f"{source}: {why}")


@dataclass
class _Chosen:
    """The source of this process, opened when it is first asked; `generation` counts how often it was replaced."""

    named: str | Path | None = None
    trusted: Sequence[str] = TRUSTED
    token: str | None = None
    opened: Source | None = None
    generation: int = field(default=0)


CHOSEN: Final = _Chosen()


def configure(
    source: str | Path | Source | None = None, *, trusted: Sequence[str] = TRUSTED, token: str | None = None
) -> None:
    """Says where `gemm` finds its configs; what it has loaded is forgotten.

    Args:
        source: a service's URL (`http://…`), a table (`….json`, of `gemmtune export --format json`), a database (a
            path, or a URL of SQLAlchemy); the store of the settings by default.
        trusted: kinds of answers whose configs are launched, of `measured`, `nearest` and `predicted`.
        token: for the service.
    """
    if unknown := set(trusted) - set(TRUSTED):
        raise ValueError(f"trusted = {sorted(unknown)} is unknown: use some of {', '.join(TRUSTED)}")
    CHOSEN.named = source if isinstance(source, str | Path) else None
    CHOSEN.opened = None if isinstance(source, str | Path | None) else source
    CHOSEN.trusted, CHOSEN.token = tuple(trusted), token
    # Whatever was prepared is of another generation now; programs stay loaded, as graphs may hold them.
    CHOSEN.generation += 1


def chosen() -> Source:
    """The source that was configured.

    Raises:
        TunerError: it can't be opened.
    """
    if CHOSEN.opened is None:
        CHOSEN.opened = _open(CHOSEN.named, CHOSEN.trusted, CHOSEN.token)
    return CHOSEN.opened


def _open(named: str | Path | None, trusted: Sequence[str], token: str | None) -> Source:
    text = str(named or "")
    if text.startswith(("http://", "https://")):
        return Service(Client(text, token=token), trusted)
    if text.endswith(".json"):
        return Bests(TableBests(read_table(Path(text))), trusted)
    url = database_url(text) if text else settings().db_url
    return Bests(Store.open(url), trusted)


