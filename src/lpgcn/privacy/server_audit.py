"""The server alone: the token graph, popularity, and what a suite leaves in the clear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.data import Interactions
from lpgcn.model.sampling import contains, listing_keys
from lpgcn.privacy.attacks import linear_bits, token_graph, wishes
from lpgcn.privacy.attacks.popularity_matching import named, share_named
from lpgcn.privacy.measures import Guess, Measured
from lpgcn.privacy.table import Line, line_of
from lpgcn.privacy.views import View
from lpgcn.ragged import Bits, Int64, Ragged
from lpgcn.random import Purpose, permutation

NAME: Final = "server"
BITS: Final = "real or virtual"
LABELLED: Final = 0.1
"""The share of users whose real items the combination is trained on."""


def some_users(n_users: int, share: float, seed: int = 0) -> Int64:
    """At random, at least one, rising."""
    count = max(1, round(share * n_users))
    return np.sort(permutation(seed, Purpose.AUDIT, n_users)[:count])


def rising(lists: Ragged) -> Ragged:
    """The same lists with the places of each in rising order."""
    return Ragged.from_pairs(lists.rows, lists.values, len(lists))


def is_real(lists: Ragged, real: Ragged, n_items: int) -> Bits:
    return contains(listing_keys(real, n_items), listing_keys(lists, n_items))


def from_tokens(
    lists: Ragged,
    real: Ragged,
    n_items: int,
    popularity: npt.NDArray[np.number],
    scores: dict[str, token_graph.Float64],
) -> Iterator[Line]:
    """Real or virtual by the five scores and their combination, over users without a label; without
    virtual items there is nothing to tell apart."""
    truth = is_real(lists, real, n_items)
    if truth.all():
        yield Line(
            adversary=NAME, attack="token graph", about=BITS, users=len(lists),
            note="no virtual items: every listed token is real",
        )  # fmt: skip
        return
    labelled = some_users(len(lists), LABELLED)
    others = np.setdiff1d(np.arange(len(lists)), labelled)
    both = token_graph.combined(lists, scores, truth, labelled)
    for name, score in {**scores, f"combined, {LABELLED:.0%} labelled": both}.items():
        guess = Guess(lists, score, truth).only(others)
        yield line_of(NAME, f"token graph: {name}", BITS, guess, popularity)


def by_popularity(lists: Ragged, real: Ragged, truth: Int64, train: Interactions) -> Iterator[Line]:
    """Names for tokens; `truth` is the item of each. Against half of the users with an exact table
    of all, and with a table that was counted among the other half."""
    half = some_users(train.n_users, 0.5)
    others = np.setdiff1d(np.arange(train.n_users), half)
    sampled = np.bincount(train.by_user.only(others).values, minlength=train.n_items)
    tables = {"exact popularity": (train.item_degrees, np.arange(train.n_users)),
              "popularity among other people": (sampled, half)}  # fmt: skip
    for name, (table, members) in tables.items():
        degrees = np.bincount(lists.only(members).values, minlength=train.n_items)
        right = share_named(named(degrees, table), truth, real.only(members))
        yield Line(
            adversary=NAME, attack=f"matching by {name}", about="names of tokens",
            users=len(members), named=Measured.of(right),
        )  # fmt: skip


def from_clear_rows(
    view: View, lists: Ragged, real: Ragged, popularity: npt.NDArray[np.number]
) -> Iterator[Line]:
    """Wishes that can be read, and bits that can be solved for."""
    found = wishes.read(view)
    if len(found):
        right = contains(listing_keys(real, view.n_items), found[:, 0] * view.n_items + found[:, 1])
        each = np.bincount(found[right, 0], minlength=len(real)) / np.maximum(real.lengths, 1)
        yield Line(
            adversary=view.adversary.name, attack="wishes", about="interactions, by place",
            users=len(real), named=Measured.of(each),
            note=f"{len(found):,} read, {int((~right).sum())} of them wrong",
        )  # fmt: skip
    truth = is_real(lists, real, view.n_items)
    if truth.all():
        return
    solved = linear_bits.scores(view, lists, np.arange(len(lists)))
    if solved is not None:
        guess = Guess(lists, solved, truth)
        yield line_of(view.adversary.name, "linear system for the bits", BITS, guess, popularity)
