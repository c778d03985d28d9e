"""FedGRec (Li & Huang, 2022): the graph stands still between synchronisations.

Users and items keep, beside their own vectors e^(0), a *latent* vector for every order of the
graph. These stand for the neighbours that a client does not see while it trains:

    e_u = α (e_u^(0) + Σ_{l=1}^{L} h_u^(l))      e_i = α (e_i^(0) + Σ_{l=1}^{L} h_i^(l))

with α = 1 / (L + 1), and in a gradient they are constants. Rounds are those of FedMF: some users,
BPR on e_u·e_i, a secure sum of the gradients of the items. Every R rounds all clients synchronise,
in one exchange that moves every order up by one (h^(0) = e^(0)):

    h_u^(l+1) ← |I_u|^-½ Σ_{i ∈ I_u} |U_i|^-½ h_i^(l)
    h_i^(l+1) ← |U_i|^-½ Σ_{u ∈ U_i} |I_u|^-½ h_u^(l)

so that order l is as old as l synchronisations. Settings that the authors do not state are ours:
R = 10, 100 users a round, and latent vectors that begin as a full propagation gives them. The
exchange is the one of our backbones, on the grid, so its sums are exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.methods.factorisation import Factorisation
from lpgcn.methods.method import FACTORS, Losses, Method, UserRounds
from lpgcn.methods.traffic import SUMMED_BYTES, RoundTraffic
from lpgcn.model.kernels import Floats, Integers
from lpgcn.model.propagation import Nodes
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.machine import Machine

_OTHER: Final = {"users": "items", "items": "users"}


class FedGRecOptions(UserRounds, frozen=True, forbid_unknown_fields=True, kw_only=True):
    rounds_between: Annotated[
        int, Meta(ge=1, description="Rounds R from one synchronisation to the next.")
    ] = 10


class FedGRec(Factorisation):
    """See `Learner`: a factorisation with an offset for every vector."""

    def __init__(
        self, split: Split, config: Config, options: FedGRecOptions, machine: Machine
    ) -> None:
        super().__init__(split, config, machine, options.users_a_round)
        train, self._every = split.train, options.rounds_between
        kernels, config = machine.kernels, config.changed(model="lightgcn", option={})
        self._nodes = {
            "users": Nodes("the users", train.user_degrees, train.by_user, config, kernels),
            "items": Nodes("the items", train.item_degrees, train.by_item, config, kernels),
        }
        self._share = 1 / (config.layers + 1)
        self._latent: dict[str, tuple[Integers, ...]] = dict.fromkeys(self._nodes, ())
        """What an order would push, h^(l) |N|^-½ on the grid, for l = 1, …, L."""
        for _ in range(config.layers):
            self._synchronise()

    def _synchronise(self) -> None:
        """One exchange; while there are fewer orders than L, it adds one."""
        pushes = {
            name: (nodes.begin(self._adam[name].parameter).push, *self._latent[name])
            for name, nodes in self._nodes.items()
        }
        self._latent = {
            name: tuple(
                nodes.averages(push, nodes.forward_grid, "synchronisation")
                for push in pushes[_OTHER[name]][: self._config.layers]
            )
            for name, nodes in self._nodes.items()
        }
        self._offsets = {name: self._offset(name) for name in self._nodes}

    def _offset(self, name: str) -> Floats:
        """Σ_l h^(l)."""
        nodes = self._nodes[name]
        total = np.sum(self._latent[name], axis=0, dtype=np.int64)
        offset: Floats = total * (nodes.unscale * nodes.forward_grid.unit)[:, None]
        return offset.astype(self._config.dtype)

    def _vectors(self, name: str, rows: Int64) -> Floats:
        own = self._adam[name].parameter[rows] + self._offsets[name][rows]
        final: Floats = (own * self._share).astype(self._config.dtype)
        return final

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        count = epoch * self.steps_per_epoch + step
        if count and count % self._every == 0:
            self._synchronise()
        return super().step(epoch, step, learning_rate)

    def state(self) -> Tables:
        latent = {f"{name}.latent": np.stack(self._latent[name]) for name in self._nodes}
        return {**super().state(), **latent}

    def restore(self, state: Tables) -> None:
        super().restore(state)
        self._latent = {name: tuple(np.array(state[f"{name}.latent"])) for name in self._nodes}
        self._offsets = {name: self._offset(name) for name in self._nodes}

    def traffic(self) -> RoundTraffic:
        """A round: all item vectors down, all their gradients up. A synchronisation, of everybody:
        L orders of all items up, in a secure sum that must not tell which it has, and down; it is
        taken for a part of the round that it follows."""
        rounds = super().traffic()
        assert rounds is not None
        orders = self._config.layers * self._adam["items"].parameter.size
        numbers = orders * rounds.n_clients / self._every / rounds.taking_part
        return replace(
            rounds,
            up=rounds.up + numbers * SUMMED_BYTES,
            down=rounds.down + numbers * self._config.number_bytes,
        )


FEDGREC: Final = Method(
    name="fedgrec",
    summary="latent vectors of the graph, renewed now and then (Li & Huang, 2022)",
    fit=FedGRec,
    options=FedGRecOptions,
    protects="Single gradients and single vectors, by secure sums; a client's vectors never leave "
    "it. The sums are the server's: it sees from round to round which items its hundred clients "
    "touched, and an item that one user has gives away that user's latent vectors.",
    uses=FACTORS | {"layers", "dtype"},
    defaults={"lr": 0.01},
)
