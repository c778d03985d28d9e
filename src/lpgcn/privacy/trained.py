"""What a finished model gives away, with its final vectors in the hands of whoever has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.data import Split
from lpgcn.evaluation.scorers.vectors import Vectors
from lpgcn.privacy.attacks import attributes, final_vectors, membership
from lpgcn.privacy.coalition_audit import weighed
from lpgcn.privacy.measures import Guess, Measured
from lpgcn.privacy.server_audit import BITS, LABELLED, is_real, some_users
from lpgcn.privacy.table import Finding, line_of
from lpgcn.ragged import Ragged

HOLDER: Final = "anybody with e_u"
RANKER: Final = "server + 1 client, finished model"


def lines(
    split: Split, vectors: Vectors, people: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Training pairs and attributes from e_u."""
    everybody, train = np.arange(split.n_users), split.train
    users, items = vectors.users.astype(np.float64), vectors.items.astype(np.float64)
    guess = membership.against_alike(everybody, users, items, train.by_user, train.item_degrees)
    yield line_of(HOLDER, "membership by score", "training pairs", guess, train.item_degrees)
    ids = [str(one) for one in split.user_ids.values]
    yield from of_people(HOLDER, "logistic regression", users, ids, people)


def of_people(
    adversary: str,
    attack: str,
    vectors: npt.NDArray[np.float64],
    ids: Sequence[str],
    people: Mapping[str, Mapping[str, str]],
) -> Iterator[Finding]:
    """Attributes from e_u, one row for each id; who has no answer is left out."""
    for attribute, answers in people.items():
        known = [row for row, one in enumerate(ids) if one in answers]
        labels = [answers[ids[row]] for row in known]
        if len(set(labels)) < 2:
            continue
        found = attributes.infer(attribute, vectors[known], labels)
        yield Finding(
            adversary=adversary, attack=attack, about=attribute, users=found.users,
            auc=Measured(value=found.auc, low=found.auc, high=found.auc),
            note=f"accuracy {found.accuracy:.3f}, largest class {found.majority:.3f}",
        )  # fmt: skip


def about_lists(
    lists: Ragged,
    real: Ragged,
    scores: dict[str, npt.NDArray[np.float64]],
    vectors: Vectors,
    catalogue: Int64,
    popularity: Int64,
) -> Iterator[Finding]:
    """Real or virtual, by a server with a client that was given all e_i to rank with: by the
    likeness of vectors alone, and together with the token graph and a few labelled users."""
    n_items = len(catalogue)
    truth = is_real(lists, real, n_items)
    if truth.all():
        return
    by_place = vectors.items.astype(np.float64)[catalogue]
    likeness = final_vectors.likeness(lists, by_place)
    labelled = some_users(len(lists), LABELLED)
    others = np.setdiff1d(np.arange(len(lists)), labelled)
    bits = np.where(np.isin(lists.rows, labelled), truth, -1)
    both = weighed(lists, {**scores, "likeness": likeness}, bits)
    attacks = {"final vectors": likeness, f"the same and {LABELLED:.0%} labelled": both}
    for name, score in attacks.items():
        guess = Guess(lists, score, truth).only(others)
        yield line_of(RANKER, f"trained: {name}", BITS, guess, popularity)
