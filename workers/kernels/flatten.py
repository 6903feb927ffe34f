"""Flattens headers into one self-contained text, each header once, with `#line` directives for compiler messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

#: Includes resolve against this folder unless the including source has a folder of its own.
FOLDER: Final = Path(__file__).parent

_INCLUDE: Final = re.compile(r'#include "([^"]+)"')


def flatten(entry: str, generated: Mapping[str, str] | None = None, root: Path = FOLDER) -> str:
    """A file with the headers that it includes.

    Args:
        entry: path below `root`, or below `FOLDER` where `root` has no such file. Includes resolve the same way.
        generated: texts by name, used instead of files.

    Raises:
        FileNotFoundError: neither folder has one of the files.
    """
    return "\n".join(flattened(entry, generated or {}, root, set())) + "\n"


def flattened(
    name: str, generated: Mapping[str, str], root: Path, seen: set[str], missing: str | None = None
) -> Iterator[str]:
    """The lines of `flatten`.

    Args:
        seen: headers to leave out; those that are included here are added.
        missing: text of an include that is no file.
    """
    seen.add(name)
    yield f'#line 1 "{name}"'
    text = generated.get(name) or _text_of(name, root, missing)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() == "#pragma once":
            continue
        match = _INCLUDE.match(line)
        if match is None:
            yield line
        elif match[1] not in seen:
            yield from flattened(match[1], generated, root, seen, missing)
            yield f'#line {number + 1} "{name}"'


@cache
def _text_of(name: str, root: Path, missing: str | None) -> str:
    # Read once per process, so that builds and the digest of their source agree even when a file changes meanwhile.
    own, common = root / name, FOLDER / name
    path = own if own.is_file() else common
    return missing if missing is not None and not path.is_file() else path.read_text(encoding="utf-8")
