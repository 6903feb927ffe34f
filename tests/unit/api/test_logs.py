"""The log of requests survives a stream that refuses its lines."""

from __future__ import annotations

import io
import json
import threading

import pytest

from api import logs
from api.logs import RequestLog


class Stream(io.StringIO):
    """Refuses lines at first."""

    def __init__(self, refusal: Exception) -> None:
        super().__init__()
        self.refusal: Exception | None = refusal

    def write(self, text: str) -> int:
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        return super().write(text)


@pytest.mark.parametrize("refusal", [OSError("No space left on device"), ValueError("I/O operation on closed file")])
def test_what_a_full_disk_refuses_is_dropped_and_later_lines_are_written(refusal: Exception) -> None:
    stream = Stream(refusal)
    log = RequestLog(stream)
    for number in range(2):
        log.add(f"id-{number}", "GET", "/", 200, 0.1, None, "192.0.2.1")
        log.write()
    log.close()
    assert [json.loads(line)["request_id"] for line in stream.getvalue().splitlines()] == ["id-1"]


def test_a_stream_that_nobody_reads_fills_no_memory_and_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MOST_WAITING", 10)
    monkeypatch.setattr(logs, "_END_SECONDS", 0.01)
    begun, read = threading.Event(), threading.Event()

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            begun.set()
            read.wait()
            return super().write(text)

    stream = Pipe()
    log = RequestLog(stream)
    log.add("first", "GET", "/", 200, 0.1, None, "192.0.2.1")
    begun.wait()
    for number in range(100):
        log.add(f"id-{number}", "GET", "/", 200, 0.1, None, "192.0.2.1")
    log.close()
    read.set()
    log.write()
    told = [json.loads(line)["request_id"] for line in stream.getvalue().splitlines()]
    assert {f"id-{number}" for number in range(90, 100)} <= set(told) <= {"first"} | {f"id-{n}" for n in range(90, 100)}
