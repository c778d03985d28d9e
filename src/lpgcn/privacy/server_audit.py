"""The server alone: the token graph, popularity, and what a suite leaves in the clear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.data import Interactions
from lpgcn.model.sampling import contains, listing_keys
from lpgcn.privacy.attacks import final_vectors, membership, token_graph, wishes
from lpgcn.privacy.attacks.popularity_matching import named, share_named
from lpgcn.privacy.measures import Guess, Measured
from lpgcn.privacy.table import Finding, line_of
from lpgcn.privacy.views import View
from lpgcn.protocol.suite import Kind
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, permutation

NAME: Final = "server"
BITS: Final = "real or virtual"
LABELLED: Final = 0.1
"""The share of users whose real items the combination is trained on."""


def some_users(n_users: int, share: float) -> Int64:
    """At random, at least one, rising."""
    count = max(1, round(share * n_users))
    return np.sort(permutation(0, Purpose.AUDIT, n_users)[:count])


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
    scores: dict[str, Float64],
) -> Iterator[Finding]:
    """Real or virtual by the five scores and their combination, over users without a label; without
    virtual items there is nothing to tell apart."""
    truth = is_real(lists, real, n_items)
    if truth.all():
        yield Finding(
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


def by_popularity(
    lists: Ragged, real: Ragged, truth: Int64, train: Interactions
) -> Iterator[Finding]:
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
        yield Finding(
            adversary=NAME, attack=f"matching by {name}", about="names of tokens",
            users=len(members), named=Measured.of(right),
        )  # fmt: skip


def clear_rows(view: View) -> Iterator[Finding]:
    """Every kind of row that can be read at all: in suite `sealed` there is none, and a suite that
    forgets one is found out here whatever attacks make of it."""
    for kind in Kind:
        rows = sum(len(seen.rows) for seen in view.seen(kind))
        if rows:
            yield Finding(
                adversary=view.adversary.name, attack="rows in the clear", about=kind.name,
                users=len(view.topology.listed) if view.topology else 0, note=f"{rows:,} read",
            )  # fmt: skip


def from_clear_rows(
    view: View,
    lists: Ragged,
    real: Ragged,
    popularity: Int64,
    solved: Float64 | None,
) -> Iterator[Finding]:
    """Wishes that can be read, bits that were solved for, and what final vectors say."""
    yield from clear_rows(view)
    name, found = view.adversary.name, wishes.read(view)
    if len(found):
        right = contains(listing_keys(real, view.n_items), found[:, 0] * view.n_items + found[:, 1])
        each = np.bincount(found[right, 0], minlength=len(real)) / np.maximum(real.lengths, 1)
        yield Finding(
            adversary=name, attack="wishes", about="interactions, by place",
            users=len(real), named=Measured.of(each),
            note=f"{len(found):,} read, {int((~right).sum())} of them wrong",
        )  # fmt: skip
    finals = final_vectors.latest(view)
    truth = is_real(lists, real, view.n_items)
    if not truth.all():
        if solved is not None:
            guess = Guess(lists, solved, truth)
            yield line_of(name, "linear system for the bits", BITS, guess, popularity)
        if finals is not None:
            guess = Guess(lists, final_vectors.likeness(lists, finals), truth)
            yield line_of(name, "likeness of final vectors", BITS, guess, popularity)
    users, vectors = membership.latest_users(view)
    if len(users) and finals is not None:
        guess = membership.against_alike(users, vectors, np.nan_to_num(finals), real, popularity)
        yield line_of(name, "membership by score", "training pairs", guess, popularity)
