"""Programs: driver, compiler, kernels and library that ran when something was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson
from sqlalchemy.orm import Session

from tuner.views.columnar import texts_by_id

#: Names of a program's parts in views, and the fields of the provenance that hold them.
PARTS: Final = {"driver": "driver", "nvrtc": "nvrtc", "kernels": "kernel_source_digest", "cublaslt": "cublaslt"}


class Programs:
    """Programs, each read once.

    Attributes:
        known: by the row id of their provenance.
    """

    def __init__(self) -> None:
        self.known: dict[int, dict[str, str]] = {}

    def of(self, session: Session, ids: Iterable[int]) -> dict[int, dict[str, str]]:
        """The programs of these provenances, and of others."""
        for number, text in texts_by_id(session, "provenance", ("content",), set(ids) - self.known.keys()):
            content = orjson.loads(text)
            self.known[number] = {name: str(content.get(field, "")) for name, field in PARTS.items()}
        return self.known
