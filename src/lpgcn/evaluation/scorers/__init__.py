"""Scorers: what a trained model is to everything that ranks, measures or recommends."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lpgcn.evaluation.errors import EvaluationError
from lpgcn.evaluation.scorers.clustered import ClusteredVectors
from lpgcn.evaluation.scorers.perceptron import Perceptron
from lpgcn.evaluation.scorers.scorer import Arrays, Scorer
from lpgcn.evaluation.scorers.similarity import DenseSimilarity, SparseSimilarity
from lpgcn.evaluation.scorers.vectors import Vectors
from lpgcn.ragged import Ragged

__all__ = [
    "KINDS",
    "ClusteredVectors",
    "DenseSimilarity",
    "Perceptron",
    "Scorer",
    "SparseSimilarity",
    "Vectors",
    "restored",
]

KINDS: Final[Mapping[str, type[Scorer]]] = MappingProxyType(
    {
        made.kind: made
        for made in (Vectors, DenseSimilarity, SparseSimilarity, Perceptron, ClusteredVectors)
    }
)


def restored(kind: str, arrays: Arrays, seen: Ragged) -> Scorer:
    """The scorer of a saved model."""
    if kind not in KINDS:
        raise EvaluationError(
            f"found a model with scores of the kind {kind!r}, expected one of {', '.join(KINDS)}: "
            "use the version of lpgcn that wrote it"
        )
    return KINDS[kind].from_arrays(arrays, seen)
