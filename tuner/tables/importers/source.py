"""Source: a file as a stream of text, plain or gzip, within limits that hold for hostile files too."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from space.errors import ProblemError
from tuner.files import is_endless
from tuner.members import each_once

#: Most bytes of an unpacked source. A profiler trace of a long run has a few hundred MB.
MOST_BYTES: Final = 2 << 30
#: Characters of a line, and of one event of a trace.
MOST_LINE: Final = 1 << 20
#: Lines of a list.
MOST_LINES: Final = 1_000_000
#: Values of a JSON document: twice those of a table with the most problems.
MOST_VALUES: Final = 8_000_000
_HEAD_CHARACTERS: Final = 1 << 16
_CHUNK: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"


class NotThisFormat(Exception):
    """A file, read to its end, that does not have the format of its importer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A caller's choices for sources that leave them open.

    Attributes:
        ms: values of M of a model, which runs with any number of tokens.
        tp: GPUs that share every layer of a model, as tensor parallelism cuts it.
        tf32: count f32 products as tf32, which programs may allow.
        block_scaled_as: dtype word under which products with a scale for each block are listed; empty to leave them
            out.
    """

    ms: tuple[int, ...] = ()
    tp: int = 1
    tf32: bool = False
    block_scaled_as: str = ""


class Source:
    """One file.

    Attributes:
        path: as messages name it.
        head: its first characters, by which importers recognize their own.

    Raises:
        ProblemError: it can't be read, is not text, or is broken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if is_endless(path):
            raise ProblemError(f"{path} cannot be read: it is a pipe or a device; write its content to a file")
        with self._opened() as text:
            self.head = text.read(_HEAD_CHARACTERS).removeprefix("\ufeff")

    def lines(self, most: int | None = MOST_LINES) -> Iterator[tuple[int, str]]:
        """Numbered lines without their ends.

        Args:
            most: lines that the file may have.

        Raises:
            ProblemError: a limit is exceeded, or the file is broken; with the line.
        """
        if most is not None and self._has_more_lines(most):
            raise ProblemError(f"{self.path}, line {most + 1:,}: more than {most:,} lines: give a shorter list")
        number = 0
        with self._opened(lambda: f"{self.path}, line {number + 1}") as text:
            while line := text.readline(MOST_LINE + 1):
                number += 1
                if len(line) > MOST_LINE:
                    raise ProblemError(f"{self.path}, line {number}: longer than {MOST_LINE:,} characters")
                yield number, (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")

    def _has_more_lines(self, most: int) -> bool:
        """Counts lines before one of them is parsed, which takes much longer; False for a file that breaks before."""
        count = 0
        try:
            for piece in self.chunks():
                count += piece.count("\n")
                if count > most:
                    return True
        except ProblemError:
            pass  # said with its line when the lines are read
        return False

    def chunks(self) -> Iterator[str]:
        """The text in pieces.

        Raises:
            ProblemError: a limit is exceeded, or the file is broken.
        """
        with self._opened() as text:
            while piece := text.read(_CHUNK):
                yield piece

    def whole(self, most: int) -> str:
        """All text.

        Raises:
            ProblemError: it has more than `most` characters, or the file is broken.
        """
        pieces, left = [], most
        # A read of all at once reserves memory for the most.
        for piece in self.chunks():
            left -= len(piece)
            if left < 0:
                raise ProblemError(f"{self.path} has more than {most:,} characters: give a shorter list")
            pieces.append(piece)
        return "".join(pieces).removeprefix("\ufeff")

    def document(self, most: int, fix: str = "") -> Any:  # noqa: ANN401  (any JSON)
        """The whole file as JSON.

        Args:
            most: characters that the file may have.
            fix: what to give instead of a file that is not JSON.

        Raises:
            ProblemError: a limit is exceeded, the file is broken or not JSON, or an object has a member twice.
        """
        text = self.whole(most)
        # Each of these precedes a value, which takes many times its bytes in memory.
        if sum(map(text.count, ",[{")) > MOST_VALUES:
            raise ProblemError(f"{self.path} has more than {MOST_VALUES:,} values: give a shorter list")
        try:
            return json.loads(text, object_pairs_hook=each_once)
        except (ValueError, RecursionError) as error:
            raise ProblemError(f"{self.path} is not valid JSON ({error}){fix and f': {fix}'}") from error

    @contextmanager
    def _opened(self, place: object = None) -> Iterator[IO[str]]:
        where = place if callable(place) else lambda: str(self.path)
        try:
            with self._unpacked() as counted:
                yield io.TextIOWrapper(counted, encoding="utf-8", newline=None)
        except _TooLarge as error:
            raise ProblemError(f"{where()}: the file has more than {MOST_BYTES >> 20:,} MiB") from error
        except UnicodeDecodeError as error:
            line = self._line_that_is_no_text()
            raise ProblemError(
                f"{self.path}, line {line} cannot be read: it is not UTF-8 ({error.reason}); save it as UTF-8"
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ProblemError(f"{where()} cannot be read: the gzip file is broken ({error})") from error
        except OSError as error:
            raise ProblemError(f"{self.path} cannot be read ({error.strerror}): give a file of shapes") from error

    @contextmanager
    def _unpacked(self) -> Iterator[io.BufferedReader]:
        with self.path.open("rb") as raw:
            if raw.peek(len(_PARQUET)).startswith(_PARQUET):
                raise ProblemError(f"{self.path} is Parquet, which is not read as a list: export it as csv or json")
            packed = raw.peek(2).startswith(_GZIP)
            plain = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw
            yield io.BufferedReader(_Counted(plain), _CHUNK)

    def _line_that_is_no_text(self) -> int:
        """The line of the first byte that is not UTF-8. Text is decoded ahead of the line that is being read."""
        decoder, number = codecs.getincrementaldecoder("utf-8")(), 1
        with self._unpacked() as file:
            while piece := file.read(_CHUNK):
                try:
                    decoder.decode(piece)
                except UnicodeDecodeError as error:
                    return number + error.object[: error.start].count(b"\n")
                number += piece.count(b"\n")
        return number


class _TooLarge(Exception):
    """The file exceeds `MOST_BYTES`."""


class _Counted(io.RawIOBase):
    """Bytes of a file, up to `MOST_BYTES`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, room: object) -> int:
        view = memoryview(room).cast("B")  # type: ignore[arg-type]
        piece = self._file.read(len(view))
        self._left -= len(piece)
        if self._left < 0:
            raise _TooLarge
        view[: len(piece)] = piece
        return len(piece)
