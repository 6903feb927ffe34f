"""Options that several commands share, with one meaning each."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote

import typer

from space.arch import arch_named
from space.devices import DeviceProfile, find_profile, identity_named, profile_named, reference_profile
from space.errors import ProfileError
from tuner.errors import DeviceError, NothingMeasured, StoreError

# Imported by commands that open a store; `explain`, `space` and `layout` start faster without.
if TYPE_CHECKING:
    from tuner.evidence.quick_bests import QuickBests
    from tuner.evidence.store import Store
    from tuner.fleet.campaigns.records import Timing
    from tuner.settings import Settings
    from tuner.tables.tables import TableBests

Device = Annotated[str, typer.Option(help="auto, cuda:0 or recorded:h200.")]
#: Stands for this machine's GPU, in `--device` of every command.
AUTO: Final = "auto"
#: Largest number of a row that every database has.
MOST_NUMBER: Final = 2**31 - 1


def device_named(name: str) -> str:
    """The identity of the device that `--device` names.

    Raises:
        DeviceError: `auto`, and this machine's GPU can't be used.
        ProfileError: the word is one that opens a device to measure on, as in `tune`, or is not UTF-8.
    """
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ProfileError(f"device {name[:100]!r} is not UTF-8, which no store looks up: name a GPU model") from error
    opens, colon, which = name.partition(":")
    if colon and opens in ("cuda", "recorded"):
        # A recording's folder may be named as its card is.
        card = find_profile(which.removesuffix(":realtime"))
        model = f"--device '{card.name}'" if card else "--device 'NVIDIA H200' for example, or auto"
        raise ProfileError(f"device {name[:100]!r} is for commands that measure; this one takes a GPU model: {model}")
    if name != AUTO:
        return identity_named(name)
    from tuner.studying.open_worker import device_here
    from workers.errors import WorkerError

    try:
        return device_here()
    except WorkerError as error:
        raise DeviceError(f"{error}; name another device, as in --device H200") from error


_MODEL: Final = "GPU model, as in 'NVIDIA H200' or 'L40S'; auto is this machine's, or the H200 where there is no GPU."
DeviceName = Annotated[str, typer.Option("--device", help=_MODEL, callback=device_named)]
#: The same where `--arch` may stand in its place: nobody asks the driver then.
DeviceWord = Annotated[str, typer.Option("--device", help=_MODEL)]
ArchName = Annotated[
    str | None, typer.Option("--arch", help="Compile target, as in sm_90a: replaces --device by its reference card.")
]
Db = Annotated[str | None, typer.Option(help="Store: a SQLite file or a SQLAlchemy URL. \\[default: GEMMTUNE_DB]")]
OwnerDb = Annotated[
    str | None,
    typer.Option("--db", help="Store: a SQLite file or a SQLAlchemy URL. "
                 "\\[default: GEMMTUNE_MIGRATION_DB, else GEMMTUNE_DB]"),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]
NoRule = Annotated[
    list[str] | None,
    typer.Option("--no-rule", metavar="ID", help="Worth rule to disable, by its id in `gemmtune space`; repeatable."),
]
ConfigText = Annotated[
    str, typer.Option("--config", help="knob=value,…, after family: or not; missing knobs take their defaults.")
]


def profile_from_words(device: str, arch: str | None) -> DeviceProfile:
    """The device that `--device` names, or the one that stands for `--arch`.

    Raises:
        SpaceError: no such device or arch.
        DeviceError: as `device_named`.
    """
    return reference_profile(arch_named(arch).name) if arch else profile_named(device_named(device))


def open_store(db: str | None) -> Store:
    """Opens the store that `--db` or the settings name; creates it where it is missing."""
    return _opened(db, create=True)


def shared_store(db: str | None) -> Store:
    """Opens the store as `open_store`, for a command of several threads.

    Raises:
        StoreError: it is in memory, where each thread would have one of its own.
    """
    from tuner.evidence.database import in_memory

    store = open_store(db)
    if in_memory(url := store_url(db)):
        store.close()
        raise StoreError(f"{url} is in memory, where each thread has a store of its own: give a SQLite file with --db")
    return store


def existing_store(db: str | None) -> Store:
    """Opens the store that `--db` or the settings name.

    Raises:
        StoreError: it is not there, or can't be opened.
    """
    return _opened(db, create=False)


def _opened(db: str | None, *, create: bool) -> Store:
    from tuner.evidence.store import Store
    from tuner.settings import settings

    return Store.open(store_url(db), create, settings().db_connections)


def store_as_it_is(db: str | None) -> Store:
    """Opens the store that `--db` or the settings name without bringing its schema to this version's.

    Raises:
        StoreError: it is not there, can't be read, or a newer version wrote it.
    """
    from tuner.evidence.database import check_known, connect
    from tuner.evidence.store import Store

    store = Store(connect(store_url(db), create=False))
    try:
        if (revision := store.revision()) != "none":
            check_known(revision, "the store")
    except StoreError:
        store.close()
        raise
    return store


def store_url(db: str | None) -> str:
    """The SQLAlchemy URL of the store that `--db` or the settings name.

    Raises:
        StoreError: `--db` is empty.
    """
    from tuner.settings import database_url, settings

    if db is None:
        return settings().db_url
    if not db.strip():
        raise StoreError("--db is empty: name a SQLite file or a database's URL, or leave it out")
    return database_url(db)


def owner_url(db: str | None) -> str:
    """The same, with the role in GEMMTUNE_MIGRATION_DB, which may change the schema, if there is one and no `--db`."""
    from tuner.settings import database_url, settings

    owner = settings().migration_db
    return database_url(owner) if db is None and owner else store_url(db)


@contextmanager
def opened_bests(db: str | None) -> Iterator[Store | QuickBests | TableBests]:
    """The store that `--db` or the settings name, to read answers from; no bests where the settings' file is missing.

    Raises:
        StoreError: the store can't be read, or `--db` names a file that is missing.
    """
    from tuner.evidence.quick_bests import QuickBests
    from tuner.settings import settings
    from tuner.tables.tables import TableBests

    if db is None and not is_there(settings().db_url):
        yield TableBests([])
    elif quick := QuickBests.open(store_url(db)):
        with quick:
            yield quick
    else:
        with existing_store(db) as store:
            yield store


@contextmanager
def planning_store(db: str | None) -> Iterator[Store]:
    """The store that `--db` or the settings name, to plan with; an empty one in memory where its file is missing."""
    from tuner.evidence.store import Store

    url = store_url(db)
    if is_there(url):
        with existing_store(db) as store:
            yield store
        return
    with Store.open("sqlite:///:memory:") as store:
        yield store


def same_place(db: str | None, url: str | None = None, insecure: bool = False) -> str:
    """The options, each after a space, by which a suggested command uses the store or service that this one was given.

    A password is `***`: a service's log and a terminal are no place for it.
    """
    from tuner.evidence.database import shown

    place = ["--url", url] if url else ["--db", shown(db) if "://" in db else db] if db else []
    return "".join(f" {shlex.quote(word)}" for word in [*place, *(["--insecure"] if insecure else [])])


@contextmanager
def tuned_there(db: str | None) -> Iterator[None]:
    """Within the block, the tune that an error suggests goes to the store that this command was given."""
    try:
        yield
    except NothingMeasured as error:
        if not error.tune:
            raise
        raise NothingMeasured(error.reason, f"{error.tune}{same_place(db)}") from error


def is_there(url: str) -> bool:
    """Whether a store's SQLite file exists, or can't be seen; True for every other database."""
    path = unquote(url.removeprefix("sqlite:///"))
    try:
        return not url.startswith("sqlite:///") or Path(path).exists()
    except OSError:
        return True  # opening it says why it can't be seen


def timing_of(config: Settings) -> Timing:
    """Heartbeat interval and round length from the settings."""
    from tuner.fleet.campaigns.records import Timing

    return Timing(config.heartbeat_seconds, config.round_seconds, keep_days=config.keep_days)
