"""What a replayed time says of its kernels: now, and when a later version reads it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.support import FAMILY, PROVENANCE
from workers.measurement import replay_part
from workers.replays import SHOWN, Sources, noted, replay_sentence

THEN = PROVENANCE.kernel_source_digest
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
OTHER = Sources("b" * 64, frozenset({"b" * 64}))


@pytest.mark.parametrize(
    ("here", "kept", "said"),
    [
        (Sources(THEN, frozenset({THEN})), False, "the same as here"),
        (Sources(THEN, frozenset({THEN})), True, "the same as when it was replayed"),
        (OTHER, False, "which is bbbbbbbbbbbb here"),
        (OTHER, True, "which was bbbbbbbbbbbb when it was replayed"),
        (replace(OTHER, alike=frozenset({THEN})), False, "which is bbbbbbbbbbbb here, with the same machine code"),
    ],
)
def test_what_is_kept_says_nothing_of_the_version_that_reads_it(here: Sources, kept: bool, said: str) -> None:
    sentence = replay_sentence(FAMILY.config({}), PROVENANCE, MOMENT, here, kept=kept)
    when = "replayed: a GPU measured this on 2026-01-01 at 00:00 UTC"
    assert sentence == f"{when} with kernel source {THEN[:SHOWN]}, {said}"


def test_what_was_noted_on_the_gpu_is_told_as_of_then() -> None:
    """Else a machine without a GPU says that a process uses "this GPU"."""
    said = "replayed: a GPU measured this at an unrecorded time"
    note = noted("process 2922 uses this GPU too (1.2 GiB, idle lately)", said)
    assert note == f"when it was recorded: process 2922 uses this GPU too (1.2 GiB, idle lately); {said}"
    assert replay_part(note) == noted("", said) == said
