"""Neural collaborative filtering with the BPR loss, centralised and federated.

The multi-layer perceptron of He et al. (2017), as the paper compares it: two hidden layers 2d → d
on concatenated vectors, and BPR as in Wang et al. (2019),

    x^(1) = ReLU([e_u, e_i] W_0 + b_0)      x^(2) = ReLU(x^(1) W_1 + b_1)      y_ui = x^(2) · h
    Loss = Σ_(u,i,j) [−ln σ(y_ui − y_uj) + ½λ(‖e_u‖² + ‖e_i‖² + ‖e_j‖²)] / B

FedNCF (Jiang et al., 2022) is the same model with rounds of users: who is in a round downloads item
vectors and perceptron, makes the step of its own vector, and adds its gradients of all else to a
secure sum. Here autograd adds them up at once, which is that sum but for rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation.scorers import Perceptron
from lpgcn.methods.autograd import Leaf, Parameters, xavier
from lpgcn.methods.method import FACTORS, Losses, Method, UserRounds
from lpgcn.methods.traffic import RoundTraffic
from lpgcn.model.batches import Batch
from lpgcn.model.initial import initial_vectors
from lpgcn.model.kernels import Floats
from lpgcn.model.losses.bpr import Pairs
from lpgcn.random import Purpose
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine

if TYPE_CHECKING:
    import torch

SHARED: Final = ("items", "weight_0", "bias_0", "weight_1", "bias_1", "output")
"""All tables but the users' own."""


class NeuralFiltering:
    """See `Learner`."""

    def __init__(
        self, split: Split, config: Config, machine: Machine, users_a_round: int | None = None
    ) -> None:
        self._config, self._users_a_round = config, users_a_round
        self._sampler = Sampler(split.train, config, users_a_round=users_a_round)
        self._parameters = Parameters(initial_tables(split, config), machine)

    @property
    def steps_per_epoch(self) -> int:
        return self._sampler.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        batch = self._sampler.batches.draw(epoch, step)
        assert isinstance(batch, Batch), "softmax is refused"
        pairs = self._sampler.pairs(batch)
        user_ids, user = np.unique(pairs.users, return_inverse=True)
        item_ids, item = np.unique(self._sampler.item_ids[pairs.items], return_inverse=True)
        leaves = self._parameters.leaves(
            {"users": user_ids, **dict.fromkeys(SHARED), "items": item_ids}
        )
        touched = Pairs(user, item, pairs.positive, pairs.negative)
        loss = bpr_loss(leaves, touched, self._config.reg)
        # A user's vector is its own to change, so nobody else's steps in a round.
        local = () if self._users_a_round is None else ("users",)
        self._parameters.step(loss, leaves, learning_rate, local)
        return Losses(float(loss.detach()) * batch.size, batch.size)

    def scorer(self) -> Perceptron:
        tables = {name: self._parameters[name].copy() for name in ("users", *SHARED)}
        return Perceptron(
            tables["users"],
            tables["items"],
            (tables["weight_0"], tables["weight_1"]),
            (tables["bias_0"][0], tables["bias_1"][0]),
            tables["output"][:, 0],
        )

    def state(self) -> Tables:
        return self._parameters.state()

    def restore(self, state: Tables) -> None:
        self._parameters.restore(state)

    def traffic(self) -> RoundTraffic | None:
        """All item vectors and the perceptron down, all their gradients up."""
        if self._users_a_round is None:
            return None
        shared = sum(self._parameters[name].size for name in SHARED)
        n_users = len(self._sampler.members)
        return RoundTraffic.summed(shared, self._config, n_users, self.steps_per_epoch)


def initial_tables(split: Split, config: Config) -> dict[str, Floats]:
    """Vectors as those of our backbones, matrices by Xavier, biases at zero."""
    d = config.dim
    return {
        **initial_vectors(config, split.n_users, split.n_items),
        "weight_0": xavier(config, Purpose.PERCEPTRON, (2 * d, 2 * d), 0),
        "bias_0": np.zeros((1, 2 * d), dtype=config.dtype),
        "weight_1": xavier(config, Purpose.PERCEPTRON, (2 * d, d), 1),
        "bias_1": np.zeros((1, d), dtype=config.dtype),
        "output": xavier(config, Purpose.PERCEPTRON, (d, 1), 2),
    }


def bpr_loss(leaves: dict[str, Leaf], pairs: Pairs, reg: float) -> torch.Tensor:
    """The loss of a batch; pairs are of the rows of the leaves, and each is scored once."""
    import torch
    from torch.nn.functional import softplus

    users, items, weight_0, bias_0, weight_1, bias_1, output = (
        leaves[name].tensor for name in ("users", *SHARED)
    )
    d = users.shape[1]
    user, item = torch.from_numpy(pairs.users), torch.from_numpy(pairs.items)
    positive, negative = torch.from_numpy(pairs.positive), torch.from_numpy(pairs.negative)
    # The first map is a sum of one over the user's and one over the item's vector.
    of_users, of_items = users @ weight_0[:d] + bias_0, items @ weight_0[d:]
    hidden = torch.relu(of_users.index_select(0, user) + of_items.index_select(0, item))
    score = (torch.relu(hidden @ weight_1 + bias_1) @ output)[:, 0]
    margin = score.index_select(0, positive) - score.index_select(0, negative)
    count = torch.bincount(torch.cat((positive, negative)), minlength=len(pairs))
    squares = (users.square().sum(1)[user] / 2 + items.square().sum(1)[item]) * count
    return (softplus(-margin).sum() + 0.5 * reg * squares.sum()) / len(positive)


def fit_ncf(split: Split, config: Config, options: Any, machine: Machine) -> NeuralFiltering:
    return NeuralFiltering(split, config, machine)


def fit_fedncf(
    split: Split, config: Config, options: UserRounds, machine: Machine
) -> NeuralFiltering:
    return NeuralFiltering(split, config, machine, options.users_a_round)


NCF: Final = Method(
    name="ncf",
    summary="neural collaborative filtering: the perceptron, with BPR (He et al., 2017)",
    fit=fit_ncf,
    protects="Nothing: the data centre has all interactions.",
    uses=FACTORS | {"batch_size", "dtype"},
    needs_torch=True,
)
FEDNCF: Final = Method(
    name="fedncf",
    summary="federated neural collaborative filtering, BPR (Jiang et al., 2022)",
    fit=fit_fedncf,
    options=UserRounds,
    protects="Single gradients, by a secure sum; a client's vector never leaves it. Whoever sees "
    "the item vectors before and after a round sees which items its clients touched, and "
    "from many rounds, who has what can be guessed.",
    uses=FACTORS | {"dtype"},
    needs_torch=True,
)
