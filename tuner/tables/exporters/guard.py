"""Guard: an entry is exported only if its gain over the library is not noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

#: Least gain over the library's first choice that is exported: below it a user gains nothing worth a change.
MIN_GAIN: Final = 1.02
#: Policies that show what a program sees; the others are instruments.
DEPLOYED: Final = frozenset({"sustained", "chain", "chain_pdl", "burst"})


@dataclass(frozen=True, slots=True)
class Guarded:
    """A table behind the guard.

    Attributes:
        document: the whole table.
        entries: those to export, in order.
        library: keys of the other problems, whose library kernel is to be kept; exports say `null` for them.
        left_out: how many, by reason.
        min_gain: the least gain.
    """

    document: Mapping[str, Any]
    entries: Sequence[Mapping[str, Any]]
    library: Sequence[str]
    left_out: Mapping[str, int]
    min_gain: float

    @property
    def device(self) -> str:
        return str(self.document["device"])

    def without(self, reason_of: Callable[[Mapping[str, Any]], str]) -> Guarded:
        """The table with further entries left to the library.

        Args:
            reason_of: why an entry is left to the library; empty where it is exported.
        """
        entries, library, reasons = [], list(self.library), Counter(self.left_out)
        for entry in self.entries:
            if reason := reason_of(entry):
                library.append(entry["problem"]["key"])
                reasons[reason] += 1
            else:
                entries.append(entry)
        return replace(self, entries=entries, library=library, left_out=dict(reasons.most_common()))


def guarded(document: Mapping[str, Any], min_gain: float = MIN_GAIN, keys: Collection[str] | None = None) -> Guarded:
    """The entries whose paired interval lies above `min_gain`, under a policy that shows what programs see.

    Args:
        document: a table (`tuner.tables.tables.table`).
        keys: of the only problems to export; None for all.
    """
    asked = [entry for entry in document["entries"] if keys is None or entry["problem"]["key"] in keys]
    return Guarded(document, asked, [], {}, min_gain).without(lambda entry: doubt(entry, min_gain))


def doubt(entry: Mapping[str, Any], min_gain: float) -> str:
    """Why an entry is not exported; empty if it is."""
    ratio = entry["versus_cublaslt_first"]
    if entry["device_kind"] == "recorded":
        return "replayed from a recording: tune on the GPU"
    if ratio is None:
        return "never compared with the library"
    if entry["policy"] not in DEPLOYED:
        return f"measured under {entry['policy']}, which no program runs under: tune again"
    if not ratio["paired"]:
        return "not compared turn by turn with the library: tune again, in one run"
    # Nothing exceeds a least gain that is no number.
    if not ratio["low"] > min_gain:
        return f"not surely more than {min_gain:g} times as fast as the library's first choice"
    return ""
