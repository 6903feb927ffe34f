"""Documents over a pipe."""

from __future__ import annotations

import fcntl
import math
import os
import resource
import select
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from workers import framing
from workers.framing import MAX_BYTES, Hangup, Silence, arrived, receive, send

#: The first descriptor that `select` can't take.
FD_SETSIZE = 1024


@pytest.fixture
def far() -> Iterator[tuple[int, int]]:
    """The ends of a pipe, numbered as in a program with many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FD_SETSIZE + 16), hard))
    near = os.pipe()
    ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FD_SETSIZE) for fd in near]
    for fd in near:
        os.close(fd)
    yield ends[0], ends[1]
    for fd in ends:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_program_with_many_open_files_may_have_a_worker(far: tuple[int, int]) -> None:
    reads, writes = far
    assert not arrived(reads)
    with pytest.raises(Silence):
        receive(reads, 0.01)
    send(writes, {"do": "hello"}, 60)
    assert arrived(reads)
    assert receive(reads, 60) == {"do": "hello"}


@pytest.mark.parametrize("seconds", [2.0**31, math.inf])
def test_a_deadline_may_lie_years_ahead(seconds: float) -> None:
    reads, writes = os.pipe()
    send(writes, {"do": "prepare"}, seconds)
    assert receive(reads, seconds) == {"do": "prepare"}
    os.close(reads)
    os.close(writes)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


class Paused:
    """A clock on which every wait lasts an hour, and a pipe whose other end writes during the last of them."""

    def __init__(self, writes: int, answered_in: int) -> None:
        self.now, self.waits = 0.0, list[float]()
        self._writes, self._answered_in = writes, answered_in

    def ready(self, fd: int, event: int, seconds: float) -> bool:
        if event == select.POLLOUT or len(self.waits) == self._answered_in:
            return True
        self.waits.append(seconds)
        self.now += 3_600
        if len(self.waits) == self._answered_in:
            send(self._writes, {"do": "hello"})
        return len(self.waits) == self._answered_in


def test_a_pause_of_the_machine_takes_no_more_of_a_deadline_than_one_wait(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = pipe
    answered, silent = Paused(writes, answered_in=3), Paused(writes, answered_in=99)
    for paused in (answered, silent):
        monkeypatch.setattr(framing, "_ready", paused.ready)
        monkeypatch.setattr(framing.time, "monotonic", lambda paused=paused: paused.now)
        if paused is answered:
            assert receive(reads, 2.5) == {"do": "hello"}
        else:
            with pytest.raises(Silence):
                receive(reads, 2.5)
        assert paused.waits == [1.0, 1.0, 0.5]


def test_a_document_that_comes_in_pieces_takes_the_time_that_it_takes(pipe: tuple[int, int]) -> None:
    reads, writes = pipe

    def write() -> None:
        for byte in b"\2\0\0\0{}":
            time.sleep(0.02)
            os.write(writes, bytes([byte]))

    writing = threading.Thread(target=write)
    writing.start()
    # Each piece is waited for, and waits that end at once take nothing of the deadline.
    assert receive(reads, 3.0) == {}
    writing.join()


def test_documents_that_lie_in_the_pipe_together_are_read_one_by_one(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    for number in range(3):
        send(writes, {"number": number}, 60)
    assert [receive(reads, 60)["number"] for _ in range(3)] == [0, 1, 2]


def test_a_deadline_that_has_passed_waits_no_longer(pipe: tuple[int, int]) -> None:
    with pytest.raises(Silence):
        receive(pipe[0], -1.0)


def test_only_what_is_too_long_is_refused_by_its_length(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    os.write(writes, struct.pack("<I", MAX_BYTES))
    with pytest.raises(Silence):
        receive(reads, 0.01)
    os.write(writes, struct.pack("<I", MAX_BYTES + 1))
    with pytest.raises(Hangup, match=r"67,108,865 bytes was announced, more than 67,108,864"):
        receive(reads, 60)


@pytest.mark.parametrize(
    ("body", "wrong"), [(b"[1]", "not a JSON object"), (b"{", "not JSON"), (b"[" * 50_000, "not JSON")],
    ids=["list", "half", "deep"],
)  # fmt: skip
def test_another_value_than_an_object_is_a_hangup(pipe: tuple[int, int], body: bytes, wrong: str) -> None:
    reads, writes = pipe
    os.write(writes, struct.pack("<I", len(body)) + body)
    with pytest.raises(Hangup, match=wrong):
        receive(reads, 60)


def test_a_reader_that_is_gone_is_a_hangup() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with pytest.raises(Hangup):
        send(writes, {}, 60)
    os.close(writes)
