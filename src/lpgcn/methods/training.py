"""`lpgcn.train` for every model."""

from __future__ import annotations

from functools import partial

from lpgcn.methods.registry import engine_for
from lpgcn.runtime.runs import training

train = partial(training.train, engine_for=engine_for)
"""See `lpgcn.runtime.runs.training.train`."""
