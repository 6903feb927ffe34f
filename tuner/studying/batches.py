"""Batches: how many candidates are proposed before the next results are waited for."""

from __future__ import annotations

from typing import Final

#: (measured so far, size of the next batch): small while each result still changes what comes next, then large
#: enough to keep the compilers ahead of the device.
_SIZES: Final = ((16, 4), (64, 8))
LARGEST: Final = 16


def batch_size(tried: int) -> int:
    """How many to propose next."""
    return next((size for below, size in _SIZES if tried < below), LARGEST)
