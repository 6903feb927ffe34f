"""Render: one self-contained translation unit from a family's files and a config.

Own headers are flattened in, each once, with `#line` directives so that compiler messages name the file.
The text is a function of its arguments alone: it is what builds are addressed by.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from workers.kernels.wgmma import wgmma_mma_async

FOLDER: Final = Path(__file__).parent
#: The file of each family that holds its entries.
ENTRY_FILES: Final[dict[str, str]] = {
    "sm90_wgmma": "sm90_wgmma/entry.cuh", "gemv": "gemv/entry.cuh", "verify": "verify/entry.cuh",
}  # fmt: skip
#: Entries that are part of a program where a constant says so.
_MORE_ENTRIES: Final[dict[str, str]] = {"packs": "sm90_wgmma/pack_entry.cuh"}
#: Texts that are kept, of 80 KB each: one an instruction, and most problems have a dozen or two.
_KEPT_TEXTS: Final = 64
_INSTRUCTION_FILE: Final = "ptx/wgmma_mma_async.cuh"

_NO_INSTRUCTION: Final = "// this family has no wgmma"

_INCLUDE = re.compile(r'#include "([^"]+)"')
#: Words become enumerators of these types; what only chooses text stays out of `Config`.
_ENUMERATORS: Final = {
    "schedule": "Schedule", "a_source": "ASource", "epilogue": "Epilogue", "output": "Output",
    "activation": "Activation", "a_path": "APath", "element_a": "Input", "element_b": "Input",
}  # fmt: skip
_NOT_MEMBERS: Final = ("input_a", "input_b", "packs")


def render(family: str, constants: Mapping[str, int | str]) -> str:
    """The source of one kernel.

    Args:
        constants: compile knobs and derived values by name; `tile_m` becomes `Config::kTileM`, a word
            becomes an enumerator (`epilogue="tma"` is `Epilogue::kTma`). A launch knob has no place here.
    """
    instruction = wgmma_mma_async(constants) if "instruction_n" in constants else _NO_INSTRUCTION
    more = tuple(file for name, file in _MORE_ENTRIES.items() if constants.get(name))
    before, after = _around_config(ENTRY_FILES[family], instruction, more)
    return "".join([before, *(f"{line}\n" for line in (_config(constants) if constants else [])), after])


@lru_cache(maxsize=_KEPT_TEXTS)
def _around_config(entry: str, instruction: str, more: tuple[str, ...]) -> tuple[str, str]:
    """The text before and after `Config`: most candidates of a problem share it with others."""
    seen: set[str] = set()
    body = list(_flatten(entry, {_INSTRUCTION_FILE: instruction}, seen))
    # Config names enums of the included files and is named by the entry: it stands after the last include.
    after_includes = max(place for place, line in enumerate(body) if line.endswith(f'"{entry}"'))
    added = (line for file in more for line in _flatten(file, {}, seen))
    before, after = body[:after_includes], [*body[after_includes:], *added]
    return "".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after)


@cache
def source_digest(family: str) -> str:
    """Digest of a family's source text, without config and without generated instruction wrappers."""
    seen: set[str] = set()
    files = [ENTRY_FILES[family], *(file for file in _MORE_ENTRIES.values() if file.startswith(f"{family}/"))]
    generated = {_INSTRUCTION_FILE: "// generated for each config"}
    text = "\n".join(line for file in files for line in _flatten(file, generated, seen))
    return hashlib.sha256(text.encode()).hexdigest()


def sources_digest(families: Iterable[str]) -> str:
    """Digest of all sources that one problem's candidates are made of: of one family, its own."""
    digests = {family: source_digest(family) for family in families}
    if len(digests) == 1:
        return next(iter(digests.values()))
    text = "\n".join(f"{family} {digest}" for family, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def flatten(entry: str, generated: Mapping[str, str] | None = None) -> str:
    """The source of a file with its own headers in it, each once.

    Args:
        generated: texts by name, which stand in for files.
    """
    return "\n".join(_flatten(entry, generated or {}, set())) + "\n"


def _config(constants: Mapping[str, int | str]) -> list[str]:
    lines = ['#line 1 "Config"', "struct Config {"]
    for name, value in constants.items():
        member = f"k{_camel(name)}"
        if name in _NOT_MEMBERS:
            continue
        if isinstance(value, str):
            kind = _ENUMERATORS[name]
            lines.append(f"    static constexpr {kind} {member} = {kind}::k{_camel(value)};")
        else:
            lines.append(f"    static constexpr int {member} = {int(value)};")
    return [*lines, "};"]


def _camel(name: str) -> str:
    return "".join(part[0].upper() + part[1:] for part in name.split("_"))


def _flatten(name: str, generated: Mapping[str, str], seen: set[str]) -> Iterator[str]:
    seen.add(name)
    yield f'#line 1 "{name}"'
    text = generated.get(name) or _text_of(name)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() == "#pragma once":
            continue
        match = _INCLUDE.match(line)
        if match is None:
            yield line
        elif match[1] not in seen:
            yield from _flatten(match[1], generated, seen)
            yield f'#line {number + 1} "{name}"'


@cache
def _text_of(name: str) -> str:
    # A process that began with one text of a file goes on with it: builds and their source digest agree.
    return (FOLDER / name).read_text()
