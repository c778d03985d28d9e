"""Early stopping against its definition, and a state that goes through JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.evaluation import EarlyStopping, EvaluationError


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 10), st.integers(1, 4))
def test_stops_patience_epochs_after_the_first_best(
    values: list[float], patience: int, every: int
) -> None:
    stopping = EarlyStopping(patience=patience)
    for count, value in enumerate(values, start=1):
        stopping = EarlyStopping(**json.loads(json.dumps(asdict(stopping))))
        stopping = stopping.after(count * every, value)
        best = max(values[:count])
        best_epoch = (values.index(best) + 1) * every
        assert (stopping.best_value, stopping.best_epoch) == (best, best_epoch)
        assert stopping.improved == (best_epoch == count * every)
        assert stopping.exhausted == (count * every - best_epoch >= patience)


def test_a_value_that_is_no_number_is_no_improvement() -> None:
    stopping = EarlyStopping(patience=2).after(1, float("nan"))
    assert not stopping.improved and not stopping.exhausted
    assert stopping.after(2, float("nan")).exhausted


def test_wrong_input_is_named() -> None:
    with pytest.raises(EvaluationError, match="patience of 0"):
        EarlyStopping(patience=0)
    with pytest.raises(EvaluationError, match="epoch 3 after 3"):
        EarlyStopping(patience=1).after(3, 0.5).after(3, 0.6)
