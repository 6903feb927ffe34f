"""Tables in other formats than the canonical JSON, rendered once per content."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from api.encoding import Rendered
from api.http_errors import HttpError
from api.schemas import DECIMAL, Absent, Strict
from space.errors import ConfigError
from tuner.tables.exporters import EXPORTERS, exporter_named
from tuner.tables.exporters.guard import MIN_GAIN, guarded
from tuner.tables.exporters.options import ExportOptions

if TYPE_CHECKING:
    Format = str
else:
    #: A format of single files: an answer has no room for a folder.
    Format = Literal[tuple(name for name, exporter in EXPORTERS.items() if not exporter.FOLDER)]

#: Renderings kept: a few formats of a few devices.
_MOST_KEPT: Final = 16


class TableQuery(Strict):
    """The format of a table, and the guard before it."""

    format: Format = "json"
    min_gain: (
        Annotated[
            float, Field(ge=0.0, le=100.0, description=f"least gain to export; {MIN_GAIN} by default"), DECIMAL
        ]
        | Absent
    ) = None
    torch: Annotated[str, Field(max_length=20, description="PyTorch's version, for tunableop")] = ""
    neighbours: Annotated[
        Literal["plain", "pdl"], Field(description="kernels around the products; pdl: the best among such, if measured")
    ] = "plain"

    @property
    def whole(self) -> bool:
        """Whether no parameter is given: the whole table with its evidence, which nothing guards."""
        return not self.model_fields_set


class TableFormats:
    """Renderings of tables by what was asked, the latest ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], Rendered] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, device: str, content: object, query: TableQuery, read: Callable[[], dict[str, Any]]) -> Rendered:
        """A table in a format.

        Args:
            content: changes whenever the table does.
            read: the table's document.

        Raises:
            HttpError: 422, the format needs something that the query does not say, or has no room for what it says.
        """
        if query.neighbours != "plain" and exporter_named(query.format).OF_LIBRARY:
            why = f"{query.format} lists the library's kernels, which never start early: leave out neighbours"
            raise HttpError(422, "bad-input", why)
        key = (device, content, query.format, query.min_gain, query.torch, query.neighbours)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = _rendered(device, query, read())
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return made


def _rendered(device: str, query: TableQuery, document: dict[str, Any]) -> Rendered:
    exporter = exporter_named(query.format)
    options = ExportOptions(f"{device}.{query.format}", torch=query.torch)
    kept = guarded(document, MIN_GAIN if query.min_gain is None else query.min_gain)
    try:
        files = exporter.files(exporter.writable(kept, options), options)
    except ConfigError as error:
        raise HttpError(422, "bad-input", str(error)) from error
    return Rendered(next(iter(files.values())), exporter.MEDIA_TYPE)
