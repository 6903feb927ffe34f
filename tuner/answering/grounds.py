"""Grounds: sentences that say how a measured time was taken."""

from __future__ import annotations

from typing import Final

from space.families.common import starts_early
from workers.measurement import Measurement, Policy

#: Of an early launch that was timed under another policy than the chains, as all were while there was but one.
_BESIDE_COPIES: Final = "it starts early (pdl=1) and overlapped its own copies: behind plain kernels it takes longer"


def taken(winner: Measurement, note: str) -> tuple[str, ...]:
    """Sentences on the samples of a winner.

    Args:
        note: what the measurement's readers should know; empty where that is told elsewhere.
    """
    alone = starts_early(winner.config) and winner.policy not in (Policy.CHAIN, Policy.CHAIN_PDL)
    count = len(winner.samples_us)
    samples = f"{count} sample{'s' * (count != 1)} of stage {winner.stage}"
    said = samples, note, _BESIDE_COPIES if alone else ""
    return tuple(filter(None, said))
