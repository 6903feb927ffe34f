"""Settings of the process, read once from `GEMMTUNE_*` variables and passed on as values."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from string import whitespace
from typing import Final, Literal

from pydantic import BaseModel, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from tuner.errors import SettingsError
from tuner.numbers import DECIMAL


def _home(*parts: str) -> Path:
    try:
        return Path.home().joinpath(*parts)
    except RuntimeError as error:
        raise SettingsError(
            "this user has no home folder: set HOME, or GEMMTUNE_DB, GEMMTUNE_CACHE_DIR and GEMMTUNE_MODEL_DIR"
        ) from error


def _expanded(path: Path) -> Path:
    """`path` with the folder that `~` or `~user` stands for.

    Raises:
        SettingsError: there is no such user, or it has no home folder.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise SettingsError(f"{path}: {path.parts[0]} stands for no folder here: write the whole path") from error


#: Most seconds from a worker's first SIGTERM to its end. Supervisors kill after 30 s or more.
END_SECONDS: Final = 27.0
#: How long a command for whose end somebody waits retries a call: longer than a service's restart.
PATIENCE_SECONDS: Final = 60.0
#: A name or an address, with or without a port, as a request's Host has it.
_HOST: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?")
#: How URLs of the databases that a store may be in begin.
_SCHEME: Final = re.compile(r"((?:sqlite|postgres(?:ql)?)(?:\+\w+)?):")


class Settings(BaseModel):
    """Where data is stored and how the service runs.

    Attributes:
        db: SQLAlchemy URL of the store, or a path to a SQLite file.
        db_connections: most connections to PostgreSQL of this process; of all processes together, fewer than the
            server's `max_connections`.
        cache_dir: compiled programs.
        recorded_dir: recordings, one folder per set.
        model_dir: models trained on this machine; they take precedence over those that ship.
        host, port: where `gemmtune serve` listens.
        auth: whether the service requires tokens; `auto` requires them unless it is embedded and on loopback.
        allowed_hosts: host names that requests may use, separated by commas; any when empty.
        trusted_proxies: addresses or networks of proxies, separated by commas, whose X-Forwarded-For is believed.
        requests_per_second: sustained limit for each caller; 0 for no limit.
        url: the service that workers and `gemmtune campaign` connect to; they use the store directly when empty.
        token, token_file: credentials for that service; the file takes precedence.
        heartbeat_seconds: interval between the heartbeats of a worker.
        round_seconds: time after which a campaign's round starts no further batch.
        keep_days: age at which ended rounds, workers that are gone, and builds are deleted.
        migration_db: URL of `db` for a role that may change the schema; `gemmtune migrate` and `restore` use it.
        service_password: of the role that `gemmtune migrate --for` makes.
        table: table or bundle that the plugins of vLLM and SGLang install; none without it.
        table_stale: use it even if it was measured with another driver or cuBLASLt.
        deadline_seconds: how long one candidate may keep the GPU before it counts as hung.
        end_seconds: limit from a worker's first SIGTERM to its end.
    """

    db: str = Field(default_factory=lambda: str(_home(".local", "share", "gemmtune", "gemmtune.db")))
    db_connections: int = Field(default=32, ge=8, le=1000)
    cache_dir: Path = Field(default_factory=lambda: _home(".cache", "gemmtune"))
    recorded_dir: Path = Path(__file__).resolve().parents[1] / "recorded"
    model_dir: Path = Field(default_factory=lambda: _home(".local", "share", "gemmtune", "models"))
    host: str = "127.0.0.1"
    port: int = Field(default=8643, ge=1, le=65_535)
    auth: Literal["auto", "on", "off"] = "auto"
    allowed_hosts: str = ""
    trusted_proxies: str = ""
    requests_per_second: float = Field(default=1000.0, ge=0)
    url: str = ""
    token: SecretStr = SecretStr("")
    token_file: Path | None = None
    heartbeat_seconds: float = Field(default=5.0, ge=0.1, le=60)
    round_seconds: float = Field(default=20.0, ge=1, le=60)
    keep_days: float = Field(default=90.0, ge=1, le=36_500)
    migration_db: str = ""
    service_password: SecretStr = SecretStr("")
    table: Path | None = None
    table_stale: bool = False
    deadline_seconds: float = Field(default=20.0, gt=0, le=86_400)
    end_seconds: float = Field(default=END_SECONDS, ge=3, le=END_SECONDS)

    @field_validator("*", mode="before")
    @classmethod
    def _in_digits(cls, value: object, field: ValidationInfo) -> object:
        is_number = cls.model_fields[str(field.field_name)].annotation in (int, float)
        if is_number and isinstance(value, str) and not DECIMAL.fullmatch(value.strip(whitespace)):
            raise PydanticCustomError("digits", "give a number in digits, as in 64")
        return value

    @field_validator("cache_dir", "recorded_dir", "model_dir", "table")
    @classmethod
    def _expand(cls, path: Path | None) -> Path | None:
        return path and _expanded(path)

    @field_validator("recorded_dir")
    @classmethod
    def _enter(cls, path: Path) -> Path:
        try:
            path.stat()
        except OSError as error:
            # That there is none, commands that need one say.
            if isinstance(error, PermissionError):
                said = f"GEMMTUNE_RECORDED_DIR = {path}: {error.strerror}; name one that you may read"
                raise SettingsError(said) from error
        return path

    @property
    def hosts(self) -> frozenset[str]:
        """The host names in `allowed_hosts`.

        Raises:
            SettingsError: one is no name that a request's Host can be.
        """
        names = frozenset(name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip())
        if wrong := next((name for name in sorted(names) if not _HOST.fullmatch(name)), None):
            raise SettingsError(
                f"GEMMTUNE_ALLOWED_HOSTS = {self.allowed_hosts!r}: {wrong!r} is no host name: give names as in "
                "tune.example or 10.0.0.7, without https:// and patterns; where tokens are required, none allows any"
            )
        return names

    @property
    def secret(self) -> str | None:
        """The token for the service; None where there is none.

        Raises:
            SettingsError: the token's file can't be read.
        """
        if self.token_file is None:
            return self.token.get_secret_value() or None
        try:
            return _expanded(self.token_file).read_text().strip() or None
        except (OSError, UnicodeDecodeError) as error:
            why = "it is no text" if isinstance(error, UnicodeDecodeError) else error.strerror
            raise SettingsError(
                f"GEMMTUNE_TOKEN_FILE = {self.token_file}: {why}; name a file with what `gemmtune token create` printed"
            ) from error

    @property
    def db_url(self) -> str:
        """`db` as a SQLAlchemy URL."""
        return database_url(self.db)


def database_url(db: str) -> str:
    """A SQLAlchemy URL from a URL or a path to a SQLite file.

    Raises:
        SettingsError: `~user` stands for no folder, the folder that we run in is gone, the path is not UTF-8, or it
            begins like a URL.
    """
    if "://" in db:
        return db
    if scheme := _SCHEME.match(db):
        # The rest may have a password.
        raise SettingsError(
            f"a store that begins with {scheme[0]!r} is neither a URL nor a file: write {scheme[1]}://…, or ./ before "
            "a file's name"
        )
    if db == ":memory:":
        raise SettingsError("a store in memory ends with its process: name a file with --db or GEMMTUNE_DB")
    try:
        path = str(_expanded(Path(db)).absolute())
    except FileNotFoundError as error:
        raise SettingsError(f"{db}: the folder that this command runs in is gone: go to another one") from error
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise SettingsError(
            f"{path!r} is not UTF-8, which a store's path must be: name another with --db or GEMMTUNE_DB"
        ) from error
    # In a URL these two begin an escape and a query.
    return f"sqlite:///{path}".replace("%", "%25").replace("?", "%3F")


def is_set(name: str) -> bool:
    """Whether the variable of a setting says anything; no other one is looked at."""
    return bool(os.environ.get(f"GEMMTUNE_{name.upper()}"))


def set_among(names: Sequence[str]) -> list[str]:
    """Those variables of other programs that say anything, in capitals or not."""
    return [name for name in names if os.environ.get(name) or os.environ.get(name.lower())]


@cache
def settings() -> Settings:
    """The process's settings; a variable that is empty counts as unset.

    Raises:
        SettingsError: a variable has an invalid value, or a default needs the home folder that this user lacks.
    """
    variables = {name: f"GEMMTUNE_{name.upper()}" for name in Settings.model_fields}
    try:
        return Settings.model_validate({name: os.environ[one] for name, one in variables.items() if is_set(name)})
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(["GEMMTUNE", *(str(part) for part in first["loc"])]).upper()
        raise SettingsError(f"{name} = {first['input']!r}: {first['msg']}; unset it or correct it") from error
