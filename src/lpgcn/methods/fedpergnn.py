"""FedPerGNN: every client convolves its own small graph (Wu et al., Nature Communications 2022).

A client's graph has itself, its items, and at these the vectors c_v of the users who share them, as
constants: a third party matches encrypted item ids, and hands out what users had at the last
*expansion*. Two convolutions with LightGCN's weights reach that far,

    h_u = ⅓ (e_u + Σ_{i ∈ I_u} w_ui e_i + Σ_{i ∈ I_u} w_ui (w_ui e_u + Σ_{v ∈ U_i, v ≠ u} w_vi c_v))
    w_ui = (|I_u||U_i|)^-½      y_ui = h_u · e_i

and the BPR loss of the client's samples, with ½λ(‖e_u‖² + ‖e_i‖² + ‖e_j‖²) each, gives its gradient
g_i for every item that it touches. (Wu et al. leave the convolution open, and fit ratings; the
paper compares with BPR. A candidate is not in the client's graph: it has its own vector alone.) To
hide what it has, a client also takes M pseudo items, whose gradients are drawn from the normal
distribution with the mean and the covariance of its items' gradients; then

    g_i ← clip(g_i, δ) + Laplace(0, b), number by number: ε = 2δ/b for each number in a round

and the server adds up what all clients of the round sent, divides by their samples and makes a step
of Adam. Gradients are clipped before that division, client by client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np
from msgspec import Meta

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Vectors
from lpgcn.methods.autograd import Parameters, gradients, weighted_sums
from lpgcn.methods.method import FACTORS, Losses, Method, UserRounds
from lpgcn.methods.traffic import RoundTraffic
from lpgcn.model.batches import Batch
from lpgcn.model.initial import initial_vectors
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, normal, uniform
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine

if TYPE_CHECKING:
    import torch


class FedPerGnnOptions(UserRounds, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """See the formulas of this module."""

    clip: Annotated[float, Meta(gt=0, description="δ, the most of any number of a gradient.")] = 0.1
    noise: Annotated[float, Meta(ge=0, description="b, the scale of the Laplace noise.")] = 0.01
    pseudo_items: Annotated[int, Meta(ge=0, description="M of a client in a round.")] = 20
    expand_every: Annotated[
        int, Meta(ge=1, description="Epochs between expansions; neighbours are zero before.")
    ] = 1


class RoundPairs(NamedTuple):
    """The (client, item) pairs that the clients of a round touch: all items of each, then, once
    each, their negatives. Clients are by their rank in the round, a sample's items by pair."""

    clients: Int64
    own: Ragged
    """Interactions, by their numbers, of every client."""
    client: Int64
    item: Int64
    drawn_as: Int64
    """For every pair a number of its own, by which its noise is drawn."""
    sample_client: Int64
    positive: Int64
    negative: Int64


class FedPerGnn:
    """See `Learner`."""

    def __init__(
        self, split: Split, config: Config, options: FedPerGnnOptions, machine: Machine
    ) -> None:
        self._config, self._options, self._train = config, options, split.train
        self._sampler = Sampler(split.train, config, users_a_round=options.users_a_round)
        self._entries = Ragged(split.train.by_user.offsets, np.arange(len(split.train)))
        self._weights = split.train.edge_weights
        self._back = np.bincount(split.train.users, self._weights**2, split.n_users)
        """Σ_i w_ui²: what comes back to a user from its own items."""
        vectors = initial_vectors(config, split.n_users, split.n_items)
        self._parameters = Parameters(vectors, machine)
        self._around = np.zeros_like(self._parameters["users"])
        """Of every user Σ_i w_ui Σ_{v ≠ u} w_vi c_v: what its neighbours were when it was told."""

    @property
    def steps_per_epoch(self) -> int:
        return self._sampler.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        if step == 0 and epoch and epoch % self._options.expand_every == 0:
            self._expand()
        batch = self._sampler.batches.draw(epoch, step)
        assert isinstance(batch, Batch), "rounds have no pools"
        touched = self._touched(batch)
        leaves = self._parameters.leaves({"users": touched.clients, "items": touched.item})
        loss = self._loss(touched, leaves["users"].tensor, leaves["items"].tensor)
        by_user, by_pair = gradients(loss, leaves)
        item, gradient = self._sent(touched, by_pair, epoch)
        rows, summed = added_up(item, gradient)
        size, step_with = batch.size, self._parameters.step_with
        step_with("users", by_user / size, touched.clients, learning_rate, own=True)
        step_with("items", summed / size, rows, learning_rate, own=False)
        return Losses(float(loss.detach()), size)

    def _expand(self) -> None:
        """Everybody's vector goes to those who share an item with it."""
        import torch

        train, vectors = self._train, torch.tensor(self._parameters["users"])
        by_item = np.argsort(train.items, kind="stable")
        users_of = Ragged.from_lengths(train.item_degrees, train.users[by_item])
        at_items = weighted_sums(vectors, users_of, self._weights[by_item])
        reached = weighted_sums(at_items, train.by_user, self._weights)
        own = torch.from_numpy(self._back[:, None]).to(vectors.dtype) * vectors
        self._around = (reached - own).numpy()

    def _touched(self, batch: Batch) -> RoundPairs:
        pairs, n_items = self._sampler.pairs(batch), self._train.n_items
        clients = np.unique(batch.users)
        own = self._entries.only(clients)
        keys = own.rows * n_items + self._train.items[own.values]
        client = np.searchsorted(clients, batch.users)
        ids = self._sampler.item_ids[pairs.items]
        positive = np.searchsorted(keys, client * n_items + ids[pairs.positive])
        found, first, negative = np.unique(
            client * n_items + ids[pairs.negative], return_index=True, return_inverse=True
        )
        every = np.concatenate((keys, found))
        # A sample is known by the number of an interaction, too; noise keeps the two apart.
        drawn_as = np.concatenate((2 * own.values, 2 * batch.positions[first] + 1))
        return RoundPairs(
            clients, own, every // n_items, every % n_items, drawn_as, client,
            positive, len(keys) + negative,
        )  # fmt: skip

    def _loss(self, touched: RoundPairs, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """The sum over all samples of the round."""
        import torch
        from torch.nn.functional import softplus

        own = Ragged(touched.own.offsets, np.arange(len(touched.own.values)))
        final = self._convolved(touched.clients, users, items, own, touched.own.values)
        client, positive, negative = (
            torch.from_numpy(of)
            for of in (touched.sample_client, touched.positive, touched.negative)
        )
        i, j = items.index_select(0, positive), items.index_select(0, negative)
        margin = (final.index_select(0, client) * (i - j)).sum(1)
        squares = users.square().sum(1)[client] + i.square().sum(1) + j.square().sum(1)
        return (softplus(-margin) + 0.5 * self._config.reg * squares).sum()

    def _convolved(
        self, ids: Int64, users: torch.Tensor, items: torch.Tensor, own: Ragged, entries: Int64
    ) -> torch.Tensor:
        """h of some users; `own` are the rows of `items` that they have, by `entries`."""
        import torch

        back = torch.from_numpy(1 + self._back[ids, None]).to(users.dtype)
        first = weighted_sums(items, own, self._weights[entries])
        return (back * users + first + torch.from_numpy(self._around[ids])) / 3

    def _sent(self, touched: RoundPairs, gradient: Floats, epoch: int) -> tuple[Int64, Floats]:
        """What the clients say: items, and for each a gradient, hidden as well as may be."""
        seed, many, d = self._config.seed, self._options.pseudo_items, gradient.shape[1]
        own, n_items = touched.own, self._train.n_items
        chosen = uniform(seed, Purpose.PSEUDO_ITEM, touched.clients, epoch, count=many) * n_items
        pseudo = pseudo_gradients(
            gradient[: len(own.values)],
            own,
            normal(seed, Purpose.PSEUDO_GRADIENT, own.values, epoch, count=many),
        )
        item = np.concatenate((touched.item, chosen.astype(np.int64).reshape(-1)))
        clipped = np.concatenate((gradient, pseudo.reshape(-1, d).astype(gradient.dtype)))
        np.clip(clipped, -self._options.clip, self._options.clip, out=clipped)
        numbers = (touched.clients[:, None] * many + np.arange(many)).reshape(-1)
        draws = np.concatenate(
            (
                uniform(seed, Purpose.PRIVACY_NOISE, touched.drawn_as, epoch, count=d),
                uniform(seed, Purpose.PRIVACY_NOISE, numbers, epoch, first=4 * d, count=d),
            )
        )
        clipped += laplace(draws, self._options.noise).astype(gradient.dtype)
        return item, clipped

    def scorer(self) -> Vectors:
        import torch

        users, items = (torch.tensor(self._parameters[name]) for name in ("users", "items"))
        every = np.arange(len(users))
        own = self._train.by_user
        final = self._convolved(every, users, items, own, self._entries.values)
        return Vectors(final.numpy(), items.numpy())

    def state(self) -> Tables:
        return {**self._parameters.state(), "around": self._around.copy()}

    def restore(self, state: Tables) -> None:
        self._parameters.restore(state)
        self._around = np.array(state["around"])

    def traffic(self) -> RoundTraffic | None:
        """Down all item vectors; up gradients, with the item's number, of a client's items, as many
        negatives and the pseudo items. At an expansion a vector and tokens of items up, and down
        one vector for each shared item and user who shares it."""
        n_users, d, train = self._train.n_users, self._config.dim, self._train
        degree, every = len(train) / n_users, self._options.expand_every
        shared = float((train.item_degrees * (train.item_degrees - 1)).sum()) / n_users
        up = (2 * degree + self._options.pseudo_items) * (d + 1) + (d + degree) / every
        down = train.n_items * d + shared * d / every
        return RoundTraffic(
            n_clients=n_users,
            taking_part=n_users / self.steps_per_epoch,
            up=up * self._config.number_bytes,
            down=down * self._config.number_bytes,
        )


def pseudo_gradients(gradient: Floats, own: Ragged, mixing: Float64) -> Float64:
    """For every client as many as `mixing` has columns: (clients, M, d).

    mean + Σ_k z_k (g_k − mean) / √(n − 1) with standard normal z has the mean and the covariance of
    the client's n gradients, whatever they are.
    """
    length = own.lengths[:, None]
    starts = own.offsets[:-1]
    mean = np.add.reduceat(gradient.astype(np.float64), starts) / length
    apart = (gradient - mean[own.rows]) / np.sqrt(np.maximum(length - 1, 1))[own.rows]
    columns = [mean + np.add.reduceat(apart * z[:, None], starts) for z in mixing.T]
    return np.stack(columns, axis=1) if columns else np.empty((len(own), 0, gradient.shape[1]))


def laplace(draws: Float64, scale: float) -> Float64:
    """Laplace(0, scale) from uniform numbers in [0, 1) of 32 bits."""
    centred = draws - 0.5 + 2.0**-33
    noise: Float64 = -scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))
    return noise


def added_up(item: Int64, gradient: Floats) -> tuple[Int64, Floats]:
    """Each item once, ascending, and the sum of its gradients."""
    order = np.argsort(item, kind="stable")
    rows, first = np.unique(item[order], return_index=True)
    return rows, np.add.reduceat(gradient[order], first)


FEDPERGNN: Final = Method(
    name="fedpergnn",
    summary="federated graph convolution of local graphs, with noise (Wu et al., 2022)",
    fit=FedPerGnn,
    options=FedPerGnnOptions,
    protects="Every number of a gradient is hidden in Laplace noise, ε = 2·clip/noise a round, but "
    "thousands of numbers and all rounds add up, to no protection worth the name. Items that a "
    "client sends gradients of in every epoch are its own; the third party sees who shares items.",
    uses=FACTORS | {"dtype"},
    needs_torch=True,
)
