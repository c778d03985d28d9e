"""PerFedRec: a global, a cluster's and a local model for every user (Luo et al., CIKM 2022).

No settings of it are published for data without attributes; the formulas here are ours, from its
idea. Three models like NGCF (Wang et al., 2019), one convolution over the client's own items each,

    m_u = Σ_{i ∈ I_u} (|I_u||U_i|)^-½ e_i
    f_u = e_u + LeakyReLU(m_u W_1 + (m_u ⊙ e_u) W_2)      y_ui = f_u · e_i

score an item, and their mean counts. They differ in their parameters:

    global    e_i, W_1, W_2 of everybody
    cluster   e_i + δ_i^c, W_1 + Δ_1^c, W_2 + Δ_2^c, with differences that cluster c shares
    local     e_i of everybody; in the place of W_1 and W_2 a factor for each number, of the
              client's own: like e_u, these are in no sum

The BPR loss of the mean score, with ½λ‖·‖² of the samples' e_u, e_i and δ_i^c, trains all of them.
The server puts users into clusters by the directions of their vectors e_u, which it is sent for
that (k-means, from the clusters before). Gradients of what is shared are added by secure sums.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from msgspec import Meta

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation.scorers import ClusteredVectors
from lpgcn.methods.autograd import Parameters, weighted_sums, xavier
from lpgcn.methods.clustering import moved, spherical_k_means
from lpgcn.methods.method import FACTORS, Losses, Method, UserRounds
from lpgcn.methods.traffic import RoundTraffic
from lpgcn.model.batches import Batch
from lpgcn.model.initial import initial_vectors
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine

if TYPE_CHECKING:
    import torch

_MATRICES: Final = ("matrices", "matrix_differences")


class PerFedRecOptions(UserRounds, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """See the formulas of this module."""

    clusters: Annotated[int, Meta(ge=1, description="Clusters of users.")] = 5
    cluster_every: Annotated[int, Meta(ge=1, description="Epochs between clusterings.")] = 5


class PerFedRec:
    """See `Learner`. Tables of all clusters are one below the other."""

    def __init__(
        self, split: Split, config: Config, options: PerFedRecOptions, machine: Machine
    ) -> None:
        self._config, self._options, self._train = config, options, split.train
        self._sampler = Sampler(split.train, config, users_a_round=options.users_a_round)
        self._entries = Ragged(split.train.by_user.offsets, np.arange(len(split.train)))
        self._weights = split.train.edge_weights
        self._clusters = min(options.clusters, split.n_users)
        self._parameters = Parameters(initial_tables(split, config, self._clusters), machine)
        self._cluster = np.zeros(split.n_users, dtype=np.int64)
        self._centres = np.zeros((self._clusters, config.dim))

    @property
    def steps_per_epoch(self) -> int:
        return self._sampler.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        if step == 0 and epoch % self._options.cluster_every == 0:
            self._recluster(first=epoch == 0)
        batch = self._sampler.batches.draw(epoch, step)
        assert isinstance(batch, Batch), "rounds have no pools"
        pairs, n_items = self._sampler.pairs(batch), self._train.n_items
        ids = self._sampler.item_ids[pairs.items]
        clients, own = (found := np.unique(batch.users)), self._entries.only(found)
        client = np.searchsorted(clients, batch.users)
        # Everything that is looked up: the clients' items, the positives and the negatives.
        item = np.concatenate(
            (self._train.items[own.values], ids[pairs.positive], ids[pairs.negative])
        )
        owner = np.concatenate((own.rows, client, client))
        rows, place = np.unique(item, return_inverse=True)
        differing, place_of_difference = np.unique(
            self._cluster[clients[owner]] * n_items + item, return_inverse=True
        )
        leaves = self._parameters.leaves(
            {
                "users": clients,
                "local": clients,
                "items": rows,
                "item_differences": differing,
                **dict.fromkeys(_MATRICES),
            }
        )
        tensors = {name: leaf.tensor for name, leaf in leaves.items()}
        loss = self._loss(tensors, clients, own, client, place, place_of_difference)
        self._parameters.step(loss / batch.size, leaves, learning_rate, ("users", "local"))
        return Losses(float(loss.detach()), batch.size)

    def _recluster(self, *, first: bool) -> None:
        users = self._parameters["users"].astype(np.float64)
        self._cluster, self._centres = (
            spherical_k_means(users, self._clusters, self._config.seed, Purpose.USER_CLUSTER)
            if first
            else moved(users, self._cluster, self._centres)
        )

    def _loss(
        self, tensors: dict[str, torch.Tensor], clients: Int64, own: Ragged, client: Int64,
        place: Int64, place_of_difference: Int64,
    ) -> torch.Tensor:  # fmt: skip
        """The sum over all samples of the round; places are of own items, positives, negatives."""
        import torch
        from torch.nn.functional import softplus

        items = tensors["items"].index_select(0, torch.from_numpy(place))
        differences = tensors["item_differences"].index_select(
            0, torch.from_numpy(place_of_difference)
        )
        local_own = Ragged(own.offsets, np.arange(len(own.values)))
        weights, cluster = self._weights[own.values], self._cluster[clients]
        shared, changed = convolved(tensors, items, differences, local_own, weights, cluster)
        n, m = len(own.values), len(own.values) + len(client)
        i, j, p, q = items[n:m], items[m:], differences[n:m], differences[m:]
        sample = torch.from_numpy(client)
        margin = (shared[sample] * (i - j) + changed[sample] * (i + p - j - q)).sum(1)
        everything = torch.cat((tensors["users"][sample], i, j, p, q))
        return softplus(-margin).sum() + 0.5 * self._config.reg * everything.square().sum()

    def scorer(self) -> ClusteredVectors:
        import torch

        names = ("users", "local", *_MATRICES, "items", "item_differences")
        tensors = {name: torch.tensor(self._parameters[name]) for name in names}
        items, n_items = tensors["items"], self._train.n_items
        by_cluster = items + tensors["item_differences"].view(-1, *items.shape)
        own, cluster = self._train.by_user, self._cluster
        # The rows of all clusters are one below the other, so an item of a user is one of these.
        in_cluster = Ragged(own.offsets, own.values + n_items * cluster[own.rows])
        every = by_cluster.view(-1, items.shape[1])
        mine = weighted_sums(every, in_cluster, self._weights)
        common = weighted_sums(items, own, self._weights)
        shared, changed = of_models(tensors, common, mine, cluster)
        return ClusteredVectors(
            torch.cat((shared, changed), dim=1).numpy(),
            cluster.copy(),
            torch.cat((items.expand_as(by_cluster), by_cluster), dim=2).numpy(),
        )

    def state(self) -> Tables:
        clusters = {"cluster": self._cluster.copy(), "centres": self._centres.copy()}
        return {**self._parameters.state(), **clusters}

    def restore(self, state: Tables) -> None:
        self._parameters.restore(state)
        self._cluster, self._centres = (np.array(state[name]) for name in ("cluster", "centres"))

    def traffic(self) -> RoundTraffic | None:
        """The global and the cluster's tables down, their gradients up, and, when there is a
        clustering, a client's vector."""
        n_users, d, number = self._train.n_users, self._config.dim, self._config.number_bytes
        tables = 2 * (self._train.n_items * d + 2 * d * d)
        rounds = RoundTraffic.summed(tables, self._config, n_users, self.steps_per_epoch)
        return replace(rounds, up=rounds.up + d / self._options.cluster_every * number)


def initial_tables(split: Split, config: Config, clusters: int) -> dict[str, Floats]:
    """Vectors as those of our backbones, matrices by Xavier, factors 1 and 0, differences 0."""
    d, kind, n = config.dim, config.dtype, split.n_items
    ones, zeros = np.ones((split.n_users, d)), np.zeros((split.n_users, d))
    return {
        **initial_vectors(config, split.n_users, n),
        "local": np.hstack((ones, zeros)).astype(kind),
        "matrices": np.vstack([xavier(config, Purpose.PERCEPTRON, (d, d), k) for k in (0, 1)]),
        "item_differences": np.zeros((clusters * n, d), dtype=kind),
        "matrix_differences": np.zeros((clusters * 2 * d, d), dtype=kind),
    }


def convolved(
    tensors: dict[str, torch.Tensor], items: torch.Tensor, differences: torch.Tensor, own: Ragged,
    weights: Float64, cluster: Int64,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """What `of_models` says, of clients whose items are these rows."""
    common = weighted_sums(items, own, weights)
    mine = weighted_sums(items + differences, own, weights)
    return of_models(tensors, common, mine, cluster)


def of_models(
    tensors: dict[str, torch.Tensor], common: torch.Tensor, mine: torch.Tensor, cluster: Int64
) -> tuple[torch.Tensor, torch.Tensor]:
    """⅓ (f_u of the global and of the local model), which meet e_i, and ⅓ f_u of the cluster's,
    which meets e_i + δ_i^c; from m_u by the global and by the cluster's item vectors."""
    import torch

    users, local = tensors["users"], tensors["local"]
    d = users.shape[1]
    matrices = tensors["matrices"].view(2, d, d)
    of_clusters = matrices + tensors["matrix_differences"].view(-1, 2, d, d)
    chosen = of_clusters[torch.from_numpy(cluster)]

    def model(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return users + torch.nn.functional.leaky_relu(first + second, 0.2)

    everybody = model(common @ matrices[0], (common * users) @ matrices[1])
    alone = model(common * local[:, :d], common * users * local[:, d:])
    together = model(
        torch.einsum("cd,cde->ce", mine, chosen[:, 0]),
        torch.einsum("cd,cde->ce", mine * users, chosen[:, 1]),
    )
    return (everybody + alone) / 3, together / 3


PERFEDREC: Final = Method(
    name="perfedrec",
    summary="a global, a cluster's and a local model for each user (Luo et al., 2022)",
    fit=PerFedRec,
    options=PerFedRecOptions,
    protects="Single gradients, by secure sums, one of them over the few users of a round that are "
    "in a cluster. The server is sent every client's vector, from which and the item vectors much "
    "of what it has can be read.",
    uses=FACTORS | {"dtype"},
    needs_torch=True,
)
