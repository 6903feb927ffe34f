"""Which measurement may replace a best: by their times, their programs, and the programs that were best before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from space.config import Config
from tests.support import DEVICE, FAMILY, PROBLEM, PROVENANCE, measured
from tuner.evidence.best_changes import Past, judge
from tuner.evidence.records import Best, Provenance, StoredMeasurement

CONFIG, OTHER = FAMILY.config({}), FAMILY.config({"tile_n": 96})
NEWER = replace(PROVENANCE, kernel_source_digest="e" * 64)
NEWEST = replace(PROVENANCE, kernel_source_digest="f" * 64)
DRIVER = replace(PROVENANCE, driver="590.1")


def best(number: int, us: float, by: Provenance = PROVENANCE, config: Config = CONFIG) -> Best:
    taken = measured(config, us, PROBLEM, "final")
    stored = StoredMeasurement(number, 1, DEVICE, "cuda", datetime.now(UTC), by, taken)
    return Best(PROBLEM, DEVICE, "cuda", stored, None, None, None, 1, {})


OLD = best(5, 10.0, NEWER)


def test_the_first_and_what_is_no_slower_become_best() -> None:
    assert judge(None, OLD, []) == (True, "the first that was measured")
    for us, config in ((9.0, CONFIG), (9.0, OTHER), (10.0, OTHER)):
        assert judge(OLD, best(6, us, NEWER, config), [])[0]
        assert judge(OLD, best(6, us, NEWEST, config), [Past(1, PROVENANCE)])[0]
        assert judge(OLD, best(6, us, NEWER, config), [Past(1, NEWER)])[0]


def test_the_same_time_of_the_same_config_is_no_news_unless_its_program_is_new() -> None:
    """A replay measures the same time whenever it is run."""
    assert judge(OLD, best(6, 10.0, NEWER), []) == (False, "measured again: the same time")
    assert judge(OLD, best(6, 10.0, NEWEST), [Past(1, PROVENANCE)])[0]
    assert judge(OLD, best(6, 10.0, DRIVER), [])[0]


def test_what_is_served_is_judged_again_and_stays() -> None:
    assert judge(OLD, OLD, [Past(1, PROVENANCE)])[0]


@pytest.mark.parametrize("us", [9.0, 11.0])
def test_what_was_best_before_does_not_come_back(us: float) -> None:
    assert judge(OLD, best(1, us, NEWER), [Past(1, NEWER)]) == (False, "measurement 1 was best before and was replaced")


@pytest.mark.parametrize(("by", "said"), [
    (PROVENANCE, "faster, 9 µs instead of 10 µs, but its kernels or library were replaced by newer ones"),
    (replace(PROVENANCE, driver="600.1"),
     "faster, 9 µs instead of 10 µs, but its kernels or library were replaced by newer ones"),
])  # fmt: skip
def test_replaced_kernels_do_not_come_back_with_a_faster_time_on_any_driver(by: Provenance, said: str) -> None:
    assert judge(OLD, best(6, 9.0, by), [Past(1, PROVENANCE)]) == (False, said)


def test_a_slower_one_needs_a_program_that_nobody_had() -> None:
    slower = "slower: 11 µs instead of 10 µs"
    assert judge(OLD, best(6, 11.0, NEWER), []) == (False, f"{slower}, by the same program")
    assert judge(OLD, best(6, 11.0, DRIVER), [Past(1, DRIVER)]) == (
        False, f"{slower}, and its program was replaced by another one"
    )  # fmt: skip
    accepted, why = judge(OLD, best(6, 11.0, NEWEST), [Past(1, DRIVER)])
    assert (accepted, why) == (
        True, f"{slower}, but the old program is gone: kernel source eeeeeeeeeeee is now ffffffffffff"
    )  # fmt: skip


def test_a_time_that_l2_flattered_gives_way_and_does_not_come_back() -> None:
    rotated = replace(NEWER, rotation_bytes=4 << 30)
    honest = best(6, 11.0, rotated)
    assert judge(OLD, honest, []) == (
        True,
        "slower: 11 µs instead of 10 µs, but the old program is gone: rotation in bytes 0 is now 4294967296",
    )
    said = "9 µs instead of 11 µs, but its operands rotated through fewer bytes, of which L2 keeps a part"
    for by in (NEWER, NEWEST):
        assert judge(honest, best(7, 9.0, by), [Past(5, NEWER)]) == (False, said)
