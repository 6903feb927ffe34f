"""Configurations that threads change while others look for a source. On the CPU."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not in the lock files: `make test-torch` installs it")

from gemmtune.torch import configure, sources


def test_a_source_that_was_being_opened_does_not_outlive_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, opened = threading.Event(), threading.Event()

    def open_(asked: Any) -> Any:  # noqa: ANN401
        named = asked.named
        opening.set()
        opened.wait(10)
        return SimpleNamespace(named=named)

    monkeypatch.setattr(sources, "_open", open_)
    configure("before.json")
    try:
        looking = threading.Thread(target=sources.chosen)
        looking.start()
        assert opening.wait(10)
        configuring = threading.Thread(target=configure, args=("after.json",))
        configuring.start()
        configuring.join(0.2)  # it may wait until the earlier one is open
        opened.set()
        for each in (looking, configuring):
            each.join(10)
        assert sources.chosen().named == "after.json"  # type: ignore[attr-defined]
    finally:
        opened.set()
        configure()


def test_one_word_is_no_list_of_trusted_sources() -> None:
    with pytest.raises(ValueError, match=r"trusted = 'measured' is one text: give a list, as in \['measured'\]"):
        configure(trusted="measured")
