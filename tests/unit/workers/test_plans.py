"""Plans, line by line: how many blocks each pass has, and with which attributes."""

from __future__ import annotations

import pytest

from space.devices import profile_named
from space.explain import explain
from space.family import family_named
from space.kinds.gemm import Gemm
from workers.cuda.plans import plan_of

H200 = profile_named("NVIDIA H200")


@pytest.mark.parametrize(
    ("problem", "knobs", "cluster", "blocks", "pdl", "together", "most"),
    [
        (Gemm.parse("4096x4096x4096"), {"tile_n": 128}, 1, 132, 0, 0, "1024"),
        (Gemm.of(1024, 1024, 1024), {"tile_n": 128, "pdl": 1}, 1, 64, 1, 0, "64"),
        # All blocks wait for one another, so none may start before the kernel before has ended.
        (Gemm.parse("4096x4096x4096"),
         {"tile_n": 128, "stream_k": 1, "schedule": "pingpong", "epilogue": "direct", "pdl": 1}, 1, 132, 0, 1, ""),
        # A cluster along K takes a single tile: it can't walk over several.
        (Gemm.of(64, 28672, 4096), {"tile_m": 128, "tile_n": 64, "cluster_k": 4, "epilogue": "direct"}, 4, 4 * 448, 0,
         0, ""),
    ],
)  # fmt: skip
def test_a_pass_has_its_blocks_and_attributes(
    problem: Gemm, knobs: dict[str, object], cluster: int, blocks: int, pdl: int, together: int, most: str
) -> None:
    owner = family_named("sm90_wgmma")
    config = owner.config(knobs)
    assert explain(owner, problem, config).broken == ()
    lines = [line.split() for line in plan_of(problem, config, "0" * 64, H200).splitlines()]
    (pass_,) = (fields for word, *fields in lines if word == "pass")
    derived = owner.derive(problem, config, H200)
    assert pass_ == list(map(str, ("gemm", derived["threads"], derived["shared_memory_bytes"], cluster, blocks, pdl,
                                   together)))  # fmt: skip
    assert [fields for word, *fields in lines if word == "most"] == [[most]] * bool(most)


def test_boxes_are_what_one_copy_takes_of_a_tile() -> None:
    """Blocks of a cluster load a part each of what they share, and each warpgroup stores its own rows of C."""
    owner, problem = family_named("sm90_wgmma"), Gemm.of(4096, 8192, 512)
    config = owner.config({"tile_m": 128, "tile_n": 256, "cluster_m": 4, "cluster_n": 2, "stages": 3})
    assert explain(owner, problem, config).broken == ()
    lines = [line.split() for line in plan_of(problem, config, "0" * 64, H200).splitlines()]
    boxes = {fields[0]: list(map(int, fields[3:])) for word, *fields in lines if word == "map"}
    assert boxes == {
        "a": [2, 512, 4096, 1, 1024, 1024 * 4096, 64, 128 // 2, 128, 256],
        "b": [2, 512, 8192, 1, 1024, 1024 * 8192, 64, 256 // 4, 128, 256],
        "c": [2, 8192, 4096, 1, 16_384, 16_384 * 4096, 64, 128 // 2, 128, 256],
    }
