"""The federation on one machine, as an `Engine`: real parties, real messages, real ciphers.

The engine made the parties, so it can look into them: to save a checkpoint, and to compare their
parameters with a data centre's. The parties themselves see nothing but their own data and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Evaluation
from lpgcn.model.backbone import BACKBONES
from lpgcn.model.sampling import catalogue
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.server.server import Planner, Watch, initialise
from lpgcn.protocol.transcript import Witness
from lpgcn.runtime.arrays import packed
from lpgcn.runtime.engines.engine import Part, Tables, Vectors
from lpgcn.runtime.hosts.one_process import Calls, Host, OneProcess, profiles
from lpgcn.runtime.hosts.workers import Workers
from lpgcn.runtime.traffic import TrafficSummary, summarise


class Federated:
    """A server and one client for every user."""

    def __init__(
        self,
        split: Split,
        config: Config,
        planner: Planner,
        workers: int = 1,
        watch: Watch | None = None,
        witness: Witness | None = None,
    ) -> None:
        """`witness` is told all that a party receives; then all of them are in this process."""
        self._split, self._config = split, config
        self._steps = 0
        started = profiles(split, config)
        alone = workers == 1 or witness is not None
        self._host: Host = (
            OneProcess(dict(started), witness) if alone else Workers(started, workers)
        )
        try:
            self.server = initialise(
                config,
                split.n_users,
                split.n_items,
                planner,
                Calls(self._host),
                witness=witness,
                watch=watch,
            )
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
            self._config, server.plan, server.topology, self.ledger, self._steps, example
        )

    def take_loss(self) -> float:
        return self.server.take_loss()

    def measure(self, part: Part) -> Evaluation:
        return self.server.measure(part)

    def vectors(self) -> Vectors:
        """The final vectors, as the parties have them after a measurement."""
        tables = self._tables("vectors")
        return Vectors(tables["users"], tables["items"])

    def _tables(self, action: str) -> Tables:
        """Whole tables from the rows that the parties hold."""
        everybody = ((user, b"") for user in range(self._split.n_users))
        tables: Tables = {}
        for user, data in self._host.perform(action, everybody):
            held = load(data)
            rows = {"items": held.pop("rows"), "users": np.array([user])}
            for name, value in held.items():
                if value.ndim == 0:
                    tables[name] = value
                    continue
                kind = self._kind(name)
                count = self._split.n_users if kind == "users" else self._split.n_items
                shape = (count, value.shape[1])
                table = tables.setdefault(name, np.zeros(shape, dtype=value.dtype))
                table[rows[kind]] = value
        return tables

    def _kind(self, name: str) -> str:
        """Whether a table has a row for each user or for each item."""
        table = name.partition(".")[0]
        tables = BACKBONES[self._config.model].tables
        return tables[table].kind if table in tables else table

    def state(self) -> Tables:
        """As the centralised engine saves it, so a run can go on in another way to run."""
        return self._tables("export")

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Each client gets the rows that it holds, and no others."""
        order = catalogue(self._config.seed, self._split.n_items)

        def own(user: int) -> bytes:
            rows = {"users": np.array([user]), "items": order[self.server.topology.owned[user]]}
            return packed(
                {
                    name: value[rows[self._kind(name)]] if value.ndim else value
                    for name, value in state.items()
                }
            )

        everybody = ((user, own(user)) for user in range(self._split.n_users))
        dict(self._host.perform("restore", everybody))

    def parameters(self) -> Tables:
        suffix = ".parameter"
        return {
            name.removesuffix(suffix): value
            for name, value in self.state().items()
            if name.endswith(suffix)
        }

    def set_parameters(self, parameters: Mapping[str, npt.NDArray[Any]]) -> None:
        named = {f"{name}.parameter": value for name, value in parameters.items()}
        self.restore({**self.state(), **named})

    def recommend(self, user: int, k: int) -> list[tuple[int, float]]:
        """On the user's own client: item indices and scores."""
        self.server.predict([user])
        ((_, answer),) = self._host.perform("recommend", [(user, msgspec.msgpack.encode(k))])
        return msgspec.msgpack.decode(answer, type=list[tuple[int, float]])
