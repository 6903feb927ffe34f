"""The version of this package, which every measurement records."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def own_version() -> str:
    """The installed version; `0+source` if the package is not installed."""
    try:
        return version("gemmtune")
    except PackageNotFoundError:
        return "0+source"
