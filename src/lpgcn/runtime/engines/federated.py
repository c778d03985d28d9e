"""The federation on one machine: real parties, real messages, real ciphers.

The engine made the parties, so an `Inspector` can look into them: to compare their parameters with
a data centre's, and to save a model. The parties themselves see nothing but their own data and
bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from lpgcn.array_types import Int64
from lpgcn.checkpoints import InFolder, InMemory
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import Vectors
from lpgcn.model.backbones import backbone_of
from lpgcn.protocol.server.server import Line, Planner, Watch
from lpgcn.protocol.transcript import Witness
from lpgcn.runtime.engines.engine import Inspector, Tables
from lpgcn.runtime.engines.federation import Federation
from lpgcn.runtime.hosts.one_process import (
    Arguments,
    Calls,
    Host,
    OneProcess,
    profiles,
    public_features,
)
from lpgcn.runtime.hosts.workers import Workers


class Federated(Federation):
    """A server and one client for every user."""

    def __init__(
        self,
        split: Split,
        config: Config,
        planner: Planner,
        workers: int = 1,
        watch: Watch | None = None,
        witness: Witness | None = None,
        *,
        folder: Path | None = None,
        members: Int64 | None = None,
    ) -> None:
        """`witness` is told all that a party receives; then all of them are in this process.
        Checkpoints are in `folder`, a folder for each party, or end with the process."""
        members = np.arange(split.n_users) if members is None else members
        clients = None if folder is None else folder / "clients"

        def start() -> Host:
            started, features = profiles(split, config, len(members)), public_features(split)
            processes = min(workers, split.n_users)
            if processes == 1 or witness is not None:
                return OneProcess(dict(started), witness, clients, features)
            return Workers(started, processes, clients, features)

        self._host = _StartedWhenAsked(start)
        self._inspector = _Inside(split, config, self._host, self)
        super().__init__(
            config, members, split.n_items, planner, Line(Calls(self._host), witness, watch),
            InMemory() if folder is None else InFolder(folder / "server"),
        )  # fmt: skip

    def close(self) -> None:
        """End the clients."""
        self._host.close()

    def inspector(self) -> Inspector:
        return self._inspector

    def recommend(self, user: int, k: int) -> list[tuple[int, float]]:
        """On the user's own client: item indices and scores."""
        self.server.predict([user])
        ((_, answer),) = self._host.perform("recommend", [(user, msgspec.msgpack.encode(k))])
        return msgspec.msgpack.decode(answer, type=list[tuple[int, float]])


class _StartedWhenAsked:
    """A host that is started at its first call: its clients then read their folders, which have
    been another run's until this one begins."""

    def __init__(self, start: Callable[[], Host]) -> None:
        self._start = start
        self._host: Host | None = None

    def perform(self, action: str, arguments: Arguments) -> Arguments:
        self._host = self._host or self._start()
        return self._host.perform(action, arguments)

    def close(self) -> None:
        if self._host is not None:
            self._host.close()


class _Inside:
    """Whole tables from the rows that the parties hold."""

    def __init__(self, split: Split, config: Config, host: Host, federation: Federation) -> None:
        self._split, self._host, self._federation = split, host, federation
        backbone = backbone_of(config)
        self._tables, self._shared = backbone.tables, backbone.shared()

    def scorer(self) -> Vectors:
        tables = self._gathered("vectors")
        return Vectors(tables["users"], tables["items"])

    def state(self) -> Tables:
        return self._gathered("export")

    def _gathered(self, action: str) -> Tables:
        """Rows of those who are no members are zero."""
        members = ((member, b"") for member in self._federation.server.term.members.tolist())
        tables: Tables = {}
        for user, data in self._host.perform(action, members):
            held = load(data)
            rows = {"items": held.pop("rows"), "users": np.array([user])}
            for name, value in held.items():
                kind = self._kind(name)
                if kind is None:
                    _check_copy(name, value, tables.setdefault(name, value), user)
                    continue
                count = self._split.n_users if kind == "users" else self._split.n_items
                shape = (count, *value.shape[1:])
                table = tables.setdefault(name, np.zeros(shape, dtype=value.dtype))
                table[rows[kind]] = value
        return tables

    def _kind(self, name: str) -> str | None:
        """Whether a table has a row for each user or for each item; None if everybody has all of
        it."""
        table = name.partition(".")[0]
        if table in self._shared:
            return None
        return self._tables[table].kind if table in self._tables else table


def _check_copy(name: str, copy: npt.NDArray[Any], first: npt.NDArray[Any], user: int) -> None:
    if copy.tobytes() != first.tobytes():
        raise LpgcnError(
            f"client {user} has another copy of {name} than the clients before it, expected the "
            "same bits everywhere; this is a defect, please report it"
        )
