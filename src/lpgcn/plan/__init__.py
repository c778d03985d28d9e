"""Which client computes which item."""

from lpgcn.plan.cost import PlanCost, cost, loads
from lpgcn.plan.cover import cover
from lpgcn.plan.graph import Plan, TokenGraph
from lpgcn.plan.options import PlanError, PlanOptions

__all__ = ["Plan", "PlanCost", "PlanError", "PlanOptions", "TokenGraph", "cost", "cover", "loads"]
