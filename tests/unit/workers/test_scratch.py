"""Scratch memory that candidates share: it grows, is zeroed once, and nothing is freed that a graph may still use."""

from __future__ import annotations

import pytest

from workers.cuda.driver import CudaError
from workers.cuda.families import shared

MOST_BYTES = 1000


class Memory:
    """Device memory that notes what happens to it."""

    made: list[Memory] = []  # noqa: RUF012
    zeroed: list[Memory] = []  # noqa: RUF012

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes, self.address, self.freed = size_bytes, 0x1000 * (len(self.made) + 1), False
        self.made.append(self)

    @classmethod
    def allocate(cls, size_bytes: int) -> Memory:
        if size_bytes > MOST_BYTES:
            raise CudaError("cuMemAlloc", "out of memory")
        return cls(size_bytes)

    def free(self) -> None:
        assert not self.freed
        self.freed = True


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> type[Memory]:
    monkeypatch.setattr(shared, "Buffer", Memory)
    monkeypatch.setattr(shared, "_zero", Memory.zeroed.append)
    Memory.made.clear()
    Memory.zeroed.clear()
    return Memory


def test_it_is_handed_out_again_while_it_is_large_enough(memory: type[Memory]) -> None:
    scratch = shared.Shared().scratch
    assert scratch("partials", 100) == scratch("partials", 100) == scratch("partials", 50) == 0x1000
    assert scratch("packed_a", 100) == 0x2000
    assert [each.size_bytes for each in memory.made] == [100, 100]


def test_what_a_larger_candidate_replaces_stays_until_the_end(memory: type[Memory]) -> None:
    of_problem = shared.Shared()
    assert (of_problem.scratch("partials", 100), of_problem.scratch("partials", 101)) == (0x1000, 0x2000)
    assert not any(each.freed for each in memory.made)
    of_problem.free()
    assert all(each.freed for each in memory.made)
    of_problem.free()


def test_what_was_there_before_memory_ran_out_is_handed_out_and_freed_once(memory: type[Memory]) -> None:
    of_problem = shared.Shared()
    of_problem.scratch("partials", 100)
    for _ in range(2):
        with pytest.raises(CudaError, match="out of memory"):
            of_problem.scratch("partials", MOST_BYTES + 1)
    assert of_problem.scratch("partials", 100) == 0x1000
    of_problem.free()
    assert [each.freed for each in memory.made] == [True]


def test_semaphores_are_zero_when_they_are_first_handed_out_and_after_a_failure(memory: type[Memory]) -> None:
    of_problem = shared.Shared()
    for size_bytes in (16, 16, 32):
        of_problem.scratch("semaphores", size_bytes, zeroed=True)
    of_problem.scratch("partials", 100)
    small, large, _ = memory.made
    assert memory.zeroed == [small, large]
    of_problem.reset()
    assert memory.zeroed == [small, large] * 2


def test_descriptors_of_a_box_are_made_once_for_each_address(
    memory: type[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    monkeypatch.setattr(shared.Box, "encode", lambda _, address: encoded.append(address))
    of_problem, box = shared.Shared(), shared.Box(2, 64, 64, 1, 128, 8192, 64, 64, 128)
    for address in (16, 16, 32):
        of_problem.maps(box)(address)
    assert encoded == [16, 32]
    of_problem.free()
    of_problem.maps(box)(16)
    assert encoded == [16, 32, 16]
