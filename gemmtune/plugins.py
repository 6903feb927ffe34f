"""Plugins of vLLM and SGLang: both call `install_table` in each of their processes."""

from __future__ import annotations

import logging

from tuner.settings import is_set, settings

log = logging.getLogger("gemmtune.torch")
_done: set[str] = set()


def install_table() -> None:
    """Installs the table or bundle that GEMMTUNE_TABLE names; does nothing without it, or a second time.

    It never raises: an engine that could run without the table would stop.
    """
    if not is_set("table"):
        return
    try:
        path = settings().table
        if path is None or str(path) in _done:
            return
        # Whatever comes of it: what went wrong once is said once.
        _done.add(str(path))
        from gemmtune.torch import install

        install(path, stale=settings().table_stale)
    except Exception as error:  # whatever is wrong with the table or with torch
        log.error("GEMMTUNE_TABLE is not installed, torch's own kernels run: %s", error)
