"""Grounds: sentences that say how a measured time was taken."""

from __future__ import annotations

from typing import Final

from space.families.common import marks_weights, starts_early
from tuner.evidence.records import Best
from workers.measurement import Policy

#: Of an early launch that was timed under another policy than the chains, as all were while there was but one.
_BESIDE_COPIES: Final = "it starts early (pdl=1) and overlapped its own copies: behind plain kernels it takes longer"
#: Of tiles whose weights stream through L2, where copies rotated through three times L2 (docs/kernels/memory.md).
_KEPT_IN_L2: Final = (
    "its cache_hint kept a part of the weights in L2 from copy to copy: where a program reads gigabytes in between, it "
    "takes 3 % longer on average; {} measures it so"
)


def taken(best: Best, note: str) -> tuple[str, ...]:
    """Sentences on the samples of a best's winner.

    Args:
        note: what the measurement's readers should know; empty where that is told elsewhere.
    """
    winner = best.winner.measurement
    alone = starts_early(winner.config) and winner.policy not in (Policy.CHAIN, Policy.CHAIN_PDL)
    count = len(winner.samples_us)
    samples = f"{count} sample{'s' * (count != 1)} of stage {winner.stage}"
    kept = marks_weights(winner.config) and not best.winner.provenance.rotation_bytes
    # A replay repeats what was recorded, and is stale of no rotation.
    again = "`gemmtune tune` on the GPU" if best.device_kind == "recorded" else "`gemmtune retune --stale`"
    said = samples, note, _BESIDE_COPIES if alone else "", _KEPT_IN_L2.format(again) if kept else ""
    return tuple(filter(None, said))
