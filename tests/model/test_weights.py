"""Dense weights: drawn alike by everybody, and gradients that add up exactly over all nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lpgcn.config import Config
from lpgcn.model.grid import GridError
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.weights import (
    Weights,
    WeightSums,
    gradient_grid,
    initial_weights,
    weight_gradients,
)

SHAPES = {"a": (4, 3), "b": (64, 64), "c": (64, 64)}
CONFIG = Config(batch_size=8)


def test_weights_are_those_of_xavier_and_each_matrix_has_its_own() -> None:
    made = initial_weights(SHAPES, 5, CONFIG, Plain())
    expected = torch.empty(64, 64)
    torch.nn.init.xavier_uniform_(expected, generator=torch.Generator().manual_seed(0))
    one, other = made["b"].parameter, made["c"].parameter
    assert one.shape == (64, 64) and one.std() == pytest.approx(expected.std().item(), rel=0.03)
    assert np.abs(one).max() <= math.sqrt(6 / 128) and not (one == other).any()
    again = initial_weights(dict(reversed(SHAPES.items())), 5, CONFIG, Plain())
    assert all(made[name].parameter.tobytes() == again[name].parameter.tobytes() for name in SHAPES)


def test_there_and_back_are_products_with_a_matrix_and_its_transpose() -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = Weights({"w": matrix}, Plain())
    assert weights.times(np.array([[1.0, 10.0]]), "w").tolist() == [[30, 41, 52]]
    assert weights.back(np.array([[1.0, 0.0, 10.0]]), "w").tolist() == [[20, 53]]


def test_a_gradient_is_the_sum_of_all_parts_over_the_batch() -> None:
    grid = gradient_grid(CONFIG)
    sums = WeightSums(grid, 10, Plain())
    left, right = np.array([[1.0, 2.0], [0.5, 0.0]]), np.array([[4.0], [-8.0]])
    parts = [{"w": sums.of("w", left[[n]], right[[n]])} for n in (0, 1)]
    gradient = weight_gradients(parts, CONFIG, 8)["w"]
    found = gradient.integers * gradient.factor[:, None]
    assert found.tolist() == [[0.0], [1.0]] and not gradient.decay.any()
    assert np.array_equal(gradient.integers, sums.of("w", left, right))


@pytest.mark.parametrize("wrong", [2.0**13, math.nan, math.inf])
@pytest.mark.parametrize("nodes", [10, 2**18])
def test_parts_that_might_not_add_up_are_refused(wrong: float, nodes: int) -> None:
    """2^45 steps of 2^-33 are 2^12; with very many nodes less must do."""
    sums, right = WeightSums(gradient_grid(CONFIG), nodes, Plain()), np.ones((1, 2))
    fits = np.full((1, 1), 2.0**11 if nodes < 2**17 else 2.0**10)
    assert sums.of("w", fits, right).tolist() == [[int(fits[0, 0] * 2**33)] * 2]
    with pytest.raises(GridError, match=r"gradient of w: .*, expected less than (2048|4096);"):
        sums.of("w", np.full((1, 1), wrong), right)
