"""How well an attack does: one number a user, and its uncertainty by a bootstrap over users.

Scores are compared within a user: an adversary asks which of *these* listed items are real. Ties
count half, so that an attack that knows nothing is at 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, integers

RESAMPLES: Final = 1000
FALSE_POSITIVES: Final = 0.001


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The mean over users, and where 95 % of the resampled means are."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, per_user: Float64) -> Measured | None:
        """None where no user has a value: those that cannot be asked are NaN."""
        known = per_user[~np.isnan(per_user)]
        if not len(known):
            return None
        means = [float(known[chosen].mean()) for chosen in _resamples(len(known))]
        low, high = np.quantile(means, (0.025, 0.975))
        return cls(value=float(known.mean()), low=float(low), high=float(high))


@lru_cache(maxsize=2)
def _resamples(size: int) -> npt.NDArray[np.int32]:
    """Users of each resample, a row each; kept, for all attacks on the same users have the same."""
    rows = [
        integers(0, Purpose.BOOTSTRAP, np.arange(size), size, number).astype(np.int32)
        for number in range(RESAMPLES)
    ]
    return np.stack(rows)


@dataclass(frozen=True, eq=False)
class Guess:
    """For some users the candidates, a score each, and the truth."""

    candidates: Ragged
    scores: Float64
    real: Bits

    def only(self, users: Int64) -> Guess:
        """Of some of the users."""
        entries = Ragged(self.candidates.offsets, np.arange(len(self.scores))).only(users)
        chosen = Ragged(entries.offsets, self.candidates.values[entries.values])
        return Guess(chosen, self.scores[entries.values], self.real[entries.values])


def user_auc(guess: Guess) -> Float64:
    """P(score of a real item > score of another of the same user), by Mann and Whitney; NaN for a
    user all or none of whose candidates are real."""
    rows, lengths = guess.candidates.rows, guess.candidates.lengths
    order = np.lexsort((guess.scores, rows))
    ranks = np.empty(len(order))
    scores = guess.scores[order]
    first = np.flatnonzero(np.r_[True, (np.diff(scores) != 0) | (np.diff(rows[order]) != 0)])
    last = np.append(first[1:], len(order))
    middle = (first + last - 1) / 2 if len(order) else first.astype(float)
    ranks[order] = np.repeat(middle, last - first) - guess.candidates.offsets[rows[order]]
    n_real = np.bincount(rows, guess.real, len(lengths))
    n_other = lengths - n_real
    total = np.bincount(rows, np.where(guess.real, ranks, 0.0), len(lengths))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (total - n_real * (n_real - 1) / 2) / (n_real * n_other)


def user_f1(guess: Guess) -> Float64:
    """F1 of calling the |I_u| best candidates real: then precision and recall are the same."""
    rows = guess.candidates.rows
    n_real = np.bincount(rows, guess.real, len(guess.candidates))
    order = np.lexsort((-guess.scores, rows))
    called = np.empty(len(order), dtype=np.bool_)
    called[order] = guess.candidates.ranks < n_real[rows]
    hits = np.bincount(rows, called & guess.real, len(n_real))
    with np.errstate(invalid="ignore", divide="ignore"):
        return hits / n_real


def caught(guess: Guess) -> Float64:
    """TPR at a false-positive rate of 0.1 %, over all pairs (Carlini et al. 2022): for each user
    the share of its real items above the one threshold."""
    others = guess.scores[~guess.real]
    rows = guess.candidates.rows
    n_real = np.bincount(rows, guess.real, len(guess.candidates))
    allowed = int(FALSE_POSITIVES * len(others))
    threshold = np.sort(others)[::-1][allowed] if len(others) else -np.inf
    hits = np.bincount(rows, guess.real & (guess.scores > threshold), len(n_real))
    with np.errstate(invalid="ignore", divide="ignore"):
        return hits / n_real
