"""The first signal to a command that runs rounds."""

from __future__ import annotations

import io
import os
import signal
import sys

import pytest

from tuner.cli.output import notes
from tuner.cli.signals import leaving


class Unread(io.StringIO):
    """A pipe whose reader has ended."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_signal_is_obeyed_where_nobody_reads_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    # Rich then silences the console for good, and sends standard output nowhere: not that of the tests that follow.
    monkeypatch.setattr(notes, "quiet", False)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", Unread())
    with leaving(lambda: told.append("leave"), "the round is reported as it stands") as asked:
        os.kill(os.getpid(), signal.SIGTERM)
    assert (told, asked) == (["leave"], [signal.SIGTERM])
