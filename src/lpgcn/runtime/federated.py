"""The federation in one process, as an `Engine`: real parties, real messages, real ciphers.

The engine made the parties, so it can look into them: to save a checkpoint, and to compare their
parameters with a data centre's. The parties themselves see nothing but their own data and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import torch
from safetensors.torch import load, save
from torch import Tensor

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import METRICS, Evaluation
from lpgcn.model.sampling import catalogue
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.messages import Phase
from lpgcn.protocol.server import Planner, Server
from lpgcn.protocol.transcript import Witness
from lpgcn.runtime.engine import Part, Vectors
from lpgcn.runtime.inprocess import Calls, Host, InProcess, profiles
from lpgcn.runtime.traffic import TrafficSummary, summarise
from lpgcn.runtime.workers import Workers


class Federated:
    """A server and one client for every user."""

    def __init__(
        self,
        split: Split,
        config: Config,
        planner: Planner,
        workers: int = 1,
        watch: Callable[[Phase], None] | None = None,
        witness: Witness | None = None,
    ) -> None:
        """`witness` is told all that a party receives; then all of them are in this process."""
        self._split, self._config = split, config
        self._steps = 0
        started = profiles(split, config)
        alone = workers == 1 or witness is not None
        self._host: Host = InProcess(dict(started), witness) if alone else Workers(started, workers)
        try:
            self.server = Server(
                config, split.n_users, split.n_items, planner, Calls(self._host), witness
            )
            self.server.watch = watch
            self.server.initialise()
        except BaseException:
            self._host.close()
            raise

    def close(self) -> None:
        """End the clients."""
        self._host.close()

    @property
    def ledger(self) -> Ledger:
        return self.server.ledger

    @property
    def steps_per_epoch(self) -> int:
        return self.server.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        self.server.step(epoch, step, learning_rate)
        self._steps += 1

    def traffic(self) -> TrafficSummary:
        server = self.server
        example = server.batches.draw(0, 0)
        return summarise(
            self._config, server.plan, server.routes, self.ledger, self._steps, example
        )

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
        tables = self._tables("vectors")
        return Vectors(tables["users"], tables["items"])

    def _tables(self, action: str) -> dict[str, Tensor]:
        """Whole tables from the rows that the parties hold, named by `Client.<action>`."""
        everybody = ((user, b"") for user in range(self._split.n_users))
        tables: dict[str, Tensor] = {}
        for user, data in self._host.perform(action, everybody).items():
            held = load(data)
            rows = {"items": held.pop("rows", None), "users": torch.tensor([user])}
            for name, value in held.items():
                if value.dim() == 0:
                    tables[name] = value
                    continue
                kind = "users" if name.startswith("users") else "items"
                count = self._split.n_users if kind == "users" else self._split.n_items
                table = tables.setdefault(name, value.new_zeros((count, value.shape[1])))
                table[rows[kind]] = value
        return tables

    def state(self) -> dict[str, Tensor]:
        """As the centralised engine saves it, so a run can go on in another way to run."""
        return self._tables("export")

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Each client gets the rows that it holds, and no others."""
        order = catalogue(self._config.seed, self._split.n_items)

        def own(user: int) -> bytes:
            items = torch.from_numpy(order[self.server.routes.owned[user]])
            rows = {"users": torch.tensor([user])}
            return save(
                {
                    name: value[rows.get(name.partition(".")[0], items)] if value.dim() else value
                    for name, value in state.items()
                }
            )

        self._host.perform("restore", ((user, own(user)) for user in range(self._split.n_users)))

    def parameters(self) -> dict[str, Tensor]:
        suffix = ".parameter"
        return {
            name.removesuffix(suffix): value
            for name, value in self.state().items()
            if name.endswith(suffix)
        }

    def set_parameters(self, parameters: Mapping[str, Tensor]) -> None:
        named = {f"{name}.parameter": value for name, value in parameters.items()}
        self.restore({**self.state(), **named})

    def recommend(self, user: int, k: int) -> list[tuple[int, float]]:
        """On the user's own client: item indices and scores."""
        self.server.predict([user])
        answer = self._host.perform("recommend", [(user, msgspec.msgpack.encode(k))])[user]
        return msgspec.msgpack.decode(answer, type=list[tuple[int, float]])
