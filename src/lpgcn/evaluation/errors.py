"""The error of this room, and its warning."""

from __future__ import annotations

from lpgcn.errors import LpgcnError


class EvaluationError(LpgcnError):
    """What was to be ranked or measured makes no sense: the message says what and why."""


class NothingHeldOutError(EvaluationError):
    """Nobody has anything to be measured by."""


class EvaluationWarning(UserWarning):
    """A measure that tells less than it is asked for; it says nothing about anybody's data."""
