"""Which candidates were not verified: tests ask for right results, not steady times, so that they may share a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from workers.measurement import Measurement, Outcome

#: A candidate's times can only be unstable once its results were right, before and after they were taken.
VERIFIED: Final = frozenset({Outcome.CORRECT, Outcome.UNSTABLE})


def unverified(measured: Iterable[Measurement]) -> dict[str, tuple[Outcome, str]]:
    """What became of each candidate that is not right, and why, by its key."""
    return {one.config.key: (one.outcome, one.detail) for one in measured if one.outcome not in VERIFIED}
