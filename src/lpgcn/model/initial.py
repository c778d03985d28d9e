"""Initial embeddings, a row at a time or all at once, with the same bits."""

from __future__ import annotations

import math

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.model.adam import Adam
from lpgcn.model.backbones import Table
from lpgcn.model.backbones.backbone import WITH_USERS
from lpgcn.model.kernels import Floats, Kernels
from lpgcn.random import Purpose, bits


def embedding_rows(
    seed: int, purpose: Purpose, rows: Int64, *, table_rows: int, config: Config
) -> Floats:
    """Uniform in (−b, b): b = √(6 / (table_rows + d)), as Xavier, or √3·deviation if given."""
    deviation = config.init_deviation
    xavier = math.sqrt(6 / (table_rows + config.dim))
    bound = xavier if deviation is None else math.sqrt(3) * deviation
    # 24 bits fit a float32 mantissa, so both precisions start from the same numbers.
    unit = (bits(seed, purpose, rows, 0, 0, config.dim) >> 8) * 2.0**-23 - 1.0
    return (unit * bound).astype(np.float32).astype(config.dtype)


def initial_vectors(config: Config, n_users: int, n_items: int) -> dict[str, Floats]:
    """e^(0) of all users and all items, where both are parameters."""
    return {
        name: embedding_rows(
            config.seed, WITH_USERS[name].purpose, np.arange(n), table_rows=n, config=config
        )
        for name, n in (("users", n_users), ("items", n_items))
    }


def initial_tables(
    tables: dict[str, Table],
    seed: int,
    rows: Int64,
    *,
    table_rows: int,
    config: Config,
    kernels: Kernels,
) -> dict[str, Adam]:
    """The rows of some nodes in each of their tables, each with its own Adam state."""
    return {
        name: Adam(
            embedding_rows(seed, table.purpose, rows, table_rows=table_rows, config=config), kernels
        )
        for name, table in tables.items()
    }
