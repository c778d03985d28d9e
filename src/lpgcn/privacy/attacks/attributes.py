"""What kind of person a vector belongs to: anybody with e_u and some people that are known.

A logistic regression (one against the rest) from e_u to gender, age group or occupation, tested on
people that it was not trained on (five folds). To be held against the share of the largest class,
which needs no vector, and against AUC 0.5 for a class. Must succeed where an attribute decides what
a user likes; at chance on permuted attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from lpgcn.array_types import Float64
from lpgcn.errors import LpgcnError
from lpgcn.privacy.logistic import fitted
from lpgcn.privacy.measures import Guess, user_auc
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, permutation

FOLDS: Final = 5
_AGES: Final = (25, 35, 50)
_RIDGE: Final = 0.05


class AttributeFileError(LpgcnError):
    """A file of attributes that cannot be read."""


class Inferred(msgspec.Struct, frozen=True, kw_only=True):
    """How well an attribute could be inferred."""

    attribute: str
    accuracy: float
    majority: float
    """The share of the largest class: what is right without any vector."""
    auc: float
    """Of that class against the others; 0.5 is chance."""
    users: int


def infer(attribute: str, vectors: Float64, labels: Sequence[str]) -> Inferred:
    """Cross-validated."""
    classes, label = np.unique(np.array(labels), return_inverse=True)
    fold = permutation(0, Purpose.AUDIT, len(label)) % FOLDS
    scores = np.empty((len(label), len(classes)))
    for one in range(FOLDS):
        train, test = fold != one, fold == one
        for number in range(len(classes)):
            model = fitted(vectors[train], label[train] == number, _RIDGE)
            scores[test, number] = model(vectors[test])
    counts = np.bincount(label)
    largest = int(counts.argmax())
    guess = Guess(Ragged.single(np.arange(len(label))), scores[:, largest], label == largest)
    return Inferred(
        attribute=attribute,
        accuracy=float((scores.argmax(axis=1) == label).mean()),
        majority=float(counts.max() / len(label)),
        auc=float(user_auc(guess)[0]),
        users=len(label),
    )


def read_movielens(path: Path) -> dict[str, dict[str, str]]:
    """MovieLens 100K's `u.user`: for gender, age group and occupation, by the id of the user."""
    try:
        lines = path.read_text(encoding="latin-1").splitlines()
        rows = [line.split("|") for line in lines if line]
        return {
            "gender": {row[0]: row[2] for row in rows},
            "age group": {row[0]: _group(int(row[1])) for row in rows},
            "occupation": {row[0]: row[3] for row in rows},
        }
    except (OSError, ValueError, IndexError) as error:
        raise AttributeFileError(
            f"cannot read attributes from {path}: {error}; expected lines of "
            "user|age|gender|occupation|zip, as in MovieLens 100K's u.user"
        ) from error


def _group(age: int) -> str:
    bounds = (0, *_AGES, 200)
    at = int(np.searchsorted(_AGES, age, side="right"))
    return f"{bounds[at]} to {bounds[at + 1] - 1}"
