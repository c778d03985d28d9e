"""The methods that LP-GCN is compared with, one module each, and what makes a method."""

from lpgcn.methods.method import (
    FACTORS,
    IN_ONE_GO,
    LEARNING,
    Learner,
    Losses,
    Method,
    MethodError,
    NoOptions,
    UserRounds,
)
from lpgcn.methods.traffic import RoundTraffic

__all__ = [
    "FACTORS",
    "IN_ONE_GO",
    "LEARNING",
    "Learner",
    "Losses",
    "Method",
    "MethodError",
    "NoOptions",
    "RoundTraffic",
    "UserRounds",
]
