"""Text columns that accept the same on every database.

SQLite stores a NUL and text of any length; PostgreSQL refuses both, each in its own words. What one of them could not
store is refused here for both, by the column's name.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Dialect, String, Text
from sqlalchemy.types import TypeDecorator

from tuner.errors import UnstorableValue

#: Longest text without a limit of its own, such as a compiler's message.
_MOST_TEXT: Final = 1_000_000
_SHOWN: Final = 40


def check_text(value: str, most: int = _MOST_TEXT) -> None:
    """Checks that any database stores this text.

    Raises:
        UnstorableValue: it can't be stored; the message has the rule.
    """
    if len(value) > most:
        raise UnstorableValue(f"{value[:_SHOWN]!r}… has {len(value):,} characters: at most {most:,} are stored")
    if "\0" in value:
        raise UnstorableValue(f"{value[:_SHOWN]!r} holds a NUL character: leave it out")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UnstorableValue(f"{value[:_SHOWN]!r} holds half of a surrogate pair: leave it out") from error


def storable(text: str, most: int) -> str:
    """`text` as any database stores it: cut, with a replacement character for each that none stores."""
    return text[:most].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


class Line(TypeDecorator[str]):
    """A `String` of limited length."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self._most = length

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if isinstance(value, str):
            check_text(value, self._most)
        return value


class Words(TypeDecorator[str]):
    """A `Text`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if isinstance(value, str):
            check_text(value)
        return value
