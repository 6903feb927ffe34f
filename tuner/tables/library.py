"""The library's table: for every served best, the pick among cuBLASLt's candidates in the same finals."""

from __future__ import annotations

from typing import Any

from tuner.errors import UnknownDevice
from tuner.evidence.picks import LIBRARY, Rivals, versus
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
    """What a best's finals would serve if only the library had taken part, with its ratio to the first choice."""
    # Later finals of its study may have been slower, and then it still stands.
    beside = store.finals_beside(best.winner.id)
    finals = [final for final in beside if final.measurement.config.family == LIBRARY]
    rivals = Rivals(best.problem, best.device, [final.measurement for final in finals])
    # Stored in order: the library's first choice precedes its other candidates.
    if not (library := rivals.under(best.policy)):
        return None
    won = rivals.winner(best.policy)
    (winner,) = (final for final in finals if final.measurement is won)
    ratio = versus(library[0], won, best.device)
    return Best(best.problem, best.device, best.device_kind, winner, ratio, None, None, best.tried, best.failed)
