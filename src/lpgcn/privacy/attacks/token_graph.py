"""Real or virtual, from nothing but who lists which token: the server alone.

With A the graph of users and tokens, L_u a list, U_t who lists t, d_t = |U_t| and c_st the number
of others who list both s and t (u itself left out):

    degree   d_t
    cosine   mean over s ∈ L_u of c_st / √(d_s d_t)
    lift     mean over s ∈ L_u of n·c_st / (d_s d_t)
    svd      (U_k Σ_k V_kᵀ)_ut / R_ut,  R = D_u^-½ A D_t^-½: how much of an entry the k strongest
             directions of the whole graph explain
    pu       positive-unlabelled: a classifier of what u lists against what it does not list

and `combined`, a logistic regression on the ranks of all five within each list, and on their
squares and products (real items may be neither the most nor the least popular), trained on a few
users whose real items the adversary happens to know (itself, colluding clients, public profiles).

Must succeed where virtual items are drawn uniformly, for real items are popular and go together;
must be at chance where real and virtual items are exchanged at random within each list.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.privacy.logistic import fitted
from lpgcn.privacy.products import product, shared_weight
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, integers, uniform

RANK: Final = 32
_ITERATIONS: Final = 4
_MORE: Final = 8
"""Columns that are iterated besides, and left out in the end."""
_SEED: Final = 12
_UNLISTED: Final = 2
"""Tokens outside of the list for each one in it."""


def degree(lists: Ragged, n_tokens: int) -> Float64:
    return np.bincount(lists.values, minlength=n_tokens).astype(np.float64)[lists.values]


def cosine(lists: Ragged, n_tokens: int, at: Ragged | None = None) -> Float64:
    return _together(lists, n_tokens, lists if at is None else at, 0.5)


def lift(lists: Ragged, n_tokens: int, at: Ragged | None = None) -> Float64:
    return len(lists) * _together(lists, n_tokens, lists if at is None else at, 1.0)


def _together(lists: Ragged, n_tokens: int, at: Ragged, power: float) -> Float64:
    """Mean over s ∈ L_u of c_st·(d_s d_t)^-power."""
    degrees = np.maximum(np.bincount(lists.values, minlength=n_tokens), 1).astype(np.float64)
    weight = degrees**-power
    shared = shared_weight(lists, lists.transposed(n_tokens), weight, at)
    others = np.maximum(lists.lengths - (at is lists), 1)
    return shared * weight[at.values] / others[at.rows]


def svd(lists: Ragged, n_tokens: int, rank: int = RANK) -> Float64:
    """By subspace iteration (Halko, Martinsson and Tropp 2011)."""
    by_token = lists.transposed(n_tokens)
    wide = min(rank + _MORE, len(lists), n_tokens)
    user, token = (np.maximum(one.lengths, 1) ** -0.5 for one in (lists, by_token))
    drawn = uniform(_SEED, Purpose.AUDIT, np.arange(n_tokens), count=wide) - 0.5
    basis, _ = np.linalg.qr(drawn)
    for _ in range(_ITERATIONS):
        left, _ = np.linalg.qr(user[:, None] * product(lists, basis, token))
        basis, _ = np.linalg.qr(token[:, None] * product(by_token, left, user))
    left = user[:, None] * product(lists, basis, token)
    strongest = np.linalg.svd(left, full_matrices=False)[2][:rank].T
    left, basis = left @ strongest, basis @ strongest
    explained = np.empty(len(lists.values))
    step = 1 << 16
    for first in range(0, len(explained), step):
        part = slice(first, first + step)
        rows, values = lists.rows[part], lists.values[part]
        found = np.einsum("ij,ij->i", left[rows], basis[values])
        explained[part] = found / (user[rows] * token[values])
    return explained


def positive_unlabelled(lists: Ragged, n_tokens: int) -> Float64:
    """What is like what u lists, and unlike what it does not. Virtual items are like the latter."""
    unlisted = _unlisted(lists, n_tokens)
    listed = np.log1p(_features(lists, n_tokens, lists))
    others = np.log1p(_features(lists, n_tokens, unlisted))
    both = np.concatenate((listed, others))
    is_listed = np.arange(len(both)) < len(listed)
    return fitted(both, is_listed)(listed)


def _features(lists: Ragged, n_tokens: int, at: Ragged) -> Float64:
    degrees = np.bincount(lists.values, minlength=n_tokens).astype(np.float64)
    return np.column_stack(
        # Whoever lists a token counts in its degree; what is asked is how many others do.
        (degrees[at.values] - (at is lists), cosine(lists, n_tokens, at), lift(lists, n_tokens, at))
    )


def _unlisted(lists: Ragged, n_tokens: int) -> Ragged:
    """Some tokens for each user; the few that it lists after all do not matter."""
    lengths = _UNLISTED * lists.lengths
    drawn = integers(_SEED, Purpose.AUDIT, np.arange(int(lengths.sum())), n_tokens, 1)
    return Ragged.from_lengths(lengths, drawn)


SCORES: Final = {
    "degree": degree,
    "cosine": cosine,
    "lift": lift,
    "svd": svd,
    "pu": positive_unlabelled,
}


def all_scores(lists: Ragged, n_tokens: int) -> dict[str, Float64]:
    return {name: score(lists, n_tokens) for name, score in SCORES.items()}


def combined(lists: Ragged, scores: dict[str, Float64], real: Bits, labelled: Int64) -> Float64:
    """`real` is looked at for the entries of the labelled users only."""
    known = np.isin(lists.rows, labelled)
    table = expanded(lists, scores)
    return fitted(table[known], real[known])(table)


def expanded(lists: Ragged, scores: dict[str, Float64]) -> Float64:
    """Ranks within lists, their squares and products: the features of a combination."""
    ranks = np.column_stack([within_lists(lists, one) for one in scores.values()])
    first, second = np.triu_indices(ranks.shape[1])
    return np.column_stack((ranks, ranks[:, first] * ranks[:, second]))


def within_lists(lists: Ragged, scores: Float64) -> Float64:
    """Ranks within each list, from -1 to 1: what counts is which items of one list are real."""
    order = np.lexsort((scores, lists.rows))
    ranks = np.empty(len(order))
    ranks[order] = lists.ranks
    return 2 * (ranks + 0.5) / np.maximum(lists.lengths, 1)[lists.rows] - 1
