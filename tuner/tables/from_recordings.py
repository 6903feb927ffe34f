"""The table of the bests of recordings: `gemmtune recordings export --format json` writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from tuner.errors import NothingCorrect
from tuner.evidence.picks import LIBRARY, bests_of
from tuner.evidence.records import Best, StoredMeasurement
from tuner.tables.tables import table_of
from workers.measurement import Outcome
from workers.recording import Recording

#: Id of rows that no store has.
_NO_ROW: Final = 0


def table_of_recordings(recordings: Iterable[Recording], device: str) -> dict[str, Any]:
    """The bests of recordings of one device model as a table.

    A recording of which nothing can be served has no entry: its finals were never taken, or all of them failed.
    """
    return table_of([best for recording in recordings if (best := _best(recording))], device)


def _best(recording: Recording) -> Best | None:
    screened = [one for one, _ in recording.measurements if one.stage == "screen" and one.config.family != LIBRARY]
    failed = Counter(one.outcome.value for one in screened if one.outcome is not Outcome.CORRECT)
    finals = [
        StoredMeasurement(_NO_ROW, _NO_ROW, recording.facts.name, "recorded", moment, by, one)
        for (one, by), moment in zip(recording.measurements, recording.taken_at, strict=True)
        if one.stage == "final" and moment is not None
    ]
    try:
        return bests_of(recording.problem, finals, len(screened), dict(failed))[0]
    except NothingCorrect:
        return None
