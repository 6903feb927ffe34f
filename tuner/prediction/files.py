"""Model files: one NumPy archive per device with arrays and facts, without pickle; and the choice between them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from space.devices import find_profile, identity_named
from space.errors import SpaceError
from tuner.errors import ModelError
from tuner.files import write_whole
from tuner.prediction.forest import Forest
from tuner.prediction.learned import VERSION, LearnedModel, ModelFacts
from workers.errors import make_room_or

#: Models that ship with the package; its recordings trained them.
SHIPPED: Final = Path(__file__).resolve().parent / "trained"
#: Largest model file; models ship in the package.
MOST_BYTES: Final = 8 * 10**6
#: How an archive of arrays begins.
_ZIP: Final = b"PK\x03\x04"
_FACTS: Final = "facts"
_FOREST: Final = ("roots", "feature", "threshold", "right", "value")
_PROBLEMS: Final = ("problem_rows", "levels")


@dataclass(frozen=True)
class Choice:
    """The model in use for a device, or why there is none.

    Attributes:
        model: None if only the analytic model is available.
        why: the reason, as one sentence.
        path: the model's file; None without a model.
        modified_ns: when that file was written.
    """

    model: LearnedModel | None
    why: str
    path: Path | None = None
    modified_ns: int = 0

    @property
    def version(self) -> tuple[Path | None, int]:
        """A value that changes with the model, for what was made with it."""
        return self.path, self.modified_ns


def file_name(device: str) -> str:
    """`nvidia_h200.npz`."""
    return re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_") + ".npz"


def save(model: LearnedModel, path: Path) -> int:
    """Writes a model, whole or not at all; returns its bytes.

    Raises:
        ModelError: the model is too large, or the file can't be written.
    """
    arrays: dict[str, Any] = {}
    for place, each in enumerate((model, *model.beside)):
        arrays |= {_name(place, name): getattr(each.forest, name) for name in _FOREST}
        arrays |= {_name(place, name): getattr(each, name) for name in _PROBLEMS}
        arrays[_name(place, _FACTS)] = np.frombuffer(each.facts.model_dump_json().encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    content = buffer.getvalue()
    if len(content) > MOST_BYTES:
        raise ModelError(f"the model takes {len(content):,} bytes, more than {MOST_BYTES:,}: train fewer trees")
    try:
        write_whole(path, content)
    except OSError as error:
        fix = make_room_or("choose another file", error)
        raise ModelError(f"{path} can't be written ({error.strerror}): {fix}") from error
    return len(content)


def load(path: Path) -> LearnedModel:
    """Reads a model; `LearnedModel.check` then tells whether it fits this version of the family.

    Raises:
        ModelError: the file is missing, damaged, or of another version.
    """
    try:
        with path.open("rb") as file:
            # Of any other file NumPy says that it holds pickled objects, and how to load these.
            if file.read(len(_ZIP)) != _ZIP:
                raise ValueError("it is no NumPy archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        count = sum(name.endswith(f".{_FACTS}") for name in arrays) + 1
        model, *beside = (_read(arrays, place) for place in range(count))
    except FileNotFoundError as error:
        raise ModelError(f"{path} is not there: train a model with `gemmtune model train`") from error
    except (OSError, MemoryError) as error:
        said = getattr(error, "strerror", None) or "out of memory"
        raise ModelError(f"{path} can't be read ({said}): make it readable, or free what this process lacks") from error
    except ValidationError as error:
        raise ModelError(f"{path} is of another version than {VERSION}: train it again") from error
    except Exception as error:
        # Which of their many errors zipfile, zlib and NumPy raise depends on the bytes that are damaged.
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelError(f"{path} is not a model ({said}): train it again") from error
    if model.facts.version != VERSION:
        raise ModelError(f"{path} is of version {model.facts.version}, this gemmtune reads {VERSION}: train it again")
    return replace(model, beside=tuple(beside))


def _read(arrays: Mapping[str, Any], place: int) -> LearnedModel:
    facts = ModelFacts.model_validate_json(bytes(arrays[_name(place, _FACTS)]))
    forest = Forest(*(arrays[_name(place, name)] for name in _FOREST))
    return LearnedModel(facts, forest, *(arrays[_name(place, name)] for name in _PROBLEMS))


def _name(place: int, array: str) -> str:
    """An array's name in the archive: models beside the first have their number in front."""
    return f"{place}.{array}" if place else array


def load_for(path: Path, device: str) -> LearnedModel:
    """Reads a model that fits this version of its family, as it predicts on `device`.

    Raises:
        ModelError: as `load`; or the device has other multiprocessors, or the family has changed.
    """
    model = load(path)
    if (fits := model.on(device)) is None:
        raise ModelError(
            f"{path.name} was trained on {model.facts.device}, not on {device}: ask for that device, or train a model "
            "of this one with `gemmtune model train`"
        )
    model.check()
    return fits


def model_for(device: str, folder: Path | None = None) -> Choice:
    """The model of a device: the one trained here, in `folder`, or else the one that ships; failing these, that of a
    device with the same multiprocessors.

    Never raises: without a usable model the analytic model answers, and `why` has the reason.

    Args:
        device: by any of its names.
    """
    device = identity_named(device)
    refused: list[str] = []
    for path, modified_ns in _files_for(device, [place for place in (folder, SHIPPED) if place]):
        try:
            model, reason = _usable(path, modified_ns, device)
        except ModelError as error:
            model, reason = None, str(error)
        if model:
            learned = f"learned from {len(model.facts.problems)} problems measured on {' and '.join(model.devices)}"
            if not model.learned_here:
                has = "has" if len(model.devices) == 1 else "have"
                learned += f", which {has} the same multiprocessors as {device}"
            return Choice(model, "; ".join([*refused, learned]), path, modified_ns)
        if path.name == file_name(device):
            refused.append(reason)
    reason = "; ".join(refused) or f"no model was trained on {device}"
    return Choice(None, f"{reason}: the analytic model is used")


def _files_for(device: str, places: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """A device's own model files, then those of others; the latter are looked for only if they are asked for.

    Each with the time of its last change. What can't be looked at, as names that are too long for a file, is no model.
    """
    own = file_name(device)
    yield from _with_times(place / own for place in places)
    if find_profile(device) is not None:
        for place in places:
            with suppress(OSError):
                yield from _with_times(path for path in sorted(place.glob("*.npz")) if path.name != own)


def _with_times(paths: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    for path in paths:
        with suppress(OSError):
            yield path, path.stat().st_mtime_ns


@lru_cache(maxsize=16)
def _usable(path: Path, modified_ns: int, device: str) -> tuple[LearnedModel | None, str]:
    """A file's model as it predicts on `device`, else the reason why it can't; reads a changed file again.

    Raises:
        ModelError: it can't be read for now, as where too many files are open; this is not remembered.
    """
    try:
        return load_for(path, device), ""
    except (ModelError, SpaceError) as error:
        if isinstance(error.__cause__, OSError | MemoryError):
            raise
        return None, str(error)
