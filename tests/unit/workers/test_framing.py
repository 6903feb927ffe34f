"""Documents over a pipe."""

from __future__ import annotations

import fcntl
import math
import os
import resource
from collections.abc import Iterator

import pytest

from workers.framing import Hangup, Silence, arrived, receive, send

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


def test_a_reader_that_is_gone_is_a_hangup() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with pytest.raises(Hangup):
        send(writes, {}, 60)
    os.close(writes)
