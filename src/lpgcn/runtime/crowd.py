"""How many people a sum is over: who is told when they are too few to hide among."""

from __future__ import annotations

import warnings

from lpgcn.config import Config
from lpgcn.model.batches import smallest_group


class PrivacyWarning(UserWarning):
    """What somebody could find out, and how to prevent it."""


def warn_of_few(config: Config, members: int, advice: str) -> None:
    """Where sums over all members can be solved for each of them."""
    smallest = smallest_group(config)
    if config.pooled and members < smallest:
        warnings.warn(
            f"{members} clients with loss softmax and d = {config.dim}: from sums over fewer "
            f"than {smallest} the server could work out where single users point; {advice}",
            PrivacyWarning,
            stacklevel=2,
        )


def warn_of_small_change(changed: int, least: int) -> None:
    """Where who was lost could not be kept in the term until others come or go."""
    if changed < least:
        warnings.warn(
            f"{changed} joined or left, expected {least} or more (--least-change): sums before and "
            "after differ by their numbers alone; who is lost is not waited for with --on-missing "
            "leave",
            PrivacyWarning,
            stacklevel=2,
        )
