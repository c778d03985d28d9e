"""`lpgcn.train`, for every model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpgcn.config import Config
from lpgcn.methods.registry import engine_for
from lpgcn.runtime.runs import training
from lpgcn.runtime.runs.run_folder import Summary
from lpgcn.runtime.runs.source import Source


def train(
    data: str | Source | Any, config: Config | None = None, *, out: Path | str, **options: Any
) -> Summary:
    """Train a backbone or any other method that `lpgcn models` lists.

    The options are those of `lpgcn.runtime.runs.training.train`.
    """
    return training.train(data, config, out=out, engine_for=engine_for, **options)
