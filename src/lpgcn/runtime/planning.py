"""The planner that a configuration asks for."""

from __future__ import annotations

from pathlib import Path

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.plan import Plan, PlanError, PlanOptions, Progress, TokenGraph, make_plan
from lpgcn.protocol.server import Planner


def planner_for(split: Split, config: Config, progress: Progress | None = None) -> Planner:
    """A function that the server calls with all that it knows, the token graph."""
    options = plan_options(split, config)

    def plan(graph: TokenGraph) -> Plan:
        return make_plan(graph, options, config.seed, progress)

    return plan


def plan_options(split: Split, config: Config) -> PlanOptions:
    return PlanOptions(
        planner=config.planner,
        max_load=config.load_limit,
        max_items_per_client=config.max_items_per_client,
        never_convolve=_never(split, config.never_convolve),
        convolution_clients=config.convolution_clients,
    )


def _never(split: Split, path: str | None) -> frozenset[int]:
    if path is None:
        return frozenset()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PlanError(
            f"cannot read the users of --never-convolve from {path}: {error.strerror}"
        ) from error
    return frozenset(split.user_ids.index_of(line) for line in lines if line.strip())
