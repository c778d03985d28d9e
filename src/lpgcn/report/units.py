"""Figures as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METRICS: Final[Mapping[str, str]] = {
    "recall": "Recall",
    "ndcg": "NDCG",
    "precision": "Precision",
    "hitrate": "Hit rate",
    "mrr": "MRR",
    "map": "MAP",
    "coverage": "Coverage",
    "gini": "Gini",
    "novelty": "Novelty",
    "popularity": "Popularity",
}


def metric_name(metric: str) -> str:
    """Recall@20 for recall@20."""
    name, _, k = metric.partition("@")
    return f"{METRICS.get(name, name)}@{k}"


def counted(count: int, noun: str) -> str:
    """1 user, 1,000 users."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """8.3 s, 2 min 5 s, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """812 B, 19.8 KB, 3.1 MB: powers of 1,000, as the paper counts."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
