"""What the server sees before it plans, and what it decides: the token graph and the plan.

The server knows which client listed which token (paper: Algorithm 3, line 1), virtual items
included and indistinguishable. Every planner works on this graph and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.errors import LpgcnError
from lpgcn.ragged import Ragged


class TokenGraphError(LpgcnError):
    """Arrays that are no token graph: a mistake of the caller, not of a client."""


@dataclass(frozen=True, eq=False)
class TokenGraph:
    """Clients and the tokens they list: client u lists listed[u].

    Token indices rise strictly within a client, so nobody lists a token twice.
    """

    listed: Ragged
    n_tokens: int

    def __post_init__(self) -> None:
        offsets, tokens = self.listed.offsets, self.listed.values
        if offsets.ndim != 1 or offsets.size < 1 or offsets[0] != 0 or offsets[-1] != tokens.size:
            raise TokenGraphError(
                f"offsets must rise from 0 to the number of listings, {tokens.size}; "
                f"found {offsets[:1]} to {offsets[-1:]}"
            )
        if (np.diff(offsets) < 0).any():
            raise TokenGraphError("offsets fall somewhere; they must never fall")
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < self.n_tokens:
            raise TokenGraphError(
                f"token indices must be in [0, {self.n_tokens}); "
                f"found {tokens.min()} to {tokens.max()}"
            )
        if (np.diff(self.clients * self.n_tokens + tokens) <= 0).any():
            raise TokenGraphError(
                "a client's tokens do not rise strictly; sort each client's tokens and drop copies"
            )

    @classmethod
    def from_pairs(cls, clients: Int64, tokens: Int64, *, n_clients: int, n_tokens: int) -> Self:
        """The graph of (client, token) listings in any order; copies count once."""
        # Without return_counts np.unique hashes instead of sorting, and takes 25 times as long.
        keys, _ = np.unique(clients.astype(np.int64) * n_tokens + tokens, return_counts=True)
        degrees = np.bincount(keys // max(n_tokens, 1), minlength=n_clients)
        return cls(Ragged.from_lengths(degrees, keys % max(n_tokens, 1)), n_tokens)

    @property
    def n_clients(self) -> int:
        return len(self.listed)

    @property
    def tokens(self) -> Int64:
        """The token of every listing."""
        return self.listed.values

    @property
    def clients(self) -> Int64:
        """The client of every listing, beside `tokens`."""
        return self.listed.rows

    @cached_property
    def by_token(self) -> Ragged:
        """The other side of the graph: by_token[i] are the clients that list token i, rising."""
        order = np.argsort(self.tokens, kind="stable")
        return Ragged.from_lengths(self.degrees, self.clients[order])

    @cached_property
    def degrees(self) -> Int64:
        """How many clients list each token, |U_i| + |U'_i|."""
        return np.bincount(self.tokens, minlength=self.n_tokens)


@dataclass(frozen=True, eq=False)
class Plan:
    """Every token's convolution-client ũ_i, and the planner that chose it (Algorithm 3)."""

    owner: Int64
    planner: str

    @cached_property
    def convolution_clients(self) -> Int64:
        """The set Ũ: clients that own a token, rising (Algorithm 3, line 6)."""
        return np.unique(self.owner)
