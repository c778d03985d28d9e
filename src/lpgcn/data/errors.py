"""What can be wrong with data."""

from __future__ import annotations

from lpgcn.errors import LpgcnError


class DataError(LpgcnError):
    """Data that cannot be used as it is; the message says where, why and what to do."""


class DataWarning(UserWarning):
    """Data that was mended in reading, such as a pair that a file lists twice."""
