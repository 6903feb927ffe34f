"""Finals: which candidates are measured more closely.

The worker's screening times the slow ones less: a candidate whose first launch is far behind the best gets two replays,
the others five (`workers.cuda.timing`). The interleaved finals take the candidates that screening could not tell apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

#: A candidate that is behind the best by this many times the usual scatter may still be the fastest.
DOUBTFUL: Final = 1.0


def contenders(ahead: Sequence[tuple[float, float]], least: int, most: int) -> int:
    """How many of the candidates ahead go to the finals.

    Args:
        ahead: (median time, scatter as a share of it) of each correct candidate, fastest first.
        least, most: bounds of the answer, where there are that many candidates.
    """
    if not ahead:
        return 0
    scatter = statistics.median(noise for _, noise in ahead[:most])
    reach = ahead[0][0] * (1 + DOUBTFUL * scatter)
    close = sum(time_us <= reach for time_us, _ in ahead)
    return min(max(close, least), most, len(ahead))
