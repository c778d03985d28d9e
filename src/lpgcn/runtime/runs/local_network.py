"""A whole federation over a network, on this machine: broker, server and hosts, for experiments.

Everything is real: processes, sockets, TLS, credentials with rights of their own. What is started
here is stopped here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import Vectors
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker, ending_with_parent, free_port
from lpgcn.runtime.hosts.nats.credentials import Credentials
from lpgcn.runtime.runs.catalogue import PublicCatalogue
from lpgcn.runtime.runs.run_folder import Summary
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.serving import Serving, ServingObserver, serve
from lpgcn.runtime.runs.source import Source

_SECONDS_TO_END = 30.0


class LocalNetworkError(LpgcnError):
    """A folder that is in the way."""


class HostError(LpgcnError):
    """A host process ended before the run was over."""


@dataclass(frozen=True)
class HostProcess:
    """A host, and where it says what is wrong."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    def check(self) -> None:
        """Raise `HostError` if it ended badly. One that ended otherwise was told that the run is
        over, while the server may still be telling others."""
        if code := self.process.poll():
            raise HostError(f"{self.name} ended with exit code {code}; see {self.log}")

    def wait(self) -> None:
        """Until it has ended well, after the run."""
        try:
            self.process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            raise HostError(
                f"{self.name} still runs {_SECONDS_TO_END:g} s after the end of the run, and is "
                f"stopped; see {self.log}"
            ) from None
        self.check()


@dataclass(frozen=True)
class Processes:
    """What a federation on this machine cannot do without."""

    broker: Broker
    hosts: list[HostProcess] = field(default_factory=list)

    def check(self) -> None:
        self.broker.check()
        for host in self.hosts:
            host.check()


class LocalNetwork:
    """Folders in one place: federation/, server/, hosts/, and a folder for each client."""

    def __init__(self, folder: Path, source: Source, split: Split, hosts: int) -> None:
        self.folder, self._source, self._split = folder, source, split
        self.names = [f"host-{number}" for number in range(min(hosts, split.n_users))]
        self.server, self.clients = folder / "server", folder / "clients"
        self.catalogue = folder / "catalogue.txt"
        self.federation = self._made()

    def _made(self) -> FederationFolder:
        """A federation that is there is used again, so that a run can go on."""
        path = self.folder / "federation"
        if path.exists():
            return FederationFolder(path)
        if self.folder.exists() and any(self.folder.iterdir()):
            raise LocalNetworkError(
                f"{self.folder} has files already, and no federation of this kind; give a folder "
                "that is empty or does not exist, or that of a run to go on with"
            )
        made = FederationFolder.create(path, name=self._split.name, port=free_port())
        for credentials in made.enrol_all(self.names):
            credentials.save(self.credentials(credentials.name))
        PublicCatalogue.of(self._split.train, self._split.item_ids).write(self.catalogue)
        return made

    def credentials(self, name: str) -> Path:
        return self.folder / "hosts" / f"{name}.credentials"

    def users(self, number: int) -> range:
        """Those of a host."""
        ends = np.linspace(0, self._split.n_users, len(self.names) + 1).astype(int).tolist()
        return range(ends[number], ends[number + 1])

    def broker(self) -> Broker:
        return Broker(self.federation.config, log=self.folder / "broker.log")

    def host_command(self, number: int, config: Config) -> list[str]:
        users, besides = self.users(number), list[str]()
        if config.cooccurrence is not None:
            besides = ["--cooccurrence", config.cooccurrence]
        return [
            sys.executable, "-P", "-m", "lpgcn", "host", *self._source.flags(),
            "--users", f"{users.start}-{users.stop - 1}",
            "--credentials", str(self.credentials(self.names[number])),
            "--state", str(self.clients), "--experiment-seed", str(config.seed),
            "--suite", config.suite, *besides,
        ]  # fmt: skip

    def start_host(self, number: int, config: Config) -> subprocess.Popen[bytes]:
        with self._log(self.names[number]).open("ab") as log:
            return subprocess.Popen(
                ending_with_parent(self.host_command(number, config)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def options(self) -> dict[str, Any]:
        """How the server reaches the broker."""
        return Credentials.load(self.federation.server_credentials).connect_options()

    @contextmanager
    def processes(self, config: Config) -> Iterator[Processes]:
        """The broker and the hosts, as long as they are needed."""
        with ExitStack() as stack:
            running = Processes(stack.enter_context(self.broker()))
            for number, name in enumerate(self.names):
                process = self.start_host(number, config)
                running.hosts.append(HostProcess(name, self._log(name), process))
                stack.callback(_end, process)
            yield running

    def _log(self, name: str) -> Path:
        return self.folder / "hosts" / f"{name}.log"

    def run(
        self,
        config: Config,
        serving: Serving,
        observer: ServingObserver | None = None,
    ) -> Summary:
        """All of it, to the end."""
        with self.processes(config) as running:
            summary = serve(
                self._split.name, config, PublicCatalogue.read(self.catalogue), self.options(),
                self.server, serving, observer, check=running.check,
            )  # fmt: skip
            for host in running.hosts:
                host.wait()
            return summary

    def vectors(self) -> Vectors:
        """What the clients kept at the end, put together: all of them are this machine's."""
        models = [Recommender.load(self.clients / str(user)) for user in range(self._split.n_users)]
        return Vectors(
            np.concatenate([model.vectors.users for model in models]), models[0].vectors.items
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to, then make it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
