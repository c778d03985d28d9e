"""The planner that a configuration asks for."""

from __future__ import annotations

from lpgcn.config import Config
from lpgcn.plan import Plan, TokenGraph, cover
from lpgcn.protocol.server import Planner


def planner_for(config: Config) -> Planner:
    def plan(graph: TokenGraph) -> Plan:
        return cover(graph, config.seed)

    return plan
