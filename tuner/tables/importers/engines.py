"""Logs of vLLM and SGLang: the configs of their Triton kernels that they miss, and those configs' files.

The names say N and K of products with a scale for each block, or of grouped products. gemmtune has kernels for
neither, so nothing is listed unless the caller says under which dtype.
"""

from __future__ import annotations

import re
from typing import Final

from space.errors import ProblemError
from space.kinds.gemm import Gemm
from tuner.tables.importers.source import Asked, NotThisFormat, Source
from tuner.tables.shapes import Shapes, Tally

READS: Final = "a log of vLLM or SGLang with `Config file not found at …`, or one of their N=…,K=….json configs"
_MISSING: Final = re.compile(r"[Cc]onfig file not found at (.*)")
#: What lines of vLLM and of SGLang have: a level, their name, or a date in brackets at the front.
_LOG: Final = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR|vllm|vLLM|sglang|SGLang)\b|^\[[0-9]{4}-[0-9]{2}-[0-9]{2} ")
#: A config's name in a line. None is longer, and a line of a million characters may begin one almost everywhere.
_PATH: Final = re.compile(r"(?<![^/\s'\"])(?=[^/\s'\"]{0,60}?[NE]=)[^/'\"]{1,300}?\.json")
_LINEAR: Final = re.compile(
    r"N=([0-9]{1,10}),K=([0-9]{1,10}),device_name=([^,]+),dtype=(\w+)(?:,block_shape=.*)?\.json"
)
_EXPERTS: Final = re.compile(r"E=([0-9]{1,10}),N=([0-9]{1,10}),device_name=[^,]+(?:,.*)?\.json")
_KEY: Final = re.compile("[0-9]{1,10}")
#: M of products whose name says only N and K: the batches that engines tune for.
_MS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
_MOST_CONFIG: Final = 16 << 20
#: How JSON begins. Lines of logs may begin with a bracket too, as in `[2026-11-20 10:00:01 TP0] …`.
_JSON: Final = re.compile(r"\s*(?:\{|\[\s*(?:[\[\]{]|$))")


def recognizes(source: Source) -> bool:
    """Whether the file's name is that of a config, or it is text that may be a log."""
    if _is_config(source):
        return True
    named = source.path.suffix.lower() in (".log", ".txt", ".out", ".err", "")
    return not _JSON.match(source.head) and (
        bool(_MISSING.search(source.head)) or named or bool(re.search(r"\b(INFO|WARNING)\b", source.head))
    )


def is_log(source: Source) -> bool:
    """Whether it is a log that this module recognizes: its products run with any number of tokens."""
    return recognizes(source) and not _is_config(source)


def read(source: Source, asked: Asked) -> Shapes:
    """The products of a config's name, or of every line that misses one.

    Raises:
        ProblemError: a log has none, or a config is not JSON.
        NotThisFormat: no line looks like one of a log.
    """
    tally, name = Tally(), source.path.name
    if _is_config(source):
        document = source.document(_MOST_CONFIG)
        ms = tuple(int(key) for key in document if _KEY.fullmatch(key)) if isinstance(document, dict) else ()
        if not ms:
            raise ProblemError(f'{source.path} has no entry of an M, as in "16": {{…}}: give an engine\'s config')
        _count(tally, name, ms, asked, str(source.path))
        return tally.shapes()
    seen, logged = set[str](), False
    for number, line in source.lines(most=None):
        missing = _MISSING.search(line)
        logged = logged or bool(missing or _LOG.search(line))
        for path in _PATH.findall(missing[1]) if missing else ():
            # The same file is looked for at several places, by every process.
            if path not in seen and len(seen) < 100_000:
                seen.add(path)
                _count(tally, path, asked.ms or _MS, asked, f"{source.path}, line {number}")
    if not logged:
        raise NotThisFormat
    if not seen:
        raise ProblemError(f"{source.path} has no line `Config file not found at …N=…,K=….json`: nothing is missing")
    return tally.shapes()


def _is_config(source: Source) -> bool:
    return bool(_LINEAR.fullmatch(source.path.name) or _EXPERTS.fullmatch(source.path.name))


def _count(tally: Tally, name: str, ms: tuple[int, ...], asked: Asked, place: str) -> None:
    linear, experts = _LINEAR.fullmatch(name), _EXPERTS.fullmatch(name)
    if experts:
        tally.leave_out(f"grouped products of {experts[1]} experts with N = {experts[2]}: gemmtune tunes none yet")
    elif linear and not asked.block_scaled_as:
        tally.leave_out(
            f"products with a scale for each block, N = {linear[1]} and K = {linear[2]} ({linear[4]}): gemmtune has "
            f"no kernels for them; --block-scaled-as fp8_e4m3 lists plain ones of the same extents"
        )
    elif linear:
        for m in ms:
            try:
                tally.add(Gemm.of(m, int(linear[1]), int(linear[2]), asked.block_scaled_as), 1, place)
            except ProblemError as error:
                raise ProblemError(f"{place}: {error}") from error
    else:
        tally.leave_out(f"configs with names of another form, as in {name[:120]!r}")
