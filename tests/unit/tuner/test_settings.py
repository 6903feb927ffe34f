"""Settings that the process's surroundings don't allow."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

import pytest

from tests.shell import Shell
from tuner.errors import SettingsError
from tuner.settings import Settings, database_url, settings


@pytest.mark.parametrize("variable", ["GEMMTUNE_DB", "GEMMTUNE_CACHE_DIR"])
def test_the_home_of_a_user_who_is_not_there_is_one_sentence(tmp_path: Path, variable: str) -> None:
    done = Shell(tmp_path, {variable: "~nobody-here/one"})("best", "64x64x64")
    assert (done.code, done.err) == (
        3, "gemmtune: ~nobody-here/one: ~nobody-here stands for no folder here: write the whole path\n",
    )  # fmt: skip
    with pytest.raises(SettingsError, match="write the whole path"):
        _ = Settings(token_file=Path("~nobody-here/token")).secret


@pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), (b"\xff\xfe", "it is no text")])
def test_a_token_file_that_holds_none_is_named_once_with_the_fix(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "token"
    if content:
        path.write_bytes(content)
    said = f"GEMMTUNE_TOKEN_FILE = {path}: {why}; name a file with what `gemmtune token create` printed"
    with pytest.raises(SettingsError, match=f"^{re.escape(said)}$"):
        _ = Settings(token_file=path).secret


@pytest.mark.parametrize("command", ["best 64x64x64", "tune 4096x4096x4096", "doctor"])
def test_a_store_whose_path_is_not_utf_8_is_one_sentence_and_no_empty_file(tmp_path: Path, command: str) -> None:
    folder = tmp_path / os.fsdecode(b"jos\xe9")
    done = Shell(tmp_path, {"GEMMTUNE_DB": str(folder / "one.db")})(*command.split())
    assert done.code == 3
    assert done.err.startswith("gemmtune: '")
    assert "is not UTF-8, which a store's path must be" in done.err
    assert not folder.exists()


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    settings.cache_clear()
    with pytest.raises(SettingsError, match="no home folder: set HOME, or GEMMTUNE_DB"):
        settings()
    for name in ("DB", "CACHE_DIR", "MODEL_DIR"):
        monkeypatch.setenv(f"GEMMTUNE_{name}", "/tmp/one")
    settings()
    settings.cache_clear()


def test_recordings_that_may_not_be_read_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    shell = Shell(tmp_path, {"GEMMTUNE_RECORDED_DIR": str(tmp_path / "theirs")})
    assert shell("best", "64x64x64").code == 0
    monkeypatch.setattr(Path, "stat", refuse)
    with shell.around(), pytest.raises(SettingsError, match="theirs: Permission denied; name one that you may read"):
        settings()


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DB", "RECORDED_DIR", "PORT", "AUTH"):
        monkeypatch.delenv(f"GEMMTUNE_{name}", raising=False)
    settings.cache_clear()
    unset = settings()
    for name in ("DB", "RECORDED_DIR", "PORT", "AUTH"):
        monkeypatch.setenv(f"GEMMTUNE_{name}", "")
    settings.cache_clear()
    assert settings() == unset
    settings.cache_clear()


@pytest.mark.usefixtures("in_a_folder_that_is_gone")
def test_a_path_from_a_folder_that_is_gone_is_one_sentence() -> None:
    with pytest.raises(SettingsError, match=r"rel\.db: the folder that this command runs in is gone"):
        database_url("rel.db")
    assert database_url("/tmp/rel.db") == "sqlite:////tmp/rel.db"


@pytest.mark.parametrize("said", ["postgresql:/me:secret@host/store", "sqlite:store.db", "postgresql+psycopg:store"])
def test_a_url_without_two_slashes_is_no_file_and_its_password_is_not_shown(said: str) -> None:
    with pytest.raises(SettingsError, match=r"neither a URL nor a file: write [a-z+]+://") as refused:
        database_url(said)
    assert "secret" not in str(refused.value)
    assert database_url(f"./{said.replace('/', '')}").startswith("sqlite:///")


def test_a_store_in_memory_is_refused() -> None:
    # A file of that name was made.
    with pytest.raises(SettingsError, match="ends with its process: name a file"):
        database_url(":memory:")


@pytest.mark.parametrize("said", ["https://tune.example", "*", "*.tune.example", "tune example", "::1"])
def test_names_that_no_host_header_can_have_are_refused(said: str) -> None:
    # Every request was refused (421), however it named the service.
    with pytest.raises(SettingsError, match="is no host name: give names as in"):
        _ = Settings(allowed_hosts=f"tune.example,{said}").hosts
    assert Settings(allowed_hosts="Tune.example, 10.0.0.7:8643,[::1],").hosts == {
        "tune.example", "10.0.0.7:8643", "[::1]",
    }  # fmt: skip


@pytest.mark.parametrize(("variable", "value"), [("PORT", "8_643"), ("PORT", "８６４３"), ("PORT", "web"),
                                                 ("KEEP_DAYS", "1_0"), ("REQUESTS_PER_SECOND", "inf")])  # fmt: skip
def test_numbers_are_in_digits(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(f"GEMMTUNE_{variable}", value)
    settings.cache_clear()
    said = f"GEMMTUNE_{variable} = {value!r}: give a number in digits, as in 64; unset it or correct it"
    with pytest.raises(SettingsError, match=f"^{re.escape(said)}$"):
        settings()
    monkeypatch.setenv(f"GEMMTUNE_{variable}", " 90\n")
    settings.cache_clear()
    assert getattr(settings(), variable.lower()) == 90
