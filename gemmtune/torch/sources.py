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

#: Sources of configs that are launched by default. A `default` config is legal, but nothing is known of its speed.
TRUSTED: Final = ("measured", "nearest", "predicted")


@dataclass(frozen=True, slots=True)
class Lookup:
    """A source's answer.

    Attributes:
        config: the config to launch; None if there is none.
        why: the reason, as one sentence.
    """

    config: Config | None
    why: str


class Source(Protocol):
    """Finds configs."""

    def find(self, problem: Problem, device: str) -> Lookup:
        """The best config for a problem on a device model; an unknown problem or device is an answer, not an error."""
        ...


@dataclass
class Bests:
    """A store or a table, read in this process."""

    bests: Any
    trusted: Sequence[str] = TRUSTED

    def find(self, problem: Problem, device: str) -> Lookup:
        try:
            said: Answer = answer(self.bests, problem, device, model=model_for(device, settings().model_dir).model)
        except (TunerError, SpaceError) as error:
            return Lookup(None, str(error))
        return _trusted(said.source, said.config, said.why, self.trusted)


@dataclass
class Service:
    """A service over HTTP. Its answers are checked like any input from a network."""

    client: Client
    trusted: Sequence[str] = TRUSTED

    def find(self, problem: Problem, device: str) -> Lookup:
        question = problem.fields()
        try:
            (said,) = self.client.best_many([question], device)
            config = family_named(said.family).config(said.knobs) if said.family else None
        except (GemmtuneError, SpaceError) as error:
            return Lookup(None, str(error))
        return _trusted(said.source, config, said.why, self.trusted)


def _trusted(source: str, config: Config | None, why: str, trusted: Sequence[str]) -> Lookup:
    if config is not None and source not in trusted:
        return Lookup(None, f"the answer is {source}, not {' or '.join(trusted)} ({why})")
    return Lookup(config, f"{source}: {why}")


@dataclass
class _Configuration:
    """This process's source, opened at its first use; `generation` counts the calls of `configure`."""

    named: str | Path | None = None
    trusted: Sequence[str] = TRUSTED
    token: str | None = None
    opened: Source | None = None
    generation: int = field(default=0)


CHOSEN: Final = _Configuration()


def configure(
    source: str | Path | Source | None = None, *, trusted: Sequence[str] = TRUSTED, token: str | None = None
) -> None:
    """Sets where `gemm` finds its configs, and forgets the kernels that it has loaded.

    Args:
        source: a service's URL (`http://…`), a table from `gemmtune export --format json` (`….json`), or a
            database (a path or a SQLAlchemy URL). Default: the store of the settings.
        trusted: sources of configs that may be launched, some of `measured`, `nearest` and `predicted`.
        token: the service's token.
    """
    if unknown := set(trusted) - set(TRUSTED):
        raise ValueError(f"trusted = {sorted(unknown)} is unknown: use some of {', '.join(TRUSTED)}")
    CHOSEN.named = source if isinstance(source, str | Path) else None
    CHOSEN.opened = None if isinstance(source, str | Path | None) else source
    CHOSEN.trusted, CHOSEN.token = tuple(trusted), token
    # Prepared kernels now belong to an older generation; they stay loaded because graphs may use them.
    CHOSEN.generation += 1


def chosen() -> Source:
    """The configured source.

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


