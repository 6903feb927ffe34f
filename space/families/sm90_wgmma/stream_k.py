"""Stream-K: how all clusters share the tiles of a partial last wave.

Each of these tiles has an owner, a cluster that multiplies the first stages of its K. Clusters without a tile are
helpers: the stages that the owners leave, one tile after another, are cut into one piece per helper.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from space.columns import IntColumn

#: Time in which a helper stores its partial sums, in pipeline stages. Values from 0 to 9 differ by less than the noise.
LEAVING_STAGES: Final = 2
#: Helpers per owner at most, on average: the owner reads the partial sums of each.
MAX_HELPERS: Final = 3


class Sharing(NamedTuple):
    """How each candidate shares its last wave; nothing is shared where `owners` is 0.

    Attributes:
        owners: clusters that own a shared tile.
        helpers: clusters that multiply what the owners leave.
        kept: stages that each owner multiplies itself.
    """

    owners: IntColumn
    helpers: IntColumn
    kept: IntColumn


def sharing(tiles: IntColumn, clusters: IntColumn, k_stages: IntColumn) -> Sharing:
    """Balances owners and helpers, counting the time in which helpers store their sums.

    A single wave is not shared: its helpers would not be ready when the owners are.

    Args:
        tiles: cluster tiles of all products.
        clusters: clusters that run at once.
        k_stages: pipeline stages of a whole tile.
    """
    owners = tiles % clusters
    helpers = np.minimum(clusters - owners, MAX_HELPERS * owners)
    kept = -(-owners * (k_stages + LEAVING_STAGES) // np.maximum(owners + helpers, 1))
    shares = (tiles >= clusters) & (owners > 0) & (kept < k_stages)
    return Sharing(np.where(shares, owners, 0), np.where(shares, helpers, 0), np.where(shares, kept, k_stages))
