"""Adam against torch's own, and the same bits for rows alone or among all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from lpgcn.model.adam import Adam

DTYPES = [torch.float32, torch.float64]
DIMS = [1, 2, 3, 7, 8, 15, 16, 17, 20, 33, 64, 65, 100, 128, 129]


def gradients(rows: int, dim: int, dtype: torch.dtype, steps: int = 6) -> list[Tensor]:
    """Of many magnitudes, and some rows zero: an owner whose items are in no sample steps too."""
    random = np.random.default_rng(dim)
    drawn = random.standard_normal((steps, rows, dim))
    drawn *= 10.0 ** random.uniform(-9, 2, (steps, rows, 1))
    drawn[random.random((steps, rows)) < 0.3] = 0
    return list(torch.from_numpy(drawn).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_rows_alone_have_the_bits_of_rows_among_all(dim: int, dtype: torch.dtype) -> None:
    rows = 503
    start = torch.from_numpy(np.random.default_rng(1).standard_normal((rows, dim))).to(dtype)
    owned = [[0], [502], [77, 3], list(range(5, 200, 7)), list(range(300, 401))]
    whole, parts = Adam(start), [Adam(start[own]) for own in owned]
    for gradient in gradients(rows, dim, dtype):
        whole.step(gradient, 0.01)
        for part, own in zip(parts, owned, strict=True):
            part.step(gradient[own], 0.01)
    for part, own in zip(parts, owned, strict=True):
        for name in ("parameter", "mean", "square"):
            assert torch.equal(part.state()[name], whole.state()[name][own])


@pytest.mark.parametrize("dim", [3, 64])
def test_threads_do_not_matter(dim: int) -> None:
    start = torch.ones(20_000, dim)
    threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            optimizer = Adam(start)
            for gradient in gradients(20_000, dim, torch.float32, steps=2):
                optimizer.step(gradient, 0.01)
            results.append(optimizer.parameter)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("dim", [3, 20, 64])
def test_equals_torch_to_rounding(dim: int, dtype: torch.dtype, tolerance: float) -> None:
    start = torch.from_numpy(np.random.default_rng(2).standard_normal((50, dim))).to(dtype)
    oracle = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([oracle], lr=0.01, foreach=False, fused=False)
    ours = Adam(start)
    for number, gradient in enumerate(gradients(50, dim, dtype, steps=20)):
        rate = 0.01 / (number + 1)
        optimizer.param_groups[0]["lr"] = rate
        oracle.grad = gradient
        optimizer.step()
        ours.step(gradient, rate)
    assert (ours.parameter - oracle).abs().max() < tolerance


@pytest.mark.parametrize("dim", [5, 64])
def test_what_goes_in_is_never_written_to(dim: int) -> None:
    start, gradient = torch.ones(4, dim), torch.full((4, dim), 0.5)
    optimizer = Adam(start)
    state = optimizer.state()
    kept = {name: value.clone() for name, value in state.items()}
    optimizer.step(gradient, 0.1)
    assert (start == 1).all()
    assert (gradient == 0.5).all()
    optimizer.restore(state)
    optimizer.step(gradient, 0.1)
    assert state.keys() == kept.keys()
    assert all(torch.equal(state[name], kept[name]) for name in kept)


@pytest.mark.parametrize("dim", [5, 64])
def test_a_restored_state_goes_on_with_the_same_bits(dim: int) -> None:
    first, second = gradients(9, dim, torch.float32, steps=2)
    uninterrupted = Adam(torch.ones(9, dim))
    uninterrupted.step(first, 0.1)
    resumed = Adam(torch.zeros(9, dim))
    resumed.restore(uninterrupted.state())
    for optimizer in (uninterrupted, resumed):
        optimizer.step(second, 0.1)
    for name, value in uninterrupted.state().items():
        assert torch.equal(resumed.state()[name], value)
