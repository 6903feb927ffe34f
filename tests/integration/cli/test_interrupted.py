"""Ctrl-C, a disk that fills, parked problems, and a port where something else answers: in tunes and campaigns."""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from unittest.mock import patch

import pytest

from space.config import Config
from tests.integration.cli.test_commands import shell_in
from tests.shell import Ran, Shell
from tests.support import DEVICE, PROBLEM
from tuner.evidence.store import Store
from workers.measurement import Measurement
from workers.recorded import RecordedRound

TUNE = ("tune", PROBLEM.shape, "--device", "recorded:h200")
CAMPAIGN = ("campaign", "run", "--ladder", "m={} n={} k={}".format(*PROBLEM.extents), "--device", "recorded:h200")


def with_third(shell: Shell, words: tuple[str, ...], happen: Callable[[], None]) -> Ran:
    """Runs a command in which something happens just before the third candidate is replayed."""
    replay, so_far = RecordedRound._replayed, count(1)

    def replayed(self: RecordedRound, config: Config) -> Measurement:
        if next(so_far) == 3:
            happen()
        return replay(self, config)

    with patch.object(RecordedRound, "_replayed", replayed):
        return shell(*words)


def interrupted(shell: Shell, words: tuple[str, ...]) -> Ran:
    """Sends SIGINT to this process, as a terminal does."""
    # Whoever starts the tests in the background makes them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stopped = with_third(shell, words, lambda: os.kill(os.getpid(), signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.code == 130, stopped.err
    return stopped


def unread(home: Path, *words: str) -> tuple[int, str]:
    """Exit code and standard error of a command whose standard output nobody reads."""
    environment = {**os.environ, "GEMMTUNE_DB": str(home / "store.db")}
    # As installed: Python writes what it has buffered only at its end.
    environment.pop("PYTHONUNBUFFERED", None)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gemmtune", *words]
    ran = subprocess.run(command, env=environment, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    return ran.returncode, ran.stderr.decode()


@contextmanager
def filling_disk() -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Yields two functions: one makes every further write to a file fail, as on a full disk, one frees space again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size_bytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))

    try:
        yield partial(limit, 0), partial(limit, soft)
    finally:
        limit(soft)


@pytest.mark.parametrize("words", ["campaign list", "campaign list --json", "instructions", "--help"])
def test_output_that_nobody_reads_ends_a_command_quietly(tmp_path: Path, words: str) -> None:
    Store.open(f"sqlite:///{tmp_path}/store.db").close()
    assert unread(tmp_path, *words.split()) == (141, "")
    code, said = unread(tmp_path, "campaign", "show", "7", "--json")
    assert (code, said.count("\n")) == (141, 1)


def test_ctrl_c_says_that_the_same_command_resumes_and_it_does(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    stopped = interrupted(shell, TUNE)
    assert stopped.sentence.endswith("gemmtune: interrupted: everything measured is kept; the same command resumes")
    assert "Traceback" not in stopped.err
    resumed = shell(*TUNE)
    assert resumed.code == 0, resumed.err
    assert re.search(r"[1-8] from earlier runs", resumed.err)


def test_sigterm_ends_a_tune_as_ctrl_c_does(tmp_path: Path) -> None:
    shell, before = shell_in(tmp_path), signal.getsignal(signal.SIGTERM)
    stopped = with_third(shell, TUNE, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert stopped.code == 130
    assert stopped.sentence.endswith("gemmtune: interrupted: everything measured is kept; the same command resumes")
    assert signal.getsignal(signal.SIGTERM) is before
    assert re.search(r"[1-8] from earlier runs", shell(*TUNE).err)


def test_a_fresh_tune_says_that_it_resumes_without_the_option_which_would_start_over(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    stopped = interrupted(shell, (*TUNE, "--fresh"))
    assert stopped.sentence.endswith("everything measured is kept; the same command without --fresh resumes")
    assert re.search(r"[1-8] from earlier runs", shell(*TUNE).err)


def test_ctrl_c_in_a_campaign_reports_the_round_and_the_same_command_finishes(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    stopped = interrupted(shell, (*CAMPAIGN, "--json"))
    assert stopped.json == {"error": "interrupted: everything measured is kept; the same command resumes"}
    assert "leaving: the round is reported as it stands" in stopped.err
    assert stopped.sentence.endswith("the same command resumes")
    resumed = shell(*CAMPAIGN)
    assert resumed.code == 0, resumed.err
    assert "campaign 1: " in resumed.out
    assert "1 done" in resumed.out


def test_a_disk_that_fills_ends_a_tune_with_one_sentence_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    with filling_disk() as (fill, _):
        stopped = with_third(shell, TUNE, fill)
    assert (stopped.code, stopped.out) == (5, "")
    url = f"sqlite:///{tmp_path}/store.db"
    assert stopped.sentence.endswith(
        f"gemmtune: the store {url} can't be used (disk I/O error): free space, or see what ends the file (quota, "
        "`ulimit -f`, disk); everything committed before is kept"
    )
    assert "Traceback" not in stopped.err
    with Store.open(url) as store:
        assert len(list(store.every(DEVICE))) == 2
    resumed = shell(*TUNE)
    assert resumed.code == 0, resumed.err
    assert "2 from earlier runs" in resumed.err


def test_a_store_that_is_moved_away_ends_a_campaign_which_could_only_try_again_for_ever(tmp_path: Path) -> None:
    shell, file = shell_in(tmp_path), tmp_path / "store.db"
    stopped = with_third(shell, CAMPAIGN, lambda: file.rename(tmp_path / "moved.db"))
    assert (stopped.code, stopped.out) == (5, "")
    said = f"gemmtune: the store sqlite:///{file} can't be used (its file was moved"
    assert stopped.err.splitlines()[-1].startswith(said)
    assert "Traceback" not in stopped.err
    (tmp_path / "moved.db").rename(file)
    assert "1 done" in shell(*CAMPAIGN).out


def test_a_disk_that_fills_halts_a_campaign_until_there_is_space(tmp_path: Path) -> None:
    shell = shell_in(tmp_path)
    said: list[str] = []
    with filling_disk() as (fill, free):
        log = logging.getLogger("gemmtune.agent")

        def hears(record: logging.LogRecord) -> bool:
            said.append(record.getMessage())
            free()
            return True

        log.addFilter(hears)
        try:
            ran = with_third(shell, CAMPAIGN, fill)
        finally:
            log.removeFilter(hears)
    assert ran.code == 0, ran.err
    assert "1 done" in ran.out
    assert any(line.endswith("; everything committed before is kept; trying again") for line in said)
    assert "Traceback" not in ran.err


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
