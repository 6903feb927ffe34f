"""What a replayed time says of its kernels: now, and when a later version reads it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support import FAMILY, PROVENANCE
from workers.measurement import replay_part
from workers.replays import SHOWN, noted, replay_sentence

THEN = PROVENANCE.kernel_source_digest
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("here", "kept", "said"),
    [
        (THEN, False, "the same as here"),
        (THEN, True, "the same as when it was replayed"),
        ("b" * 64, False, "which is bbbbbbbbbbbb here"),
        ("b" * 64, True, "which was bbbbbbbbbbbb when it was replayed"),
    ],
)
def test_what_is_kept_says_nothing_of_the_version_that_reads_it(here: str, kept: bool, said: str) -> None:
    sentence = replay_sentence(FAMILY.config({}), PROVENANCE, MOMENT, here, kept=kept)
    when = "replayed: a GPU measured this on 2026-01-01 at 00:00 UTC"
    assert sentence == f"{when} with kernel source {THEN[:SHOWN]}, {said}"


def test_what_was_noted_on_the_gpu_is_told_as_of_then() -> None:
    """Else a machine without a GPU says that a process uses "this GPU"."""
    said = "replayed: a GPU measured this at an unrecorded time"
    note = noted("process 2922 uses this GPU too (1.2 GiB, idle lately)", said)
    assert note == f"when it was recorded: process 2922 uses this GPU too (1.2 GiB, idle lately); {said}"
    assert replay_part(note) == noted("", said) == said
