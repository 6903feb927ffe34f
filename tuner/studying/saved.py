"""Saves the studies of a store as recordings, one file per problem: others can replay them and learn from them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from space.devices import profile_named
from space.family import is_own
from space.kind import problem_from_key
from tuner.errors import NothingCorrect
from tuner.evidence.records import StoredMeasurement
from tuner.evidence.store import Store
from workers.measurement import DeviceFacts, Outcome
from workers.recording import check_folder, file_name, write_recording


def save(store: Store, device: str, folder: Path) -> list[Path]:
    """Writes what GPUs of one model measured: of each problem the study with the most correct screenings of ours, and
    of that the last finals.

    Files that exist are kept. Replays and revoked measurements are left out, and what was right of a build that was
    found wrong: who reads a recording can't know what another study found.

    Args:
        device: GPU model.

    Raises:
        NothingCorrect: the store has nothing to save.
        ProfileError: the device is unknown.
        RecordingError: a file can't be written, or the folder has recordings of another device.
    """
    check_folder(folder, device)
    studies: dict[str, dict[int, list[StoredMeasurement]]] = defaultdict(lambda: defaultdict(list))
    for row in store.every(device):
        if row.device_kind == "cuda":
            studies[row.measurement.problem_key][row.study_id].append(row)
    written = []
    for key, found in studies.items():
        problem, rows = problem_from_key(key), max(found.values(), key=_screened)
        path = folder / file_name(problem)
        if _screened(rows) and not path.exists():
            kept = _of_last_finals(rows)
            measured = [(row.measurement, row.provenance) for row in kept]
            write_recording(path, problem, _facts(device, kept[0]), measured, [row.taken_at for row in kept])
            written.append(path)
    if not written:
        raise NothingCorrect(
            f"but for replays, the store has no correct measurement of {device} that {folder} lacks: "
            "tune on the GPU first"
        )
    return written


def _of_last_finals(rows: list[StoredMeasurement]) -> list[StoredMeasurement]:
    """A study's measurements without the finals of its earlier runs: times of two runs are no rivals."""
    # Finals are stored together.
    last = next((row.taken_at for row in reversed(rows) if row.measurement.stage == "final"), None)
    return [row for row in rows if row.measurement.stage == "screen" or row.taken_at == last]


def _screened(rows: list[StoredMeasurement]) -> int:
    """Number of correct screenings of ours: a recorder's study of the library has none, and replays as nothing."""
    told = (row.measurement for row in rows if is_own(row.measurement.config))
    return sum(one.stage == "screen" and one.outcome is Outcome.CORRECT for one in told)


def _facts(device: str, row: StoredMeasurement) -> DeviceFacts:
    """The device: the card's profile, and the card that measured first."""
    profile, by = profile_named(device), row.provenance
    return DeviceFacts(
        device, profile.arch.name, "cuda", by.device_uuid, by.driver, profile.sm_count, profile.l2_bytes,
        profile.memory_bytes,
    )  # fmt: skip
