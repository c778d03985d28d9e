"""Scores between the cosine and the inner product, with the same bits alone and among others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lpgcn.config import ConfigError, parse
from lpgcn.model.kernels import Floats, Kernels
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.threads import Threads
from lpgcn.model.scoring import scoring

KERNELS: list[Kernels] = [Plain(), Compiled(Threads(2))]
exponents = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@st.composite
def vectors(draw: st.DrawFn) -> Floats:
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = draw(st.tuples(st.integers(1, 40), st.integers(1, 9)))
    above, below = ((2.0**-20, 2.0**20), (-(2.0**20), -(2.0**-20)))
    numbers = st.one_of(st.floats(*above, width=32), st.floats(*below, width=32), st.just(0.0))
    return draw(arrays.arrays(dtype, shape, elements=numbers))


@given(vectors(), exponents)
def test_directions_stay_and_lengths_are_raised(items: Floats, exponent: float) -> None:
    found = scoring(items, exponent, Plain())
    lengths = np.linalg.norm(items.astype(np.float64), axis=1, keepdims=True)
    # An independent way to the same: NumPy's own norms and powers.
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(lengths > 0, items / lengths * lengths**exponent, 0)
    assert found.dtype == items.dtype
    assert np.allclose(found, expected, rtol=4 * np.finfo(items.dtype).eps, atol=0)


@given(vectors(), exponents)
def test_bits_are_the_same_alone_and_among_others(items: Floats, exponent: float) -> None:
    plain, compiled = (scoring(items, exponent, kernels) for kernels in KERNELS)
    assert plain.tobytes() == compiled.tobytes()
    for row, one in enumerate(items):
        assert scoring(one[None], exponent, Plain()).tobytes() == plain[row].tobytes()


@pytest.mark.parametrize("rows", [1, 2, 7, 8])
def test_bits_do_not_depend_on_how_many_rows_there_are_at_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = np.random.default_rng(5).normal(size=(7, 3)).astype(np.float32)
    whole = scoring(items, 0.25, Plain())
    monkeypatch.setattr("lpgcn.model.scoring._ROWS_AT_ONCE", rows)
    assert scoring(items, 0.25, Plain()).tobytes() == whole.tobytes()


def test_one_is_the_inner_product_itself() -> None:
    items = np.ones((3, 2), np.float32)
    assert scoring(items, 1.0, Plain()) is items


@pytest.mark.parametrize("exponent", [0.3, -0.25, 1.25])
def test_other_exponents_are_refused(exponent: float) -> None:
    with pytest.raises(ConfigError, match=rf"length_exponent is {exponent}; expected"):
        parse({"length_exponent": exponent})
