"""Which client computes which item, at the least traffic under a load limit (Algorithm 3).

The server alone plans, from the token graph: who listed which token, real and virtual alike.
"""

from lpgcn.plan.cost import PlanCost, cost, loads
from lpgcn.plan.cover import cover
from lpgcn.plan.graph import Plan, TokenGraph, TokenGraphError
from lpgcn.plan.options import ImpossibleLimitError, PlanError, PlanOptions, Progress
from lpgcn.plan.planner import make_plan

__all__ = [
    "ImpossibleLimitError",
    "Plan",
    "PlanCost",
    "PlanError",
    "PlanOptions",
    "Progress",
    "TokenGraph",
    "TokenGraphError",
    "cost",
    "cover",
    "loads",
    "make_plan",
]
