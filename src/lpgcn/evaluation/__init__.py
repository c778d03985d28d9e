"""Full-ranking metrics with exact means, and early stopping on one of them.

NumPy alone serves a client; `lpgcn.evaluation.compiled.CompiledRanker`, handed to `evaluate` or
`top_items`, ranks tables in the same bits with numba, which nothing here imports by itself.
"""

from lpgcn.evaluation.early_stopping import EarlyStopping
from lpgcn.evaluation.errors import EvaluationError, EvaluationWarning, NothingHeldOutError
from lpgcn.evaluation.metrics import (
    METRICS,
    Evaluation,
    UserMetrics,
    evaluate,
    per_user,
    to_fixed_point,
    user_metrics,
)
from lpgcn.evaluation.plain import PlainRanker
from lpgcn.evaluation.ranking import Ranker, best_items, top_items
from lpgcn.evaluation.scorers import Scorer, Vectors

__all__ = [
    "METRICS",
    "EarlyStopping",
    "Evaluation",
    "EvaluationError",
    "EvaluationWarning",
    "NothingHeldOutError",
    "PlainRanker",
    "Ranker",
    "Scorer",
    "UserMetrics",
    "Vectors",
    "best_items",
    "evaluate",
    "per_user",
    "to_fixed_point",
    "top_items",
    "user_metrics",
]
