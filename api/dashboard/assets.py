"""The pages' files: read once, compressed once, and addressed by the digest of them all."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Final

import zstandard

from api.encoding import Encoding, accepted

_FOLDER: Final = Path(__file__).parent / "static"
_MEDIA_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}  # fmt: skip
#: What a module imports at once; `import()` is not part of it.
_IMPORTS: Final = re.compile(r'^(?:import|export) (?:[^"]*? from )?"(\.[^"]+)"', re.MULTILINE)
#: Pages by path in `app.js`.
_PAGES: Final = re.compile(r'"(/[a-z]*)": \(\) => import\("\./([^"]+)"\)')
#: Pages that the head of every page links to.
LINKS: Final = {
    "/": "Ask", "/problems": "Problems", "/space": "Space", "/explain": "Explain", "/layouts": "Layouts",
    "/campaigns": "Campaigns", "/fleet": "Fleet", "/failures": "Failures", "/ladder": "Ladders", "/devices": "Devices",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asset:
    """One file.

    Attributes:
        bodies: by content coding, the smallest first; `identity` is the file itself.
    """

    media_type: str
    bodies: dict[Encoding, bytes]

    def accepted(self, accept_encoding: str) -> tuple[Encoding, bytes]:
        """The smallest body that an Accept-Encoding header allows, with its coding."""
        coding = accepted(accept_encoding, [coding for coding in self.bodies if coding != "identity"])
        return coding, self.bodies[coding]


@dataclass(frozen=True, slots=True)
class Assets:
    """All files of the pages.

    Attributes:
        digest: of all files: a part of their address, so that browsers may keep them for ever.
        files: by path below `static`.
        shells: the HTML document that each page starts from, by path. It contains no data; the browser fetches the
            page's modules at once instead of discovering them import by import.
    """

    digest: str
    files: dict[str, Asset]
    shells: dict[str, bytes]


@cache
def assets() -> Assets:
    """The files, read and compressed at the first call."""
    contents = {
        str(path.relative_to(_FOLDER)): path.read_bytes()
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _MEDIA_TYPES
    }
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    root = f"/static/{digest.hexdigest()[:16]}"
    shell = Template((_FOLDER.parent / "shell.html").read_text(encoding="utf-8"))
    links = "\n".join(f'<a href="{path}">{name}</a>' for path, name in LINKS.items())
    shells = {}
    for path, module in _PAGES.findall(contents["app.js"].decode()):
        needed = sorted({*_needed("app.js", contents), *_needed(module, contents)})
        preloads = "\n".join(f'<link rel="modulepreload" href="{root}/{name}">' for name in needed)
        shells[path] = shell.substitute(root=root, preloads=preloads, links=links).encode()
    files = {name: _asset(name, content) for name, content in contents.items()}
    return Assets(digest.hexdigest()[:16], files, shells)


def _needed(module: str, contents: Mapping[str, bytes]) -> set[str]:
    """A module with everything that it imports."""
    found, left = {module}, [module]
    while left:
        name = left.pop()
        for other in _IMPORTS.findall(contents[name].decode()):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), other))
            if path not in found:
                found.add(path)
                left.append(path)
    return found


def _asset(name: str, content: bytes) -> Asset:
    packed: dict[Encoding, bytes] = {
        "zstd": zstandard.ZstdCompressor(level=19).compress(content), "gzip": gzip.compress(content, mtime=0),
    }  # fmt: skip
    smallest_first = sorted(packed.items(), key=lambda item: len(item[1]))
    useful = {coding: body for coding, body in smallest_first if len(body) < len(content)}
    return Asset(_MEDIA_TYPES[Path(name).suffix], useful | {"identity": content})
