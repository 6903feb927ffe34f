"""Content encoding: large answers leave compressed, and unchanged ones not at all."""

from __future__ import annotations

import gzip
import hashlib
import threading
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import orjson
import zstandard
from fastapi import Request, Response

Encoding = Literal["zstd", "gzip", "identity"]

#: Smaller bodies are sent as they are.
LEAST_BYTES: Final = 4_096
_GZIP_LEVEL: Final = 1
#: A window of 32 KiB, with gzip's header and trailer.
_GZIP_WBITS: Final = 31
#: With a window over all of a body, which finds columns that are repeated, level 1 takes half as long as level 3 and
#: compresses as well. Clients need not accept windows above 8 MiB (RFC 9659).
_ZSTD_LEVEL: Final = 1
_MOST_WINDOW_LOG: Final = 23
_HASH_LOG: Final = 15
_JSON: Final = "application/json"
#: For the OpenAPI description of endpoints that answer 304.
NOT_MODIFIED: Final[dict[int | str, dict[str, object]]] = {304: {"description": "the client already has this content"}}
#: A browser asks again each time, and gets 304 while nothing changed.
_CACHE: Final = "private, no-cache"


class Rendered:
    """A body in the encodings that clients asked for. Only the compressed form of a large body stays in memory.

    Attributes:
        etag: weak, because a body has several encodings.
    """

    def __init__(self, body: bytes, media_type: str = _JSON) -> None:
        self.media_type = media_type
        self.length = len(body)
        self._lock = threading.Lock()
        first = _compressed(body) if self.length >= LEAST_BYTES else body
        # A copy: whatever wrote it allocated some KiB more, which would stay alive with it.
        first = bytes(memoryview(first))
        # Equal bodies are equal when they are compressed, and shorter to hash.
        self.etag = f'W/"{hashlib.sha256(first).hexdigest()[:24]}"'
        self._made: dict[Encoding, bytes] = {"zstd" if self.length >= LEAST_BYTES else "identity": first}

    @classmethod
    def of(cls, document: Any) -> Rendered:  # noqa: ANN401  (any JSON value)
        """A JSON document; numbers that JSON lacks become null."""
        return cls(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY))

    def encoded(self, encoding: Encoding) -> bytes:
        """The body in one encoding."""
        with self._lock:
            made = self._made.get(encoding)
            if made is None:
                body = zstandard.ZstdDecompressor().decompress(self._made["zstd"], max_output_size=self.length)
                if encoding == "identity":
                    return body
                made = self._made[encoding] = gzip.compress(body, _GZIP_LEVEL, mtime=0)
            return made

    @property
    def bytes_held(self) -> int:
        """Memory that the encodings take."""
        return sum(map(len, self._made.values()))

    def response(self, request: Request) -> Response:
        """The response to a request: 304 if its client has this content, else the body as compressed as it may be."""
        headers = {"ETag": self.etag, "Cache-Control": _CACHE, "Vary": "Accept-Encoding, Authorization"}
        if_none_match = request.headers.get("if-none-match")
        if if_none_match and matches(if_none_match, self.etag):
            return Response(status_code=304, headers=headers)
        encoding: Encoding = "identity"
        if self.length >= LEAST_BYTES:
            encoding = accepted(request.headers.get("accept-encoding", ""))
        if encoding != "identity":
            headers["Content-Encoding"] = encoding
        return Response(self.encoded(encoding), media_type=self.media_type, headers=headers)


def streamed(parts: Iterable[bytes], encoding: Encoding) -> Iterator[bytes]:
    """A body in one encoding, made while it is sent."""
    if encoding == "identity":
        yield from parts
        return
    if encoding == "zstd":
        packer: Any = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
    else:
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WBITS)
    for part in parts:
        if packed := packer.compress(part):
            yield packed
    yield packer.flush()


def _compressed(body: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _ZSTD_LEVEL, source_size=len(body), window_log=min(len(body).bit_length(), _MOST_WINDOW_LOG), hash_log=_HASH_LOG
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(body)


def accepted(accept_encoding: str, offered: Iterable[Encoding] = ("zstd", "gzip")) -> Encoding:
    """The first of the offered encodings that an Accept-Encoding header allows, or none (RFC 9110 §12.5.3)."""
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.strip().partition(";")
        quality = parameters.strip().removeprefix("q=")
        try:
            weights[name.strip()] = float(quality) if quality else 1.0
        except ValueError:
            weights[name.strip()] = 0.0
    others = weights.get("*", 0.0)
    return next((encoding for encoding in offered if weights.get(encoding, others) > 0), "identity")


def matches(if_none_match: str, etag: str) -> bool:
    """Evaluates If-None-Match (RFC 9110 §13.1.2): weak comparison with each entry of the list, or `*`."""
    given = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return "*" in given or etag.removeprefix("W/") in given
