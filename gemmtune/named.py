"""Paths that programs name."""

from __future__ import annotations

import os
from os.path import expanduser  # which leaves an unknown user's name as it is
from pathlib import Path


def absolute(text: str) -> Path:
    """A path as it is from every folder: a program may change its own before it is used."""
    return Path(expanduser(text)).absolute()


def path_of(given: object, name: str, meant: str) -> Path:
    """The path that an argument names, as it is from every folder.

    Args:
        name: of the argument.
        meant: what the argument is for, as in "give …".

    Raises:
        ValueError: the argument is no path.
    """
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not (isinstance(text, str) and text):
        raise ValueError(f"{name} = {given!r} is no path: give {meant}")
    return absolute(text)
