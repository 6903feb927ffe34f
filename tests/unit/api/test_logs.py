"""The log of requests survives a stream that refuses its lines."""

from __future__ import annotations

import io
import json

import pytest

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
