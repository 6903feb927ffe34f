"""Importers: shapes from files that users have. Each module reads one format and recognizes it by its content.

A new format is a module with `READS`, `recognizes` and `read`, and one entry of `IMPORTERS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from space.errors import ProblemError
from tuner.tables.importers import cutlass, engines, huggingface, json_list, profiler, rows, tunableop
from tuner.tables.importers.source import Asked, NotThisFormat, Source
from tuner.tables.shapes import Shapes, merged


class Importer(Protocol):
    """A module that reads one format."""

    #: What it reads, for messages.
    READS: str

    def recognizes(self, source: Source) -> bool:
        """Whether a file has the format, by its first characters."""

    def read(self, source: Source, asked: Asked) -> Shapes:
        """The shapes of a whole file.

        Raises:
            ProblemError: the file breaks a rule of its format; with the line.
            NotThisFormat: it only began as if it had the format.
        """


#: The first that recognizes a file reads it: formats that say what they are precede those that are only text.
IMPORTERS: Final[tuple[Importer, ...]] = (
    tunableop, profiler, huggingface, cutlass, rows, engines, json_list,
)  # fmt: skip


def shapes_of(paths: Iterable[Path], asked: Asked = Asked()) -> Shapes:  # noqa: B008  (frozen)
    """The shapes of all files together; one that breaks a rule refuses them all.

    Raises:
        ProblemError: a file can't be read, no importer recognizes it, values of M were asked for and no file leaves M
            open, GPUs that share layers and no file is of a model, or a dtype for an engine's products and no file has
            any.
    """
    models, logs, engine, found = False, False, False, []
    for source in map(Source, paths):
        found.append(_of_file(source, asked))
        models = models or huggingface.recognizes(source)
        logs = logs or engines.is_log(source)
        engine = engine or engines.recognizes(source)
    if asked.tp > 1 and not models:
        raise ProblemError("--tp cuts the layers of a model's config.json, and none was given: other files list what "
                           "each GPU multiplies; leave it out")  # fmt: skip
    if asked.ms and not (models or logs):
        raise ProblemError("--m is for files that leave M open, a model's config.json or an engine's log, and none was "
                           "given: leave it out")  # fmt: skip
    if asked.block_scaled_as and not engine:
        raise ProblemError("--block-scaled-as is for an engine's log or its config, and none was given: leave it out")
    return merged(found)


def _of_file(source: Source, asked: Asked) -> Shapes:
    importer = next((each for each in IMPORTERS if each.recognizes(source)), None)
    if importer:
        with suppress(NotThisFormat):
            return importer.read(source, asked)
    known = "; ".join(each.READS for each in IMPORTERS)
    raise ProblemError(f"{source.path} has none of the formats that list shapes: {known}")
