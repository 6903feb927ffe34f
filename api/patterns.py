"""Patterns of texts in requests, and each one's rule in words, which a refusal gives instead of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Text without control characters, which every database can store and a log line can show.
PRINTABLE: Final = r"^[^\x00-\x1f\x7f]*$"
#: Text of any form that every database can store. Half of a surrogate pair is refused by the parser.
WITHOUT_NUL: Final = r"^[^\x00]*$"
DIGEST: Final = r"^[0-9a-f]{64}$"
BASE64: Final = r"^[A-Za-z0-9+/]*={0,2}$"
#: A compiler's version.
VERSION: Final = r"^\d+\.\d+$"
#: A 64-bit word, decimal or 0x….
WORD: Final = r"^(0x[0-9a-fA-F]{1,16}|0|[1-9][0-9]{0,19})?$"
ADDRESSES: Final = r"^([0-9]{1,6}(,[0-9]{1,6}){0,31})?$"
COUNTS: Final = r"^[0-9]{1,10}(,[0-9]{1,10})*$"

RULES: Final[Mapping[str, str]] = {
    PRINTABLE: "give text without control characters, such as tabs and line breaks",
    WITHOUT_NUL: "give text without NUL characters",
    DIGEST: "give a SHA-256 as 64 hexadecimal digits in lower case",
    BASE64: "give bytes in base64",
    VERSION: "give a version of two numbers, as in 13.0",
    WORD: "give a 64-bit number, as in 64 or 0x40",
    ADDRESSES: "give at most 32 byte addresses of at most six digits, as in 0,128,256",
    COUNTS: "give whole numbers of at most ten digits, as in 1,16,4096",
}
