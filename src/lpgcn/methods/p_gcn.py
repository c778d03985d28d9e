"""P-GCN (Hu et al., 2023): LightGCN+ whose gradients end at the client's own first hop.

Forward propagation is complete, as in LP-GCN. But what a client receives from others is a number to
it, not a function of parameters. Of the sums

    e_u = α Σ_l e_u^(l)      e_u^(0) = |I_u|^-½ Σ_{i ∈ I_u} W_i
                             e_u^(1) = |I_u|^-½ Σ_{i ∈ I_u} |U_i|^-½ V_i
    e_i = α Σ_l e_i^(l)      e_i^(0) = V_i

the other terms, e_u^(l) for l ≥ 2 and e_i^(l) for l ≥ 1, are made of received vectors and have no
gradient. With g = ∂Loss/∂e that leaves, instead of L exchanges backward,

    ∂Loss/∂V_i = α (g_i + |U_i|^-½ Σ_u |I_u|^-½ g_u)      ∂Loss/∂W_i = α Σ_u |I_u|^-½ g_u

added up by a secure sum, exact here. Steps are rounds of users. All of it is the centralised engine
with one exchange backward.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.evaluation import Vectors
from lpgcn.methods.method import FACTORS, Losses, Method, UserRounds
from lpgcn.methods.traffic import SUMMED_BYTES, RoundTraffic
from lpgcn.model.adam import Gradient
from lpgcn.model.backbones import BUILDING
from lpgcn.model.batches import UserBatches
from lpgcn.model.propagation import Backward, gradient_of_building
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine

BACKBONE: Final = "lightgcn+"


class FirstHop(Centralized):
    """The backbone in rounds of users, with gradients of the first hop only."""

    def __init__(self, split: Split, config: Config, users_a_round: int, machine: Machine) -> None:
        self._users_a_round = users_a_round
        super().__init__(split, config, machine)

    def _sampler(self, train: Interactions, term: int) -> Sampler:
        return Sampler(train, self._config, users_a_round=self._users_a_round)

    def _backward(self, users: Backward, items: Backward, batch_size: int) -> dict[str, Gradient]:
        built = gradient_of_building(self._items, users.push_to_built(), batch_size)
        items = items.absorb(users.push, users.largest)
        return {"items": items.gradient(batch_size), BUILDING: built}


class PGcn:
    """See `Learner`."""

    def __init__(self, split: Split, config: Config, users_a_round: int, machine: Machine) -> None:
        # The grid of gradients is chosen by the largest batch.
        largest = int(np.sort(split.train.user_degrees)[-users_a_round:].sum())
        backbone = config.changed(model=BACKBONE, option={}, batch_size=largest)
        self._engine = FirstHop(split, backbone, users_a_round, machine)
        rounds = self._engine.sampler.batches
        assert isinstance(rounds, UserBatches)
        self._rounds, self._split, self._config = rounds, split, config

    @property
    def steps_per_epoch(self) -> int:
        return self._engine.steps_per_epoch

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        self._engine.step(epoch, step, learning_rate)
        size = int(self._rounds.list_sizes[self._rounds.round_of(epoch, step)].sum())
        return Losses(self._engine.take_loss() * size, size)

    def scorer(self) -> Vectors:
        return self._engine.present()

    def state(self) -> Tables:
        return self._engine.state()

    def restore(self, state: Tables) -> None:
        self._engine.restore(state)

    def traffic(self) -> RoundTraffic:
        """Everybody: W of its items down, then a layer after the other its own vector up and those
        of its items down. Who is in the round: all final item vectors down, all gradients of V and
        W up, for which items a client has must not be told."""
        config, split = self._config, self._split
        vector = config.dim * config.number_bytes
        own = len(split.train) / split.n_users * vector
        numbers = split.n_items * config.dim / self.steps_per_epoch
        return RoundTraffic(
            n_clients=split.n_users,
            taking_part=split.n_users,
            up=config.layers * vector + 2 * numbers * SUMMED_BYTES,
            down=(config.layers + 1) * own + numbers * config.number_bytes,
            rounds=config.layers + 2,
        )


def fit(split: Split, config: Config, options: UserRounds, machine: Machine) -> PGcn:
    return PGcn(split, config, options.users_a_round, machine)


P_GCN: Final = Method(
    name="p-gcn",
    summary="federated LightGCN+ with gradients of the first hop only (Hu et al., 2023)",
    fit=fit,
    options=UserRounds,
    protects="Gradients, by a secure sum. A client's vectors of every layer go to others, who can "
    "score it with them, and whose items they are used for is known to whoever hands them on.",
    uses=FACTORS | {"layers", "dtype"},
)
