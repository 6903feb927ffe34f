"""What `nvidia-smi` says becomes one share."""

from __future__ import annotations

import pytest

from benchmarks.gpu_use import mean_share


def test_the_share_is_the_mean_over_the_gpus_that_are_used() -> None:
    assert mean_share("0, 80\n1, 40\n2, 100\n0, 100\n1, 60\n2, 100\n", 2) == pytest.approx(0.7)


@pytest.mark.parametrize("said", ["", "0, [N/A]\n", "No devices were found\n"])
def test_no_share_without_numbers(said: str) -> None:
    assert mean_share(said, 2) is None
