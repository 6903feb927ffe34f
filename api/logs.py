"""Logs: one JSON object a line on standard error, the same for our records and for the server's."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

#: Where records of this package go; its children inherit the handler.
ROOT: Final = "gemmtune"
_SERVER: Final = ("uvicorn", "uvicorn.error")


class JsonLines(logging.Formatter):
    """A record as one line of JSON: `at`, `level`, `logger`, `event`, and the fields of `extra={"fields": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(level: int = logging.INFO) -> None:
    """Sends the records of the service and of its server to standard error; called once, by `api.server`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (ROOT, *_SERVER):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
