"""Rungs: who is measured more closely. Each rung costs more a candidate and takes fewer of them.

The first two are the worker's: a candidate whose first launch is far behind the best of the round gets two
replays, the others five (`workers.cuda.timing`). The last one is the interleaved finals; who climbs it is decided
here, by whether screening could tell.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

#: A candidate this many times the usual scatter behind the best may still be the fastest.
DOUBTFUL: Final = 1.0


def contenders(ahead: Sequence[tuple[float, float]], least: int, most: int) -> int:
    """How many of the candidates ahead go to the finals.

    Args:
        ahead: (median time, scatter as a share of it) of each correct candidate, fastest first.
        least, most: never fewer, as far as there are; never more.
    """
    if not ahead:
        return 0
    scatter = statistics.median(noise for _, noise in ahead[:most])
    reach = ahead[0][0] * (1 + DOUBTFUL * scatter)
    close = sum(time_us <= reach for time_us, _ in ahead)
    return min(max(close, least), most, len(ahead))
