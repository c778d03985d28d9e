"""Coverage, Gini, novelty and popularity against their definitions, item by item, pair by pair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.evaluation import EvaluationError
from lpgcn.evaluation.beyond_accuracy import BEYOND_ACCURACY, beyond_accuracy

N_ITEMS = 12
LISTS = st.lists(
    st.lists(st.integers(0, N_ITEMS - 1), unique=True, min_size=1, max_size=6),
    min_size=1,
    max_size=8,
)


@given(LISTS, st.lists(st.integers(0, 50), min_size=N_ITEMS, max_size=N_ITEMS))
def test_by_definition(lists: list[list[int]], popularity: list[int]) -> None:
    top = np.full((len(lists), 6), -1)
    for row, items in enumerate(lists):
        top[row, : len(items)] = items
    found = beyond_accuracy(top, np.array(popularity), 50, (1, 4, 10))
    assert list(found) == [f"{name}@{k}" for k in (1, 4, 10) for name in BEYOND_ACCURACY]
    for k in (1, 4, 10):
        shown = [item for items in lists for item in items[:k]]
        counts = [shown.count(item) for item in range(N_ITEMS)]
        # Half the relative mean absolute difference of all pairs of items.
        unequal = sum(abs(one - other) for one in counts for other in counts)
        assert found[f"coverage@{k}"] == pytest.approx(len(set(shown)) / N_ITEMS)
        assert found[f"gini@{k}"] == pytest.approx(unequal / (2 * N_ITEMS * len(shown)))
        bits = [-math.log2(max(popularity[item], 1) / 50) for item in shown]
        assert found[f"novelty@{k}"] == pytest.approx(sum(bits) / len(shown))
        mean = sum(popularity[item] for item in shown) / len(shown)
        assert found[f"popularity@{k}"] == pytest.approx(mean)


def test_the_extremes() -> None:
    everybody_alike = np.zeros((5, 1), dtype=np.int64)
    everybody_else = np.arange(5)[:, None]
    popularity = np.array([5, 5, 5, 5, 5])
    found = beyond_accuracy(everybody_alike, popularity, 5, (1,))
    assert found == {"coverage@1": 0.2, "gini@1": 0.8, "novelty@1": 0.0, "popularity@1": 5.0}
    found = beyond_accuracy(everybody_else, popularity, 5, (1,))
    assert found == {"coverage@1": 1.0, "gini@1": 0.0, "novelty@1": 0.0, "popularity@1": 5.0}
    with pytest.raises(EvaluationError, match="no recommended item"):
        beyond_accuracy(np.full((3, 2), -1), popularity, 5, (1,))
