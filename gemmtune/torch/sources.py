"""Where configs come from: the embedded store, a table file, or a service."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gemmtune.client import Client, GemmtuneError
from gemmtune.exact import exact
from gemmtune.found import Found as Found  # what sources are made of
from gemmtune.found import Source as Source
from gemmtune.named import absolute
from space.config import Config
from space.errors import SpaceError
from space.family import family_named
from space.problem import Problem
from tuner.answering.answers import Answer, answer, policy_of
from tuner.answering.staleness import Built, proved_build
from tuner.errors import StoreError, TableError, TunerError
from tuner.evidence.store import Store
from tuner.files import is_database, is_endless, is_folder
from tuner.prediction.files import model_for
from tuner.settings import database_url, settings
from tuner.tables.recorded import recorded_bests
from tuner.tables.tables import TableBests, bests_in, library_in, read_document

#: Sources of configs to launch by default.
TRUSTED: Final = ("measured", "stale", "recorded", "nearest", "predicted")
#: Of these, what nobody measured for the problem: it runs only where it is faster than torch's operator.
UNMEASURED: Final = ("nearest", "predicted")
#: Whether the kernels around a product let the next one start early.
NEIGHBOURS: Final = ("plain", "pdl")
#: When to verify, on this device, configs that were not measured for exactly the problem.
VERIFY: Final = ("first_call", "background")
#: A source that did not answer is left alone for this many times as long as it was waited for.
_PAUSE: Final = 9
#: A service that asks for a wait gets it, and no longer one: a proxy before it may ask for hours.
_LONGEST_SECONDS: Final = 60.0


@dataclass
class _Silence:
    """The time in which a source that did not answer is not asked: waiting for it takes at most a tenth of the time,
    however many problems are asked for."""

    told: Found | None = None
    until: float = 0.0

    def begin(self, why: object, asked: float, least_seconds: float = 0.0) -> Found:
        """What to tell until the source is asked again; `asked` is when it was, by `time.monotonic`."""
        now = time.monotonic()
        pause = max(_PAUSE * (now - asked), min(least_seconds, _LONGEST_SECONDS))
        self.told, self.until = Found(None, str(why), for_now=True), now + pause
        return self.told

    def at(self, now: float) -> Found | None:
        """What to tell while it lasts."""
        return self.told if now < self.until else None


@dataclass
class Bests:
    """A store or a table, read in this process.

    Attributes:
        library: keys of problems whose library kernel a table says to keep.
    """

    bests: Any
    trusted: Sequence[str] = TRUSTED
    neighbours: str = NEIGHBOURS[0]
    library: frozenset[str] = frozenset()
    _silence: _Silence = field(default_factory=_Silence, init=False)

    def find(self, problem: Problem, device: str) -> Found:
        if problem.key in self.library:
            return Found(None, "the table leaves this problem to the library")
        asked_at = time.monotonic()
        if silent := self._silence.at(asked_at):
            return silent
        try:
            model = model_for(device, settings().model_dir).model
            asked, recordings = policy_of(None, self.neighbours), recorded_bests(settings().recorded_dir)
            said: Answer = answer(self.bests, problem, device, asked, model, recordings)
        except StoreError as error:
            # A database may restart, or be locked, for a moment.
            return self._silence.begin(error, asked_at)
        except (TunerError, SpaceError) as error:
            return Found(None, str(error))
        best = said.best
        version, built = (best.winner.provenance.cublaslt, proved_build(Built.of(best))) if best else ("", "")
        return _trusted(said.source, said.config, said.why, self.trusted, version, built)


@dataclass
class Service:
    """A service over HTTP. Its answers are checked like any input from a network."""

    client: Client
    trusted: Sequence[str] = TRUSTED
    neighbours: str = NEIGHBOURS[0]
    _silence: _Silence = field(default_factory=_Silence, init=False)

    def find(self, problem: Problem, device: str) -> Found:
        asked = time.monotonic()
        if silent := self._silence.at(asked):
            return silent
        question: dict[str, Any] = dict(problem.fields())
        try:
            said = self.client.best(**question, device=device, neighbours=self.neighbours)
            config = family_named(said.family).config(said.knobs) if said.family else None
        except GemmtuneError as error:
            if error.temporary and (error.status == 0 or error.retry_after):
                return self._silence.begin(error, asked, error.retry_after)
            return Found(None, str(error), for_now=error.temporary)
        except SpaceError as error:
            return Found(None, str(error))
        version = _text_in(said.document, "evidence", "provenance", "cublaslt")
        built = _text_in(said.document, "evidence", "build_digest")
        return _trusted(said.source, config, said.why, self.trusted, version, built)


@dataclass(frozen=True)
class _Closed:
    """A source that could not be opened for now."""

    told: Found

    def find(self, problem: Problem, device: str) -> Found:
        return self.told


def _trusted(
    source: str, config: Config | None, why: str, trusted: Sequence[str], cublaslt: str, build_digest: str
) -> Found:
    if config is not None and source not in trusted:
        return Found(None, f"the answer is {source}, not {' or '.join(trusted)} ({why})")
    return Found(config, f"{source}: {why}", source, cublaslt, build_digest)


def _text_in(document: Mapping[str, Any], *path: str) -> str:
    """A text in a service's answer; empty if it has none there."""
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else ""


@dataclass
class _Configuration:
    """This process's source, opened at its first use; `generation` counts the calls of `configure`.

    Attributes:
        store: what was opened here, and is closed here.
        silence: of a store that could not be opened.
    """

    named: str | Path | None = None
    trusted: Sequence[str] = TRUSTED
    token: str | None = None
    insecure: bool = False
    verify: str = VERIFY[0]
    neighbours: str = NEIGHBOURS[0]
    opened: Source | None = None
    store: Store | None = None
    silence: _Silence = field(default_factory=_Silence)
    generation: int = field(default=0)


CHOSEN: Final = _Configuration()
#: Held while the source is opened or replaced: one of an earlier configuration must not stay.
_LOCK: Final = threading.Lock()


def configure(
    source: str | Path | Source | None = None, *, trusted: Sequence[str] = TRUSTED, token: str | None = None,
    insecure: bool = False, verify: str = VERIFY[0], neighbours: str = NEIGHBOURS[0],
) -> None:  # fmt: skip
    """Sets where `gemm` finds its configs, and forgets the kernels that it has loaded.

    Args:
        source: a service's URL (`http://…`), a table from `gemmtune export --format json`, a folder of
            `--format bundle`, which needs neither a compiler nor a store, or a database (a path or a SQLAlchemy URL).
            Default: the store of the settings.
        trusted: sources of configs that may be launched, some of `measured`, `stale`, `recorded`, `nearest` and
            `predicted`.
        token: the service's token.
        insecure: send the token over plain HTTP beyond this machine, as inside a private network.
        verify: when to verify a config that was not measured for exactly the problem, and to time it beside torch's own
            operator if nobody measured it: `first_call`, before its first launch, or `background`, in a thread, while
            torch's operator computes.
        neighbours: `pdl` if the kernels around the products use programmatic dependent launch and trigger early.

    Raises:
        ValueError: `trusted`, `verify` or `neighbours` has another word, `trusted` is no list, or `source` no source.
        TableError: `source` is a path and nothing is there. What is there is opened by the first product.
    """
    if neighbours not in NEIGHBOURS:
        raise ValueError(f"neighbours = {neighbours!r} is unknown: use {' or '.join(NEIGHBOURS)}")
    if verify not in VERIFY:
        raise ValueError(f"verify = {verify!r} is unknown: use {' or '.join(VERIFY)}")
    _check_trusted(trusted)
    if isinstance(source, bytes) or not (isinstance(source, str | Path | None) or hasattr(source, "find")):
        raise ValueError(f"source = {source!r} is neither a path, a URL nor a Source: omit it for the default store")
    if isinstance(source, str | Path) and source:
        _check_there(text := str(source))
        source = text if "://" in text else str(absolute(text))
    with _LOCK:
        if CHOSEN.store is not None:
            # Whoever still asks it opens a connection anew.
            CHOSEN.store.close()
            CHOSEN.store = None
        CHOSEN.named = source if isinstance(source, str | Path) else None
        CHOSEN.opened = None if isinstance(source, str | Path | None) else source
        CHOSEN.trusted, CHOSEN.token, CHOSEN.insecure = tuple(trusted), token, insecure
        CHOSEN.verify, CHOSEN.neighbours, CHOSEN.silence = verify, neighbours, _Silence()
        # Prepared kernels now belong to an older generation; they stay loaded because graphs may use them.
        CHOSEN.generation += 1


def _check_trusted(trusted: object) -> None:
    if isinstance(trusted, str):
        raise ValueError(f"trusted = {trusted!r} is one text: give a list, as in [{trusted!r}]")
    if not isinstance(trusted, Collection):
        raise ValueError(f"trusted = {trusted!r} is no list: give some of {', '.join(TRUSTED)}")
    if unknown := [each for each in trusted if each not in TRUSTED]:
        raise ValueError(f"trusted = {unknown} is unknown: use some of {', '.join(TRUSTED)}")


def chosen() -> Source:
    """The configured source; one that says so as long as a store can't be opened, as while its database restarts.

    Raises:
        TunerError, GemmtuneError: it can't be opened.
    """
    with _LOCK:
        asked_at = time.monotonic()
        if CHOSEN.opened is None and (silent := CHOSEN.silence.at(asked_at)):
            return _Closed(silent)
        if CHOSEN.opened is None:
            try:
                CHOSEN.opened = _open(CHOSEN)
            except StoreError as error:
                return _Closed(CHOSEN.silence.begin(error, asked_at))
        return CHOSEN.opened


def _open(asked: _Configuration) -> Source:
    text, trusted, neighbours = str(asked.named or ""), asked.trusted, asked.neighbours
    if text.lower().startswith(("http://", "https://")):
        return Service(Client(text, token=asked.token, insecure=asked.insecure), trusted, neighbours)
    path = Path(text)
    if text and is_folder(path):
        return exact(path)
    if text.endswith(".json") or (text and _is_object(path)):
        document = read_document(path)
        bests = TableBests(bests_in(document, path))
        return Bests(bests, trusted, neighbours, library_in(document, path))
    if text:
        _check_there(text)
    # What was named is only read: an empty store in place of a misspelt bundle would go on with guesses.
    asked.store = Store.open(database_url(text), create=False) if text else Store.open(settings().db_url)
    return Bests(asked.store, trusted, neighbours)


def _is_object(path: Path) -> bool:
    """Whether a file begins as a table does, whatever its name."""
    if is_endless(path) or is_database(path):
        return False
    with suppress(OSError, ValueError), path.open("rb") as file:
        return file.read(1) == b"{"
    return False


def _check_there(text: str) -> None:
    """Refuses a path at which nothing is: products would be computed by torch, and only a log would say so."""
    if "://" not in text and not absolute(text).exists():
        raise TableError(
            f"{text} is not there: give configure() a table (….json) or a folder of `gemmtune export`, a store of "
            f"`gemmtune tune`, or the URL of a service"
        )
