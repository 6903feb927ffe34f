"""Columns of a document, read back."""

from __future__ import annotations

from typing import Any


def column(document: dict[str, Any], name: str) -> list[Any]:
    """A column in full, coded or not."""
    found = document["columns"][name]
    return [found["values"][place] for place in found["at"]] if isinstance(found, dict) else list(found)


def knob(document: dict[str, Any], name: str) -> list[Any]:
    """The value of a knob in every row."""
    values = document["configs"]["knobs"][name]
    return [values["values"][values["at"][place]] for place in document["columns"]["config"]]
