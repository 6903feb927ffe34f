"""Tables are of cards that this machine may lack: here its cards tell nothing."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(autouse=True)
def no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("torch"):
        from gemmtune.torch import installed
        from workers.cuda.machine import Machine

        monkeypatch.setattr(installed, "this_machine", Machine)
