"""The rule for names of campaigns and workers, which people read in lists and give to commands."""

from __future__ import annotations


def wrong_name(name: str, most: int) -> str:
    """Why nobody could read a name of a campaign or a worker in a list; empty if it can be read.

    Args:
        most: characters.
    """
    if name.strip() and len(name) <= most and name.isprintable():
        return ""
    return f"name {name[:80]!r} is invalid: give up to {most} printable characters"
