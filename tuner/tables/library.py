"""The library's table: for every served best, the fastest of cuBLASLt's candidates in the same finals."""

from __future__ import annotations

from typing import Any

from tuner.errors import UnknownDevice
from tuner.evidence.picks import LIBRARY, versus
from tuner.evidence.records import Best
from tuner.evidence.store import Store
from tuner.tables.tables import chosen_bests, table_of


def library_table(store: Store, device: str) -> dict[str, Any]:
    """A table whose configs are the library's algorithms, each compared with its first choice of the same turns.

    Raises:
        UnknownDevice: the store has no best of the device, or none with a candidate of the library.
    """
    found = [won for best in chosen_bests(store, device) if (won := library_best(store, best))]
    if not found:
        raise UnknownDevice(f"no best on {device!r} was compared with cuBLASLt's candidates: tune with the extra `gpu`")
    return table_of(found, device)


def library_best(store: Store, best: Best) -> Best | None:
    """The fastest candidate of the library in a best's finals, with its ratio to the library's first choice."""
    finals = [
        final
        # Later finals of its study may have been slower, and then it still stands.
        for final in store.finals_beside(best.winner.id)
        if final.measurement.config.family == LIBRARY and final.measurement.policy is best.policy
    ]
    if not finals:
        return None
    # Stored in order: the library's first choice precedes its other candidates.
    first = finals[0].measurement
    ratios = [versus(first, final.measurement, best.device) for final in finals]
    ratio, fastest = max(zip(ratios, finals, strict=True), key=lambda each: each[0].value)
    return Best(best.problem, best.device, best.device_kind, fastest, ratio, None, None, best.tried, best.failed)
