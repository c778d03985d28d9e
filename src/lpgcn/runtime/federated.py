"""The federation in one process, as an `Engine`: real parties, real messages, real ciphers.

The engine made the parties, so it can look into them: to save a checkpoint, and to compare their
parameters with a data centre's. The parties themselves see nothing but their own data and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import METRICS, Evaluation
from lpgcn.model.adam import Adam
from lpgcn.plan import Plan, TokenGraph, cover
from lpgcn.protocol.client import Client
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.server import Server
from lpgcn.runtime.engine import Part, Vectors
from lpgcn.runtime.inprocess import InProcess, profiles


class Federated:
    """A server and one client for every user."""

    def __init__(self, split: Split, config: Config) -> None:
        self._split, self._config = split, config
        self.clients = [Client(profile) for profile in profiles(split, config)]
        self.server = Server(
            config, split.n_users, split.n_items, self._plan, InProcess(self.clients)
        )
        self.server.initialise()

    def _plan(self, graph: TokenGraph) -> Plan:
        return cover(graph, self._config.seed)

    @property
    def ledger(self) -> Ledger:
        return self.server.ledger

    @property
    def steps_per_epoch(self) -> int:
        return self.server.steps_per_epoch

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        self.server.step(epoch, step, learning_rate)

    def take_loss(self) -> float:
        return self.server.take_loss()

    def measure(self, part: Part) -> Evaluation:
        totals, count = self.server.measure(part)
        names = [f"{metric}@{k}" for k in self._config.cutoffs for metric in METRICS]
        values = {name: total / count for name, total in zip(names, totals, strict=True)}
        return Evaluation(values, count)

    def forward(self) -> Vectors:
        """The final vectors, as the parties have them after a prediction."""
        self.server.predict([])
        dtype = getattr(torch, self._config.dtype)
        items = torch.zeros((self._split.n_items, self._config.dim), dtype=dtype)
        for client in self.clients:
            if (owner := client.passes.owner) is not None:
                items[torch.from_numpy(owner.items)] = owner.nodes.final()
        users = torch.cat([client.passes.user.nodes.final() for client in self.clients])
        return Vectors(users, items)

    def _adams(self) -> dict[str, list[tuple[Tensor, Adam]]]:
        """Every table of parameters as the rows that its owners hold."""
        tables: dict[str, list[tuple[Tensor, Adam]]] = {}
        for user, client in enumerate(self.clients):
            if (owner := client.passes.owner) is not None:
                for name, adam in owner.adam.items():
                    tables.setdefault(name, []).append((torch.from_numpy(owner.items), adam))
            if (own := client.passes.user.adam) is not None:
                tables.setdefault("users", []).append((torch.tensor([user]), own))
        return tables

    def state(self) -> dict[str, Tensor]:
        """As the centralised engine would save it: a run can go on in another way to run."""
        rows = {"users": self._split.n_users}
        state: dict[str, Tensor] = {}
        for name, parts in self._adams().items():
            for index, adam in parts:
                for key, value in adam.state().items():
                    if value.dim() == 0:
                        state[f"{name}.{key}"] = value
                        continue
                    size = (rows.get(name, self._split.n_items), value.shape[1])
                    table = state.setdefault(f"{name}.{key}", value.new_zeros(size))
                    table[index] = value
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        for name, parts in self._adams().items():
            for index, adam in parts:
                values = {key: state[f"{name}.{key}"] for key in adam.state()}
                adam.restore({k: v if v.dim() == 0 else v[index] for k, v in values.items()})

    def parameters(self) -> dict[str, Tensor]:
        suffix = ".parameter"
        return {
            name.removesuffix(suffix): value
            for name, value in self.state().items()
            if name.endswith(suffix)
        }

    def set_parameters(self, parameters: Mapping[str, Tensor]) -> None:
        for name, parts in self._adams().items():
            for index, adam in parts:
                adam.parameter.copy_(parameters[name][index])

    def recommend(self, user: int, k: int) -> list[tuple[int, float]]:
        """On the user's own client: item indices and scores."""
        self.server.predict([user])
        return self.clients[user].recommend(k)
