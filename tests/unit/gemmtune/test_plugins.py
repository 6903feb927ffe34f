"""The plugin of engines where GEMMTUNE_TABLE names nothing."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from gemmtune import plugins
from tuner.settings import settings


@pytest.mark.parametrize("table", [None, ""])
def test_without_a_table_nothing_is_done_or_said_whatever_else_is_set(
    table: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "gemmtune.torch", None)
    monkeypatch.delenv("GEMMTUNE_TABLE", raising=False)
    monkeypatch.setenv("GEMMTUNE_PORT", "none")
    if table is not None:
        monkeypatch.setenv("GEMMTUNE_TABLE", table)
    settings.cache_clear()
    with caplog.at_level(logging.DEBUG, "gemmtune.torch"):
        plugins.install_table()
    settings.cache_clear()
    assert caplog.text == ""


def test_a_home_in_the_tables_path_is_found_where_no_shell_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMTUNE_TABLE", "~/bundle")
    settings.cache_clear()
    try:
        assert settings().table == Path.home() / "bundle"
    finally:
        settings.cache_clear()
