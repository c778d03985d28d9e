"""Initial embeddings: the distribution, and the same bits for a row alone or among all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.model.backbones import BACKBONES, backbone_of
from lpgcn.model.initial import embedding_rows, initial_tables
from lpgcn.model.kernels.plain import Plain
from lpgcn.random import Purpose

ROWS = 5000


def table(
    rows: Any, seed: int = 11, purpose: Purpose = Purpose.USER_EMBEDDING, **changes: Any
) -> Any:
    config = Config(**changes)
    return embedding_rows(seed, purpose, np.asarray(rows), table_rows=ROWS, config=config)


@given(
    st.lists(st.integers(0, 299), max_size=9),
    st.sampled_from([1, 3, 7, 20, 33, 64, 65]),
    st.sampled_from(["float32", "float64"]),
)
def test_rows_alone_have_the_bits_of_rows_among_all(rows: list[int], dim: int, dtype: Any) -> None:
    whole = table(np.arange(300), dim=dim, dtype=dtype)
    assert whole.shape == (300, dim)
    assert whole.dtype == dtype
    own = np.array(rows, dtype=np.int64)
    assert table(own, dim=dim, dtype=dtype).tobytes() == whole[own].tobytes()


@pytest.mark.parametrize("deviation", [None, 0.1])
def test_uniform_and_centred_with_the_bound_of_xavier_or_the_given_deviation(
    deviation: float | None,
) -> None:
    drawn = table(np.arange(ROWS), init_deviation=deviation).astype(np.float64)
    bound = math.sqrt(6 / (ROWS + 64)) if deviation is None else math.sqrt(3) * deviation
    # The bound itself is rounded to float32.
    assert np.abs(drawn).max() <= bound * (1 + 2**-24)
    assert np.abs(drawn).max() > 0.9999 * bound
    counts, _ = np.histogram(drawn, 50, (-bound, bound))
    expected = drawn.size / 50
    # χ² with 49 degrees of freedom exceeds 100 once in fifty thousand tables.
    assert ((counts - expected) ** 2 / expected).sum() < 100
    assert abs(drawn.mean()) < 4 * bound / math.sqrt(3 * drawn.size)


def test_xavier_is_that_of_torch() -> None:
    expected = torch.empty(ROWS, 64)
    torch.nn.init.xavier_uniform_(expected, generator=torch.Generator().manual_seed(0))
    assert table(np.arange(ROWS)).std() == pytest.approx(expected.std().item(), rel=0.01)


def test_both_precisions_start_from_the_same_numbers() -> None:
    rows = np.arange(100)
    assert np.array_equal(table(rows, dtype="float64"), table(rows).astype(np.float64))


def test_tables_of_other_seeds_and_purposes_are_others() -> None:
    purposes = (Purpose.USER_EMBEDDING, Purpose.ITEM_EMBEDDING, Purpose.ITEM_USER_EMBEDDING)
    tables = {table(range(9), seed, purpose).tobytes() for seed in (0, 1) for purpose in purposes}
    assert len(tables) == 6


@pytest.mark.parametrize("model", BACKBONES)
def test_every_table_of_a_backbone_has_its_rows_and_begins_at_step_0(model: str) -> None:
    backbone = backbone_of(Config(model=model))
    made: dict[str, Any] = {}
    for kind, own in (("users", np.array([3])), ("items", np.array([2, 40]))):
        of_kind = initial_tables(
            backbone.held(kind), 5, own, table_rows=50, config=Config(dim=6), kernels=Plain()
        )
        assert all(adam.parameter.shape == (len(own), 6) for adam in of_kind.values())
        made |= of_kind
    assert made.keys() == backbone.tables.keys()
    for name, adam in made.items():
        state = adam.state()
        assert state["steps"].tolist() == [0] * len(adam.parameter)
        assert not state["mean"].any() and not state["square"].any()
        assert state["kept"].tobytes() == adam.parameter.tobytes()
        others = [one.parameter for other, one in made.items() if other != name]
        assert not any(np.isin(adam.parameter, other).any() for other in others)
