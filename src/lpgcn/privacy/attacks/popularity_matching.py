"""Names for tokens, by rank: the server, or anybody with the degrees of tokens.

The t-th most listed token is called the t-th most popular item of a public table of popularity:
exact (the training degrees themselves), or counted in a sample of other people.

    name(rank_t(d)) = item(rank_t(p)),  d the degrees of tokens, p the public popularity

Must succeed with α = 0, an exact table and degrees that are all different. On a table without
information it names one interaction in n_items right.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Float64, Int64
from lpgcn.ragged import Ragged


def named(degrees: Int64, popularity: npt.NDArray[np.number]) -> Int64:
    """For each token the item that it is called. Ties are in the order of the numbers, which says
    nothing: places are at random."""
    names = np.empty(len(degrees), dtype=np.int64)
    names[np.argsort(-degrees, kind="stable")] = np.argsort(-popularity, kind="stable")
    return names


def share_named(names: Int64, truth: Int64, real: Ragged) -> Float64:
    """For each user the share of its interactions whose token has its right name; `truth` is the
    item of each token, `real` has the users' tokens."""
    right = (names == truth)[real.values]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.bincount(real.rows, right, len(real)) / real.lengths
