"""Who was there in training has its own vector again; who was not has that of the same formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import Split, make_split
from lpgcn.model.folding import fold_in
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.machine import Machine


def trained(config: Config, seed: int = 0) -> tuple[Split, Centralized]:
    draw = np.random.default_rng(seed)
    split = make_split([(user, item) for user, item in np.argwhere(draw.random((30, 20)) < 0.3)])
    engine = Centralized(split, config, Machine.with_threads(1))
    for step in range(3):
        engine.step(step, 0, 0.05)
    return split, engine


@settings(max_examples=8)
@given(
    layers=st.integers(1, 4),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(["float32", "float64"]),
    min_degree=st.sampled_from([1, 7]),
)
def test_a_trained_user_of_lightgcn_plus_is_what_its_items_say(
    layers: int, weighted: bool, seed: int, dtype: str, min_degree: int
) -> None:
    weights = [0.5, *range(layers)] if weighted else None
    config = Config().changed(
        model="lightgcn+",
        layers=layers,
        layer_weights=weights,
        dim=6,
        dtype=dtype,
        batch_size=64,
        min_degree=min_degree,
    )
    split, engine = trained(config, seed)
    rows, vectors = engine.folding(), engine.present()
    assert rows is not None
    assert (rows.any(axis=1) == (split.train.item_degrees >= min_degree)).all()
    found = np.stack([fold_in(rows, split.train.items_of(user)) for user in range(split.n_users)])
    largest = np.abs(vectors.users).max()
    np.testing.assert_allclose(found, vectors.users, atol=2e-6 * largest * (layers + 1))


@pytest.mark.parametrize("layers", [1, 3])
def test_a_new_user_of_lightgcn_has_all_layers_but_its_own(layers: int) -> None:
    """Against a plain propagation in float64, without rounding."""
    config = Config(model="lightgcn", layers=layers, dim=6, batch_size=64)
    split, engine = trained(config)
    graph = np.zeros((split.n_users, split.n_items))
    graph[split.train.users, split.train.items] = 1
    user_degrees, item_degrees = (np.maximum(graph.sum(axis=axis), 1) for axis in (1, 0))
    scaled = graph / np.sqrt(user_degrees[:, None] * item_degrees)
    state = engine.state()
    users, items = state["users.parameter"].astype(float), state["items.parameter"].astype(float)
    mine = np.array([2, 3, 5, 7])
    expected = np.zeros(6)
    for _ in range(layers):
        messages = items / np.sqrt(item_degrees)[:, None] * (graph.sum(axis=0) > 0)[:, None]
        expected += messages[mine].sum(axis=0) / np.sqrt(len(mine)) / (layers + 1)
        users, items = scaled @ items, scaled.T @ users
    found = fold_in(engine.folding(), mine)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
