"""The planner that a configuration asks for."""

from __future__ import annotations

from pathlib import Path

from lpgcn.config import Config
from lpgcn.data import DataError, Split
from lpgcn.model.sampling import catalogue
from lpgcn.plan import (
    ImpossibleLimitError,
    Plan,
    PlanCost,
    PlanError,
    PlanOptions,
    Progress,
    TokenGraph,
    cost,
    make_plan,
)
from lpgcn.protocol.server.server import Planner


def planner_for(split: Split, config: Config, progress: Progress | None = None) -> Planner:
    """A function that the server calls with all that it knows, the token graph."""
    options = plan_options(config, split)

    def plan(graph: TokenGraph) -> Plan:
        try:
            return make_plan(graph, options, config.seed, progress)
        except ImpossibleLimitError as error:
            # A server knows places only; who has the data set can say which item it is.
            item = split.item_ids[int(catalogue(config.seed, split.n_items)[error.token])]
            message = f"{error}; token {error.token} is item {item!r}"
            raise ImpossibleLimitError(message, error.token) from error

    return plan


def plan_cost(graph: TokenGraph, plan: Plan, config: Config) -> PlanCost:
    """What a plan costs for this model: the paper's C and R, and the loads."""
    return cost(
        graph,
        plan,
        layers=config.layers,
        dimension=config.dim,
        bytes_per_element=config.number_bytes,
    )


def plan_options(config: Config, split: Split | None = None) -> PlanOptions:
    """Without a split nobody is known by name, and anybody may convolve."""
    return PlanOptions(
        planner=config.planner,
        max_load=config.load_limit,
        max_items_per_client=config.max_items_per_client,
        never_convolve=frozenset() if split is None else _never(split, config.never_convolve),
        convolution_clients=config.convolution_clients,
    )


def _never(split: Split, path: str | None) -> frozenset[int]:
    if path is None:
        return frozenset()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
        raise PlanError(
            f"cannot read the users of --never-convolve from {path}: {reason}; expected a file "
            "with one user id on each line"
        ) from error
    found = set()
    for number, line in enumerate(lines, 1):
        if not (user := line.strip()):
            continue
        try:
            found.add(split.user_ids.index_of(user))
        except DataError as error:
            raise PlanError(
                f"{path}, line {number}: {error}; expected one user id on each line, and no heading"
            ) from error
    return frozenset(found)
