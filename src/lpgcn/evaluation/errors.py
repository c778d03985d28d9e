"""The error of this room."""

from __future__ import annotations

from lpgcn.errors import LpgcnError


class EvaluationError(LpgcnError):
    """What was to be ranked or measured makes no sense: the message says what and why."""
