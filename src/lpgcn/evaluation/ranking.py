"""The best k items of every user, over all items, in one order that everybody gets.

The score of item i for user u is y_ui = e_u · e_i. Its bits must not depend on who computes it: a
client ranks alone on its device what a data centre ranks among all users. The bits of a matrix
product do depend on its shape; those of `(e_u * e_i).sum(-1)` do not. So the product only proposes
candidates, a few more than k, which are scored again row by row and ordered by (score descending,
item ascending). A bound on the rounding error of both tells for which users the proposal might
have left out a better item; for them the product proposes more. The result is therefore exactly
the order of the row-wise scores of all items.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.evaluation.errors import EvaluationError

Int64 = npt.NDArray[np.int64]

CANDIDATE_MARGIN: Final = 8
"""How many candidates beyond k are scored again; more makes the second look rarer."""
BLOCK: Final = 32
"""Items per block: the k best items lie in the k blocks with the best maxima, which is far less to
sort. It also aligns the rows of the score buffer, which nearly doubles the speed of the product."""
SCORE_BUFFER_BYTES: Final = 1 << 27


def row_scores(user_vectors: Tensor, item_vectors: Tensor, items: Tensor) -> Tensor:
    """y_ui for (n, d) users and (n, m) items: the same bits for a user alone or among all."""
    gathered = item_vectors.index_select(0, items.reshape(-1)).view(*items.shape, -1)
    gathered *= user_vectors[:, None, :]
    return gathered.view(-1, user_vectors.shape[1]).sum(-1).view(items.shape)


def top_items(
    user_vectors: Tensor,
    item_vectors: Tensor,
    masked_offsets: Int64,
    masked_items: Int64,
    k: int,
) -> tuple[Tensor, Tensor]:
    """The k best unmasked items of every user and their scores, both (n, k), best first.

    Row u's masked items are `masked_items[masked_offsets[u]:masked_offsets[u + 1]]`. Where fewer
    than k items remain, the rest is item -1 with score -inf. Scores are computed in chunks of users
    in one buffer of `SCORE_BUFFER_BYTES` (or one user's row, if that is larger).
    """
    n_users, n_items = len(user_vectors), len(item_vectors)
    _check(n_users, n_items, masked_offsets, masked_items, k)
    tolerance = _disagreement(user_vectors, item_vectors)
    width = -(-n_items // BLOCK) * BLOCK
    chunk = min(n_users, max(1, SCORE_BUFFER_BYTES // (width * user_vectors.element_size())))
    buffer = user_vectors.new_full((chunk, width), -torch.inf)
    top = torch.full((n_users, k), -1)
    top_scores = user_vectors.new_full((n_users, k), -torch.inf)
    found = min(k, n_items)
    for start in range(0, n_users, max(1, chunk)):
        rows = slice(start, min(start + chunk, n_users))
        scores = buffer[: rows.stop - start]
        torch.mm(user_vectors[rows], item_vectors.T, out=scores[:, :n_items])
        _mask(scores, masked_offsets[start : rows.stop + 1], masked_items)
        top[rows, :found], top_scores[rows, :found] = _rank(
            scores, user_vectors[rows], item_vectors, tolerance[rows], found
        )
    return top, top_scores


def _check(n_users: int, n_items: int, offsets: Int64, items: Int64, k: int) -> None:
    if k < 1 or n_items < 1:
        raise EvaluationError(f"cannot rank the best {k} of {n_items} items: both must be positive")
    if len(offsets) != n_users + 1:
        raise EvaluationError(
            f"found {len(offsets)} offsets of masked items for {n_users} users, "
            f"expected {n_users + 1}: pass the masked items of exactly the users that are ranked"
        )
    if len(items) and not (items.min() >= 0 and items.max() < n_items):
        raise EvaluationError(
            f"found masked items from {items.min()} to {items.max()}, expected 0 to {n_items - 1}: "
            "the vectors and the interactions belong to different data sets"
        )


def _disagreement(user_vectors: Tensor, item_vectors: Tensor) -> Tensor:
    """How far, per user, a score by matrix product and one by row can be apart.

    Any order of summation is within γ_d ‖e_u‖‖e_i‖ of the exact dot product, γ_d = dε / (1 - dε)
    with ε half the machine epsilon (Higham, "Accuracy and Stability", §3.1). Two of them are within
    twice that; another factor 2 covers the rounding of this bound itself.
    """
    d, machine = user_vectors.shape[1], torch.finfo(user_vectors.dtype)
    user_norms = torch.linalg.vector_norm(user_vectors, dim=1)
    item_norms = torch.linalg.vector_norm(item_vectors, dim=1)
    bound: Tensor = 2 * d * machine.eps * user_norms * item_norms.max()
    if not bound.isfinite().all():
        raise EvaluationError(
            "found vectors that are not finite (or overflow when multiplied), so items cannot be "
            "ranked: the training diverged; lower the learning rate"
        )
    return bound + d * machine.tiny


def _mask(scores: Tensor, offsets: Int64, items: Int64) -> None:
    n_rows, width = scores.shape
    row_starts = np.repeat(np.arange(n_rows) * width, np.diff(offsets))
    cells = torch.from_numpy(row_starts + items[offsets[0] : offsets[-1]])
    scores.view(-1).index_fill_(0, cells, -torch.inf)


def _rank(
    scores: Tensor, user_vectors: Tensor, item_vectors: Tensor, tolerance: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k best items by row-wise score among those whose product score in `scores` is finite."""
    candidates, proposed = _candidates(scores, k + CANDIDATE_MARGIN)
    candidates, order = candidates.sort(dim=1)
    masked = proposed.gather(1, order).isneginf()
    exact = row_scores(user_vectors, item_vectors, candidates.where(~masked, 0))
    top_scores, order = exact.masked_fill_(masked, -torch.inf).sort(
        dim=1, descending=True, stable=True
    )
    top = candidates.masked_fill_(masked, -1).gather(1, order)[:, :k]
    top_scores = top_scores[:, :k]
    # An unmasked item outside the candidates scores at most `worst` by product; there is none if
    # a masked one came in.
    worst = proposed.amin(1)
    threshold = top_scores[:, -1] - tolerance
    for row in (~worst.isneginf() & (worst >= threshold)).nonzero()[:, 0].tolist():
        items = (scores[row] >= threshold[row]).nonzero().view(1, -1)
        exact = row_scores(user_vectors[row : row + 1], item_vectors, items)
        ordered, order = exact.sort(dim=1, descending=True, stable=True)
        top[row], top_scores[row] = items.gather(1, order)[0, :k], ordered[0, :k]
    return top, top_scores


def _candidates(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best columns of every row (all, if there are fewer) and their scores."""
    n_rows, n_blocks = len(scores), scores.shape[1] // BLOCK
    blocks = scores.view(-1, BLOCK)
    best = blocks.amax(1).view(n_rows, n_blocks).topk(min(count, n_blocks), sorted=False).indices
    row_starts = torch.arange(n_rows)[:, None] * n_blocks
    among = blocks.index_select(0, (row_starts + best).view(-1)).view(n_rows, -1)
    proposed, position = among.topk(min(count, among.shape[1]), sorted=False)
    return best.gather(1, position // BLOCK) * BLOCK + position % BLOCK, proposed
