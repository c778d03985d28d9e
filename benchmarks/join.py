"""One user's client as a process of its own: from its start until it has joined, and its memory.

`lpgcn join` processes, one after the other, over a real broker with TLS and credentials of their
own; a client has joined when the server has heard of it and let it in.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lpgcn.config import Config
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker, free_port
from lpgcn.runtime.hosts.nats.credentials import Credentials
from lpgcn.runtime.runs.catalogue import PublicCatalogue
from lpgcn.runtime.runs.serving import Serving, open_board
from network import memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--items", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        federation = FederationFolder.create(folder / "fed", port=free_port())
        names = [f"client-{number}" for number in range(options.clients)]
        for credentials in federation.enrol_all(names):
            credentials.save(folder / f"{credentials.name}.credentials")
        rows = [f"me,{item}" for item in range(0, options.items, options.items // 40)]
        (folder / "mine.csv").write_text("user_id,item_id\n" + "\n".join(rows) + "\n")
        catalogue = PublicCatalogue(ids=tuple(range(options.items)))
        server = Credentials.load(federation.server_credentials).connect_options()
        with (
            Broker(federation.config, log=folder / "broker.log"),
            open_board("join", Config(), catalogue, server, folder, Serving(10**6)) as board,
        ):
            started: list[subprocess.Popen[bytes]] = []
            try:
                times = []
                for number, client in enumerate(names):
                    began = time.perf_counter()
                    started.append(start(folder, client))
                    board.wait_for(number + 1, timeout=60)
                    times.append(time.perf_counter() - began)
                used = [memory(process.pid) / 2**20 for process in started]
            finally:
                for process in started:
                    process.kill()
                    process.wait()
    median = statistics.median(times)
    print(f"{options.clients} clients, {options.items:,} items in the catalogue")
    print(f"start until joined: median {median:.2f} s, {min(times):.2f} to {max(times):.2f} s")
    print(f"resident memory: median {statistics.median(used):.0f} MiB, at most {max(used):.0f} MiB")


def start(folder: Path, client: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "lpgcn", "join", "--state", str(folder / client)]
    command += ["--credentials", str(folder / f"{client}.credentials")]
    return subprocess.Popen(
        [*command, "--data", str(folder / "mine.csv")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
