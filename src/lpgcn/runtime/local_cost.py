"""What a federation on this machine is going to take, before it takes it: memory and time.

Both are rules of thumb, fitted to federations of about a thousand clients in one process
(`benchmarks/local_cost.py` compares them with what is measured). They tell minutes from hours and
megabytes from gigabytes.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from lpgcn.config import Config
from lpgcn.crypto import TAG_BYTES
from lpgcn.data import Split
from lpgcn.plan import Plan, TokenGraph
from lpgcn.runtime.estimation import Cost, estimate

SECONDS_A_MESSAGE: Final = 105e-6
"""A request and its answer: made, sent, checked, understood."""
SECONDS_A_ROW: Final = 3.2e-6
"""A vector that is sealed, opened and added."""
SECONDS_A_FINAL_ROW: Final = 1.4e-6
"""A final item vector, which is opened and multiplied."""
BYTES_A_PROCESS: Final = 90_000_000
BYTES_A_CLIENT: Final = 80_000
BYTES_A_NEIGHBOUR: Final = 7_500
"""Keys, channels and rows of a client and one of its owners."""


class LocalCost(msgspec.Struct, frozen=True, kw_only=True):
    """Of a training with all its epochs."""

    processes: int
    seconds: float
    memory: int
    """Bytes."""


def local_cost(
    split: Split, config: Config, graph: TokenGraph, plan: Plan, processes: int
) -> LocalCost:
    """For clients in so many processes, if there are as many processors."""
    found, clients = estimate(split, config, plan), graph.n_clients
    row = config.dim * config.number_bytes + TAG_BYTES

    def seconds(cost: Cost, a_row: float) -> float:
        a_client = cost.rounds * SECONDS_A_MESSAGE + (cost.up + cost.down) / row * a_row
        return a_client * clients / processes

    neighbours = len(np.unique(graph.clients * clients + plan.owner[graph.tokens]))
    return LocalCost(
        processes=processes,
        seconds=seconds(found.initialisation, SECONDS_A_ROW)
        + seconds(found.step, SECONDS_A_ROW) * found.steps
        + seconds(found.measurement, SECONDS_A_FINAL_ROW) * found.measurements
        + seconds(found.upkeep, SECONDS_A_ROW),
        memory=BYTES_A_PROCESS * (1 + processes if processes > 1 else 1)
        + BYTES_A_CLIENT * clients
        + BYTES_A_NEIGHBOUR * neighbours,
    )
