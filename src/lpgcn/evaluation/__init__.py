"""Full-ranking metrics with exact means, and early stopping on one of them."""

from lpgcn.evaluation.early_stopping import EarlyStopping
from lpgcn.evaluation.errors import EvaluationError
from lpgcn.evaluation.metrics import (
    METRICS,
    Evaluation,
    UserItems,
    evaluate,
    mean_from_fixed_point,
    per_user,
    to_fixed_point,
)
from lpgcn.evaluation.ranking import top_items

__all__ = [
    "METRICS",
    "EarlyStopping",
    "Evaluation",
    "EvaluationError",
    "UserItems",
    "evaluate",
    "mean_from_fixed_point",
    "per_user",
    "to_fixed_point",
    "top_items",
]
