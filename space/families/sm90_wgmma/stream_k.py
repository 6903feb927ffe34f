"""Stream-K: how the tiles of a last wave that is not full are shared out over all clusters.

Each of these tiles has an owner, a cluster that multiplies the first stages of its K. The clusters that have none of
them are helpers: the stages that owners leave, of one tile after another, are cut into a piece for each.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from space.columns import IntColumn

#: Stages of the ring in whose time a helper leaves its sums of a shared tile. 0 to 9 differ by less than they scatter.
LEAVING_STAGES: Final = 2
#: Helpers of a shared tile, rounded: its owner reads what each of them brings.
MOST_HELPERS: Final = 3


class Sharing(NamedTuple):
    """Of each candidate: clusters that own a shared tile, clusters that help, and the stages that an owner keeps.

    Nothing is shared where owners are 0.
    """

    owners: IntColumn
    helpers: IntColumn
    kept: IntColumn


def sharing(tiles: IntColumn, clusters: IntColumn, k_stages: IntColumn) -> Sharing:
    """Owners and helpers have as much to do, counting what leaving sums takes.

    A single wave is not shared, as helpers would not be ready when owners are.

    Args:
        tiles: cluster tiles of all products.
        clusters: that run at once.
        k_stages: of a whole tile.
    """
    owners = tiles % clusters
    helpers = np.minimum(clusters - owners, MOST_HELPERS * owners)
    kept = -(-owners * (k_stages + LEAVING_STAGES) // np.maximum(owners + helpers, 1))
    shares = (tiles >= clusters) & (owners > 0) & (kept < k_stages)
    return Sharing(np.where(shares, owners, 0), np.where(shares, helpers, 0), np.where(shares, kept, k_stages))
