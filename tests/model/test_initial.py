"""Initial embeddings: the distribution, and the same bits for a row alone or among all."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.model.initial import embedding_rows
from lpgcn.random import Purpose


def table(rows: np.ndarray, dim: int = 64, **changes: object) -> torch.Tensor:
    settings = {
        "table_rows": 5000,
        "dim": dim,
        "deviation": None,
        "dtype": torch.float32,
        **changes,
    }
    return embedding_rows(11, Purpose.USER_EMBEDDING, rows, **settings)


@given(
    st.lists(st.integers(0, 299), min_size=1, max_size=9),
    st.sampled_from([1, 3, 7, 20, 33, 64, 65]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_rows_alone_have_the_bits_of_rows_among_all(
    rows: list[int], dim: int, dtype: torch.dtype
) -> None:
    whole = table(np.arange(300), dim, dtype=dtype)
    assert whole.shape == (300, dim)
    assert whole.dtype == dtype
    assert torch.equal(table(np.array(rows), dim, dtype=dtype), whole[rows])


@pytest.mark.parametrize("deviation", [None, 0.1])
def test_uniform_and_centred_with_the_bound_of_xavier_or_the_given_deviation(
    deviation: float | None,
) -> None:
    drawn = table(np.arange(5000), deviation=deviation).double()
    bound = math.sqrt(6 / 5064) if deviation is None else math.sqrt(3) * deviation
    assert drawn.abs().max() <= bound
    assert drawn.abs().max() > 0.9999 * bound
    error_of_mean = bound / math.sqrt(3 * drawn.numel())
    assert abs(drawn.mean()) < 4 * error_of_mean
    assert drawn.std() == pytest.approx(bound / math.sqrt(3), rel=0.005)


def test_xavier_is_that_of_torch() -> None:
    expected = torch.empty(5000, 64)
    torch.nn.init.xavier_uniform_(expected, generator=torch.Generator().manual_seed(0))
    assert table(np.arange(5000)).std() == pytest.approx(expected.std().item(), rel=0.01)


def test_both_precisions_start_from_the_same_numbers() -> None:
    rows = np.arange(100)
    assert torch.equal(table(rows, dtype=torch.float64), table(rows).double())


def test_tables_of_other_seeds_and_purposes_are_others() -> None:
    tables = [
        embedding_rows(
            seed, purpose, np.arange(9), table_rows=9, dim=8, deviation=None, dtype=torch.float32
        )
        for seed in (0, 1)
        for purpose in (Purpose.USER_EMBEDDING, Purpose.ITEM_EMBEDDING, Purpose.ITEM_USER_EMBEDDING)
    ]
    assert len({tuple(drawn.reshape(-1).tolist()) for drawn in tables}) == 6
