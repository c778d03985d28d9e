"""Interactions, read off: whoever reads what a batch client says about its positives.

A wish is the number of an item among those that a client lists at an owner, and n_ui ≠ 0 says that
it was drawn. Nothing is solved: every pair that is read is an interaction. Must succeed in suite
`paper`, where both are clear; an owner reads them of its own items in any suite.
"""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.privacy.views import View
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.sizes import NO_WISH


def read(view: View) -> Int64:
    """(client, place) of every wish that the server, alone or not, could read: two columns, each
    once."""
    topology = view.topology
    found: set[tuple[int, int]] = set()
    if topology is not None:
        for seen in view.seen(Kind.WISH):
            for pair, row in zip(seen.about.tolist(), seen.rows, strict=True):
                wishes = np.frombuffer(row, dtype="<u4")
                places = topology.entries[pair][wishes[wishes != NO_WISH].astype(np.int64)]
                client = int(topology.pair_client[pair])
                found |= {(client, place) for place in places.tolist()}
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
