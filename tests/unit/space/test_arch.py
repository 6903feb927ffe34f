"""Archs against the vendor's table of limits."""

from __future__ import annotations

import numpy as np
import pytest

from space.arch import ARCHS, arch_named
from space.devices import profile_named
from space.errors import ArchError

KIB = 1_024

#: CUDA C++ Programming Guide: shared memory per block and per SM in KiB, threads and blocks per SM.
GUIDE = {
    "sm_80": (163, 164, 2_048, 32),
    "sm_86": (99, 100, 1_536, 16),
    "sm_87": (163, 164, 1_536, 16),
    "sm_89": (99, 100, 1_536, 24),
    "sm_90a": (227, 228, 2_048, 32),
    "sm_100a": (227, 228, 2_048, 32),
    "sm_103a": (227, 228, 2_048, 32),
    "sm_120a": (99, 100, 1_536, 24),
    "sm_121a": (99, 100, 1_536, 24),
}


@pytest.mark.parametrize("name", GUIDE)
def test_limits_are_those_of_the_programming_guide(name: str) -> None:
    arch = arch_named(name)
    limits = (arch.smem_per_block_bytes / KIB, arch.smem_per_sm_bytes / KIB, arch.threads_per_sm, arch.blocks_per_sm)
    assert limits == GUIDE[name]
    assert (arch.registers_per_block, arch.registers_per_thread, arch.threads_per_block) == (65_536, 255, 1_024)
    assert arch.smem_static_bytes == 48 * KIB


def test_there_is_one_arch_for_each_row_of_the_guide() -> None:
    assert list(ARCHS) == list(GUIDE)


def test_clusters_of_sixteen_need_the_attribute_and_a_data_centre_part() -> None:
    assert {name: (arch.cluster_portable, arch.cluster_largest) for name, arch in ARCHS.items()} == {
        "sm_80": (1, 1), "sm_86": (1, 1), "sm_87": (1, 1), "sm_89": (1, 1), "sm_90a": (8, 16), "sm_100a": (8, 16),
        "sm_103a": (8, 16), "sm_120a": (8, 8), "sm_121a": (8, 8),
    }  # fmt: skip
    for arch in ARCHS.values():
        assert (arch.cluster_portable > 1) == ("clusters" in arch.features)


def test_instructions_of_one_generation_only() -> None:
    # No later arch has wgmma; consumer Blackwell has neither wgmma nor tcgen05.
    assert [name for name, arch in ARCHS.items() if "wgmma" in arch.features] == ["sm_90a"]
    assert [name for name, arch in ARCHS.items() if "tcgen05" in arch.features] == ["sm_100a", "sm_103a"]
    assert [name for name, arch in ARCHS.items() if "mma_fp4" in arch.features] == ["sm_120a", "sm_121a"]
    assert [name for name, arch in ARCHS.items() if arch.tmem_columns] == ["sm_100a", "sm_103a"]


def test_consumer_blackwell_has_tma_and_clusters() -> None:
    assert {"tma", "clusters", "setmaxnreg"} <= ARCHS["sm_120a"].features


def test_larger_clusters_leave_multiprocessors_unused() -> None:
    sizes = np.array([1, 2, 4, 8, 16, 132, 200])
    slots = profile_named("NVIDIA H200").cluster_slots(sizes)
    assert slots.tolist()[:5] == [132, 66, 30, 15, 7]
    assert slots.min() == 1, "a cluster that is too large to run still gets an estimate"


def test_archs_without_clusters_count_single_blocks_only() -> None:
    assert [profile_named(name).resident_clusters for name in ("NVIDIA A10", "NVIDIA GB10")] == [
        {1: 72}, {1: 48, 2: 24, 4: 10}]  # fmt: skip


def test_registers_are_given_in_steps_of_eight_and_no_more_than_a_thread_addresses() -> None:
    threads = np.array([128, 256, 288, 384, 640, 1024, 2048])
    assert ARCHS["sm_90a"].registers_for(threads).tolist() == [255, 255, 224, 168, 96, 64, 32]


@pytest.mark.parametrize("name", ["sm_90", "sm_100", "sm_120"])
def test_a_missing_suffix_is_named(name: str) -> None:
    with pytest.raises(ArchError, match=f"write {name}a"):
        arch_named(name)


@pytest.mark.parametrize("name", ["", "h100", "sm_75", "sm_90f", "SM_90A", "sm_100af"])
def test_an_unknown_arch_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ArchError, match=f"unknown.*{', '.join(ARCHS)}"):
        arch_named(name)
