"""Item-kNN: what is similar to the items that a user has (Deshpande & Karypis, 2004).

With n_i = |U_i|, v_u the weight of a user and c_ij = Σ_{u ∈ U_i ∩ U_j} v_u,

    S_ij = c_ij / (s_i·s_j + h)        y_ui = Σ_{j ∈ I_u} S_ji over the k nearest items i of each j

    weighting    v_u        s_i
    cosine       1          √n_i
    tf-idf       idf_u²     √c_ii                           idf_u = ln |I| − ln(1 + |I_u|)
    bm25         idf_u²     (a(1 − b + b·n_i/n̄) + 1) / (a + 1)
    count        1          1

These are the weightings of Ben Frederickson's `implicit`, whose neighbours count the item itself:
its K is ours plus one. There is nothing random in it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from msgspec import Meta

from lpgcn.array_types import Float64
from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.evaluation.scorers import SparseSimilarity
from lpgcn.methods.computed import Computed
from lpgcn.methods.method import IN_ONE_GO, Method
from lpgcn.model.kernels.threads import Threads
from lpgcn.ragged import Ragged
from lpgcn.runtime.machine import Machine

_ITEMS_A_PART: Final = 1 << 12


class ItemKnnOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    neighbours: Annotated[int, Meta(ge=1, description="Nearest items k that are kept of each.")] = (
        100
    )
    weighting: Annotated[
        Literal["cosine", "tf-idf", "bm25", "count"],
        Meta(description="How users and items weigh in a similarity."),
    ] = "cosine"
    shrinkage: Annotated[
        float, Meta(ge=0, description="h: pairs of rare items are less similar.")
    ] = 0.0
    bm25_saturation: Annotated[float, Meta(ge=0, description="a of bm25.")] = 100.0
    bm25_length: Annotated[float, Meta(ge=0, le=1, description="b of bm25.")] = 0.8


class ItemKnn(Computed):
    """See `Learner`."""

    def __init__(self, train: Interactions, options: ItemKnnOptions, threads: Threads) -> None:
        self._bounds = [*range(0, train.n_items, _ITEMS_A_PART), train.n_items]
        super().__init__(len(self._bounds) - 1)
        self._train, self._threads, self._shrinkage = train, threads, options.shrinkage
        self._weight, self._scale = weights(train, options)
        self._k = max(1, min(options.neighbours, train.n_items - 1))

    def begin(self) -> None:
        self._near = np.full((self._train.n_items, self._k), -1, dtype=np.int64)
        self._similarity = np.full((self._train.n_items, self._k), -np.inf)

    def part(self, number: int) -> None:
        from lpgcn.methods.co_occurrence import nearest

        users_of, items_of = self._train.by_item, self._train.by_user
        begin, end = self._bounds[number : number + 2]
        self._threads.each(
            lambda first, last: nearest(
                begin + first, begin + last, users_of.offsets, users_of.values, items_of.offsets,
                items_of.values, self._weight, self._scale, self._shrinkage, self._near,
                self._similarity,
            ),
            self._threads.even_bounds(end - begin, 16),
        )  # fmt: skip

    def computed(self) -> SparseSimilarity:
        there = self._near >= 0
        similar = Ragged.from_lengths(there.sum(axis=1), self._near[there])
        return SparseSimilarity(self._train.by_user, similar, self._similarity[there])


def weights(train: Interactions, options: ItemKnnOptions) -> tuple[Float64, Float64]:
    """v_u and s_i; an item that nobody has gets s_i = 1, as it is similar to none."""
    had = train.item_degrees.astype(np.float64)
    weight = np.ones(train.n_users)
    if options.weighting in ("tf-idf", "bm25"):
        weight = (np.log(train.n_items) - np.log1p(train.user_degrees)) ** 2
    scale = np.ones(train.n_items)
    if options.weighting == "bm25":
        a, b = options.bm25_saturation, options.bm25_length
        scale = (a * (1 - b + b * had / had.mean()) + 1) / (a + 1)
    elif options.weighting != "count":
        own = np.bincount(train.by_item.rows, weight[train.by_item.values], train.n_items)
        scale = np.sqrt(np.where(own > 0, own, 1.0))
    return weight, scale


def fit(split: Split, config: Config, options: ItemKnnOptions, machine: Machine) -> ItemKnn:
    return ItemKnn(split.train, options, machine.threads)


ITEM_KNN: Final = Method(
    name="item-knn",
    summary="items similar to those that a user has (Deshpande & Karypis, 2004)",
    fit=fit,
    protects="Nothing: a data centre has all interactions. What it publishes, the neighbours of "
    "every item, shows pairs that few users have in common.",
    options=ItemKnnOptions,
    grid={"neighbours": (20, 50, 100, 200, 400)},
    defaults=IN_ONE_GO,
)
