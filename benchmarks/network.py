"""A step of the federation over real sockets, beside the same step in processes on pipes.

Broker, server and hosts are processes of their own, over TLS, with their own rights. Both
federations take the same steps in turns, and the ratio is that of the medians. Then a bare round
of the smallest message there is (SUM_LOSS: a header down, 8 bytes up), in client messages a second.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

from lpgcn.checkpoints import InMemory
from lpgcn.config import Config
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.networked import Networked
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.catalogue import PublicCatalogue
from lpgcn.runtime.runs.local_network import LocalNetwork
from lpgcn.runtime.runs.serving import Serving, open_board
from lpgcn.runtime.runs.source import Source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?", default="ml-100k")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--virtual-items", default="1.0x")
    parser.add_argument("--model", default="lightgcn")
    parser.add_argument("--planner", default="auto")
    options = parser.parse_args()
    keep_freed_memory()
    source = Source(dataset=options.dataset)
    split = source.open()
    config = Config(
        mode="federated",
        model=options.model,
        virtual_items=options.virtual_items,
        planner=options.planner,
    )
    planner = planner_for(split, config)
    pipes = Federated(split, config, planner, options.hosts)
    pipes.begin()
    with tempfile.TemporaryDirectory() as folder:
        local = LocalNetwork(Path(folder), source, split, options.hosts)
        serving = Serving(split.n_users)
        catalogue = PublicCatalogue.read(local.catalogue)
        with (
            local.processes(config) as running,
            open_board(
                split.name, config, catalogue, local.options(), local.server, serving
            ) as board,
        ):
            network = Networked(config, split.n_users, split.n_items, planner, board, InMemory())
            began = time.perf_counter()
            network.begin()
            print(
                f"{split.name}: {split.n_users:,} clients in {len(running.hosts)} processes, "
                f"{config.model}, α = {config.virtual_items}, {config.suite}"
            )
            print(f"hosts up, joined and initialised: {time.perf_counter() - began:.1f} s")
            compare(pipes, network, options.steps, split.n_users)
            for number, host in enumerate(running.hosts):
                users = len(local.users(number))
                used = memory(host.process.pid)
                print(
                    f"host {number}: {used / 2**20:.0f} MiB, {used / users / 1024:.0f} KiB a client"
                )
            board.finish("the benchmark is over")
    pipes.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory of this process, both servers: {peak / 1024:.0f} MiB")


def compare(pipes: Federated, network: Networked, steps: int, clients: int) -> None:
    times: dict[str, list[float]] = {"pipes": [], "network": []}
    rounds: dict[str, list[float]] = {"pipes": [], "network": []}
    for step in range(steps):
        for name, engine in (("pipes", pipes), ("network", network)):
            began = time.perf_counter()
            engine.step(0, step, 1e-3)
            times[name].append(time.perf_counter() - began)
    for _ in range(5):
        for name, engine in (("pipes", pipes), ("network", network)):
            began = time.perf_counter()
            engine.take_loss()
            rounds[name].append(time.perf_counter() - began)
    for name in times:
        print(f"{name} (s):", " ".join(f"{seconds:.2f}" for seconds in times[name]))
    ratio = statistics.median(times["network"]) / statistics.median(times["pipes"])
    print(f"a step over the network takes {ratio:.2f} times that on pipes")
    for name, seconds in rounds.items():
        print(f"a bare round on {name}: {clients / statistics.median(seconds):,.0f} clients/s")


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
