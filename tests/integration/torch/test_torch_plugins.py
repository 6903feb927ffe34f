"""The engines' plugin: found by their loaders, called once, and never what stops an engine."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune import plugins
from tuner.errors import TableError
from tuner.settings import settings

ROOT = Path(__file__).resolve().parents[3]
#: Paths that a plugin installed, and whether stale ones were allowed.
Asked = list[tuple[Path, bool]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    calls: Asked = []
    monkeypatch.setattr("gemmtune.torch.install", lambda path, *, stale: calls.append((path, stale)))
    monkeypatch.setattr(plugins, "_done", set())
    yield calls
    settings.cache_clear()


@pytest.mark.parametrize("group", ["vllm.general_plugins", "sglang.srt.plugins"])
def test_the_engines_loaders_find_the_plugin_and_call_it_without_arguments(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    # As both engines do: every entry point of their group, loaded and called.
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][group]
    monkeypatch.setenv("GEMMTUNE_TABLE", "/srv/bundle")
    settings.cache_clear()
    for name, value in declared.items():
        EntryPoint(name, value, group).load()()
    assert asked == [(Path("/srv/bundle"), False)]


def test_a_plugin_installs_the_named_table_once(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.cache_clear()
    plugins.install_table()
    assert asked == []
    monkeypatch.setenv("GEMMTUNE_TABLE", "/srv/bundle")
    settings.cache_clear()
    plugins.install_table()
    plugins.install_table()
    assert asked == [(Path("/srv/bundle"), False)]
    monkeypatch.setenv("GEMMTUNE_TABLE", "/srv/other")
    monkeypatch.setenv("GEMMTUNE_TABLE_STALE", "1")
    settings.cache_clear()
    plugins.install_table()
    assert asked[1:] == [(Path("/srv/other"), True)]


def test_a_plugin_never_stops_an_engine(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(path: Path, *, stale: bool) -> None:
        raise TableError(f"{path} was changed")

    monkeypatch.setattr("gemmtune.torch.install", broken)
    monkeypatch.setenv("GEMMTUNE_TABLE", "/srv/bundle")
    settings.cache_clear()
    with caplog.at_level(logging.ERROR, "gemmtune.torch"):
        plugins.install_table()
        plugins.install_table()
    (line,) = caplog.messages
    assert "was changed" in line
