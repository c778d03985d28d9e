"""One line of the audit's table: who, by which attack, about what, and how well."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Float64
from lpgcn.privacy.measures import Guess, Measured, caught, user_auc, user_f1
from lpgcn.ragged import Ragged


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Measures that an attack does not have are absent."""

    adversary: str
    attack: str
    about: str
    """What was to be found out."""
    users: int
    """About how many people."""
    auc: Measured | None = None
    f1: Measured | None = None
    """Of calling the |I_u| best candidates real."""
    named: Measured | None = None
    """The share of the users' interactions that the adversary names right."""
    caught: Measured | None = None
    """TPR at 0.1 % FPR."""
    popularity_auc: float | None = None
    """Of an attacker that knows popularity and nothing else."""
    note: str = ""


def line_of(
    adversary: str,
    attack: str,
    about: str,
    guess: Guess,
    popularity: npt.NDArray[np.number] | None = None,
    *,
    note: str = "",
) -> Finding:
    """`popularity` is by candidate id."""
    baseline = None
    if popularity is not None:
        by_popularity = popularity[guess.candidates.values].astype(np.float64)
        per_user = user_auc(Guess(guess.candidates, by_popularity, guess.real))
        baseline = float(np.nanmean(per_user)) if not np.isnan(per_user).all() else None
    return Finding(
        adversary=adversary,
        attack=attack,
        about=about,
        users=len(guess.candidates),
        auc=Measured.of(user_auc(guess)),
        f1=Measured.of(user_f1(guess)),
        caught=Measured.of(caught(guess)),
        popularity_auc=baseline,
        note=note,
    )


def guess_of(
    candidates: list[npt.NDArray[np.int64]], scores: list[Float64], real: Ragged, users: list[int]
) -> Guess:
    """From arrays: `users` says whose the candidates are, `real` what is real for each user."""
    lists = Ragged.from_arrays(candidates)
    truth = [np.isin(one, real[user]) for one, user in zip(candidates, users, strict=True)]
    if not candidates:
        return Guess(lists, np.empty(0), np.empty(0, dtype=np.bool_))
    return Guess(lists, np.concatenate(scores), np.concatenate(truth))
