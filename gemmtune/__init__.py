"""The package that users import: an HTTP client. `gemmtune.torch` runs the tuned kernels on torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmtune.hidden import imports

if TYPE_CHECKING:
    from gemmtune.client import Client, GemmtuneError
    from gemmtune.launching import launch

__all__ = ["Client", "GemmtuneError", "launch"]


def __getattr__(name: str) -> object:
    # The command line imports this package, too, and does not need the client's HTTP library.
    if name == "launch":
        with imports():
            from gemmtune import launching

        return launching.launch
    if name == "torch":
        import gemmtune.torch

        return gemmtune.torch
    if name in __all__:
        with imports():
            from gemmtune import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
