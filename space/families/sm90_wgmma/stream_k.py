"""Stream-K: how all clusters share the tiles of a partial last wave.

Each of these tiles has an owner, a cluster that multiplies the first stages of its K. Clusters without a tile are
peers: the stages that the owners leave, one tile after another, are cut into one piece per peer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from space.columns import IntColumn

#: Time in which a peer stores its partial sums, in pipeline stages. Values from 0 to 9 differ by less than the noise.
LEAVING_STAGES: Final = 2
#: Peers per owner at most, on average: the owner reads the partial sums of each.
MAX_PEERS: Final = 3


class Sharing(NamedTuple):
    """How each candidate shares its last wave; nothing is shared where `owners` is 0.

    Attributes:
        owners: clusters that own a shared tile.
        peers: clusters that multiply what the owners leave.
        kept: stages that each owner multiplies itself.
    """

    owners: IntColumn
    peers: IntColumn
    kept: IntColumn


def sharing(tiles: IntColumn, clusters: IntColumn, k_stages: IntColumn) -> Sharing:
    """Balances owners and peers, counting the time in which peers store their sums.

    A single wave is not shared: its peers would not be ready when the owners are.

    Args:
        tiles: cluster tiles of all products.
        clusters: clusters that run at once.
        k_stages: pipeline stages of a whole tile.
    """
    owners = tiles % clusters
    peers = np.minimum(clusters - owners, MAX_PEERS * owners)
    kept = -(-owners * (k_stages + LEAVING_STAGES) // np.maximum(owners + peers, 1))
    shares = (tiles >= clusters) & (owners > 0) & (kept < k_stages)
    return Sharing(np.where(shares, owners, 0), np.where(shares, peers, 0), np.where(shares, kept, k_stages))
