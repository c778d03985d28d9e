# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""The ranking compiled by numba: for tables.

No table of scores is ever made. A thread takes some tens of users and goes through the items panel
by panel: products of a few users with a panel, then a look at who is not more than δ_u below the
k-th best score so far. Only these are scored definitively; the best k are a heap with the worst on
top. All that a thread works on fits its own cache, and it waits without spinning, which the threads
of a BLAS do not.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lpgcn.array_types import Float64, Int64
from lpgcn.model.kernels import Floats
from lpgcn.model.kernels.products import STRIP, TILE, multiply
from lpgcn.model.kernels.threads import Threads
from lpgcn.ragged import Ragged

STRIPS = 16
"""How many of them make a panel."""

PANEL = STRIPS * STRIP

USERS_A_PART = 20 * TILE
"""A panel comes from the memory once for so many users."""


class CompiledRanker:
    """See `Ranker`. It copies all items into panels first: `PlainRanker` is faster for one user."""

    def __init__(self, threads: Threads | None = None) -> None:
        self._threads = threads or Threads()

    def rank(
        self, user_vectors: Floats, item_vectors: Floats, masked: Ragged, apart: Float64, k: int
    ) -> tuple[Int64, Float64]:
        n_users = len(user_vectors)
        top = np.full((n_users, k), -1, dtype=np.int64)
        scores = np.full((n_users, k), -np.inf)
        users = np.pad(user_vectors, ((0, -n_users % TILE), (0, 0)))
        panels, rising = _panels(item_vectors), _rising(masked)
        # Long vectors first, which have the extreme scores: were every panel better than the last,
        # as when items are numbered by rising popularity, all items would be scored twice.
        order = np.argsort(-np.einsum("pscj,pscj->p", panels, panels), kind="stable")
        offsets, values = rising.offsets, rising.values
        self._threads.each(
            lambda first, last: _rank(
                first, last, users, item_vectors, panels, order, offsets, values, apart, top, scores
            ),
            self._bounds(n_users),
        )
        return top, scores

    def best(self, scores: Floats, masked: Ragged, k: int) -> tuple[Int64, Float64]:
        top = np.full((len(scores), k), -1, dtype=np.int64)
        best = np.full((len(scores), k), -np.inf)
        self._threads.each(
            lambda first, last: _best(
                first, last, scores, masked.offsets, masked.values, top, best
            ),
            self._threads.even_bounds(len(scores), 1),
        )
        return top, best

    def _bounds(self, n_users: int) -> list[int]:
        """Parts of whole tiles, small enough that every thread gets one."""
        tiles = -(-n_users // (TILE * self._threads.count))
        step = min(USERS_A_PART, max(1, tiles) * TILE)
        return [*range(0, n_users, step), n_users]


def _panels(item_vectors: Floats) -> Floats:
    """panels[p, s, c, j] is column c of item p·PANEL + s·STRIP + j; missing items are 0."""
    n, d = item_vectors.shape
    padded = np.pad(item_vectors, ((0, -n % PANEL), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, STRIPS, STRIP, d).swapaxes(2, 3))


def _rising(masked: Ragged) -> Ragged:
    """The same rows, the items of each ascending."""
    falls = np.flatnonzero(masked.values[1:] < masked.values[:-1]) + 1
    begins = np.zeros(len(masked.values) + 1, dtype=np.bool_)
    begins[masked.offsets] = True
    if begins[falls].all():
        return masked
    return Ragged.from_pairs(masked.rows, masked.values, len(masked))


@njit(nogil=True, cache=True)
def _rank(first, last, users, items, panels, order, offsets, masked, apart, top, scores):
    """Fill `top` and `scores`, which hold -1 and -inf, for the users from first to last."""
    # Not -inf, which masked items have.
    least = np.full(last - first, np.finfo(users.dtype).min, users.dtype)
    products = np.empty((STRIPS, TILE, STRIP), users.dtype)
    for p in order:
        start, stop = p * PANEL, (p + 1) * PANEL
        for u in range(first, last, TILE):
            for s in range(STRIPS):
                multiply(users[u : u + TILE], panels[p, s], products[s])
            for r in range(min(TILE, last - u)):
                user, row = u + r, u + r - first
                for j in range(len(items), stop):
                    products[(j - start) // STRIP, r, j % STRIP] = -np.inf
                own = masked[offsets[user] : offsets[user + 1]]
                for j in own[np.searchsorted(own, start) :]:
                    if j >= stop:
                        break
                    products[(j - start) // STRIP, r, j % STRIP] = -np.inf
                for s in range(STRIPS):
                    if _largest(products[s, r]) >= least[row]:
                        least[row] = _admit(
                            products[s, r],
                            start + s * STRIP,
                            users[user],
                            items,
                            apart[user],
                            least[row],
                            top[user],
                            scores[user],
                        )
    for user in range(first, last):
        sort_best(top[user], scores[user])


@njit(nogil=True, cache=True)
def _best(first, last, scores, offsets, masked, top, best):
    """Fill `top` and `best`, which hold -1 and -inf, for the rows from first to last."""
    for row in range(first, last):
        for j in masked[offsets[row] : offsets[row + 1]]:
            scores[row, j] = -np.inf
        for j in range(scores.shape[1]):
            # Of equal ones the first stays.
            if scores[row, j] > best[row, 0]:
                replace_worst(top[row], best[row], top.shape[1], j, scores[row, j])
        sort_best(top[row], best[row])


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(products):
    largest = products[0]
    for j in range(1, STRIP):
        largest = max(largest, products[j])
    return largest


@njit(nogil=True, cache=True)
def _admit(products, start, user, items, apart, least, top, scores):
    """Let items from `start` into the heap of a user; returns the least product worth a look."""
    for j in range(STRIP):
        if products[j] >= least:
            score = _dot(user, items[start + j])
            if score > scores[0] or (score == scores[0] and start + j < top[0]):
                replace_worst(top, scores, len(top), start + j, score)
                if scores[0] > -np.inf:
                    least = products.dtype.type(scores[0] - apart)
    return least


@njit(nogil=True, cache=True)
def _dot(user, item):
    """The definitive score, as `Kernels.dots` has it."""
    total = np.float64(user[0]) * np.float64(item[0])
    for c in range(1, len(item)):
        total += np.float64(user[c]) * np.float64(item[c])
    return total


@njit(nogil=True, cache=True)
def replace_worst(top, scores, size, item, score):
    """Put an item in the place of the top of the heap that the first `size` places are."""
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size:
            a, b = scores[child + 1], scores[child]
            child += (a < b) | ((a == b) & (top[child + 1] > top[child]))
        worse = (scores[child] < score) | ((scores[child] == score) & (top[child] > item))
        if not worse:
            break
        top[place], scores[place] = top[child], scores[child]
        place = child
    top[place], scores[place] = item, score


@njit(nogil=True, cache=True)
def sort_best(top, scores):
    """Best first: the worst of the heap goes to its end, again and again."""
    for last in range(len(top) - 1, 0, -1):
        item, score = top[last], scores[last]
        top[last], scores[last] = top[0], scores[0]
        replace_worst(top, scores, last, item, score)
