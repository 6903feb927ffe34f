"""Ctrl-C in a tune and in a campaign, parked problems, and a port where something else answers."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from unittest.mock import patch

import pytest

from space.config import Config
from tests.integration.cli.test_commands import shell_in
from tests.shell import Ran, Shell
from tests.support import PROBLEM
from workers.measurement import Measurement
from workers.recorded import RecordedRound

TUNE = ("tune", PROBLEM.shape, "--device", "recorded:h200")
CAMPAIGN = ("campaign", "run", "--ladder", "m={} n={} k={}".format(*PROBLEM.extents), "--device", "recorded:h200")


def interrupted(shell: Shell, words: tuple[str, ...]) -> Ran:
    """Sends SIGINT to this process, as a terminal does, once the command has replayed three candidates."""
    replay, so_far = RecordedRound._replayed, count(1)

    def replayed(self: RecordedRound, config: Config) -> Measurement:
        if next(so_far) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return replay(self, config)

    # Whoever starts the tests in the background makes them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with patch.object(RecordedRound, "_replayed", replayed):
            stopped = shell(*words)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.code == 130, stopped.err
    return stopped


def test_ctrl_c_says_that_the_same_command_resumes_and_it_does(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    stopped = interrupted(shell, TUNE)
    assert stopped.sentence.endswith("gemmtune: interrupted: everything measured is kept; the same command resumes")
    assert "Traceback" not in stopped.err
    resumed = shell(*TUNE)
    assert resumed.code == 0, resumed.err
    assert re.search(r"[1-8] from earlier runs", resumed.err)


def test_ctrl_c_in_a_campaign_reports_the_round_and_the_same_command_finishes(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    stopped = interrupted(shell, CAMPAIGN)
    assert "leaving: the round is reported as it is" in stopped.err
    assert stopped.sentence.endswith("the same command resumes")
    resumed = shell(*CAMPAIGN)
    assert resumed.code == 0, resumed.err
    assert "campaign 1: " in resumed.out
    assert "1 done" in resumed.out


def test_a_campaign_with_parked_problems_ends_with_6(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    ran = shell("campaign", "run", "--ladder", "m=640 n=640 k=640", "--device", "recorded:h200")
    assert ran.code == 6, ran.err
    assert "1 parked" in ran.out


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>It works!</html>")

    def log_message(self, format: str, *values: object) -> None:
        pass


@pytest.fixture
def another_service() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("words", [("campaign", "list"), ("campaign", "show", "1"), ("worker", "list")])
def test_another_service_at_the_url_is_one_sentence(
    tmp_path: Path, another_service: str, words: tuple[str, ...]
) -> None:
    ran = shell_in(tmp_path)(*words, "--url", another_service)
    assert ran.code == 7
    assert ran.sentence == f"gemmtune: {another_service} answers, but not as gemmtune does: check the URL and its port"
