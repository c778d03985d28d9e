"""A bare round over a real broker: clients that echo, in several carrier processes.

    python benchmarks/network_round.py [--clients 942] [--carriers 2] [--bytes 2048] [--rounds 20]

A client message is a request and its answer. The broker, the server and the carriers share this
machine's cores. The bare figure is the same number of bodies of the same size through one pipe to
the same number of worker processes and back, as `runtime/hosts/workers.py` does; the ratio is what
the network costs more. Last comes the share of a core that each process used.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lpgcn.runtime.hosts.nats.carrier import Carrier
from lpgcn.runtime.hosts.nats.frames import Offer
from lpgcn.runtime.hosts.nats.switchboard import Roster, Switchboard

PIPE_FRAME = 48


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(process: int) -> float:
    """Of a process that is still running."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def carry(url: str, name: str, clients: range) -> None:
    """A carrier process: everybody gives back what it gets."""
    gc.disable()
    offers = [Offer(client, client) for client in clients]
    carrier = Carrier(
        {"servers": [url]},
        name,
        offers,
        lambda welcome: dict.fromkeys(welcome.indices, bytes),
        lambda number: (),
    )
    carrier.run()


def echo_pipe() -> None:
    """A worker process: frames of bodies, back as they are."""
    while head := sys.stdin.buffer.read(8):
        sys.stdout.buffer.write(head + sys.stdin.buffer.read(struct.unpack("<Q", head)[0]))
        sys.stdout.buffer.flush()


def pipe_rate(clients: int, workers: int, body: bytes, rounds: int) -> float:
    """Messages a second through pipes, frame by frame, without threads."""
    command = [sys.executable, __file__, "--echo"]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=1 << 20)
        for _ in range(workers)
    ]
    count = PIPE_FRAME * -(-clients // PIPE_FRAME)
    frame = struct.pack("<Q", PIPE_FRAME * len(body)) + body * PIPE_FRAME
    start = 0.0
    for round_ in range(rounds + 1):
        for first in range(0, count // PIPE_FRAME, workers):
            busy = started[: min(workers, count // PIPE_FRAME - first)]
            for worker in busy:
                assert worker.stdin
                worker.stdin.write(frame)
                worker.stdin.flush()
            for worker in busy:
                assert worker.stdout
                worker.stdout.read(len(frame))
        if round_ == 0:
            start = time.perf_counter()
    elapsed = time.perf_counter() - start
    for worker in started:
        worker.communicate()
    return rounds * count / elapsed


def requests(clients: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    for client in range(clients):
        yield client, body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=942)
    parser.add_argument("--carriers", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--carry", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.echo:
        return echo_pipe()
    if given.carry:
        url, name, first, last = given.carry
        return carry(url, name, range(int(first), int(last)))
    body, port = os.urandom(given.bytes), free_port()
    broker_path = Path(sys.executable).with_name("nats-server")
    broker = subprocess.Popen([broker_path, "-a", "127.0.0.1", "-p", str(port)], stderr=-3)
    url = f"nats://127.0.0.1:{port}"
    places = [given.clients * k // given.carriers for k in range(given.carriers + 1)]
    carriers = [
        subprocess.Popen(
            [sys.executable, __file__, "--carry", url, f"c{k}", str(places[k]), str(places[k + 1])]
        )
        for k in range(given.carriers)
    ]
    folder = tempfile.TemporaryDirectory()
    roster = Roster(Path(folder.name) / "roster.json")
    gc.disable()
    with Switchboard({"servers": [url]}, lambda _: b"", roster) as board, folder:
        board.wait_for(given.clients, timeout=60)
        times = []
        processes = [broker.pid, *(carrier.pid for carrier in carriers)]
        dict(board.call(requests(given.clients, body)))
        cpu = [cpu_seconds(process) for process in processes]
        own = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(given.rounds):
            start = time.perf_counter()
            answers = dict(board.call(requests(given.clients, body)))
            times.append(time.perf_counter() - start)
            assert len(answers) == given.clients
            assert all(answer == body for answer in answers.values())
        done = resource.getrusage(resource.RUSAGE_SELF)
        total = sum(times)
        used = [cpu_seconds(process) - b for process, b in zip(processes, cpu, strict=True)]
        mine = done.ru_utime + done.ru_stime - own.ru_utime - own.ru_stime
        rate = given.rounds * given.clients / total
        board.finish("done")
    for carrier in carriers:
        carrier.wait()
    broker.terminate()
    broker.wait()
    piped = pipe_rate(given.clients, given.carriers, body, given.rounds)
    print(f"{given.clients} clients in {given.carriers} carriers, {given.bytes} bytes each way")
    median, best = 1e3 * sorted(times)[len(times) // 2], 1e3 * min(times)
    print(f"network      {rate:10,.0f} client messages a second")
    print(f"one round    {median:10.1f} ms (median), {best:.1f} ms (best)")
    print(f"bare pipes   {piped:10,.0f} client messages a second; ratio {piped / rate:.1f}")
    shares = ", ".join(f"{one / total:.2f}" for one in used[1:])
    print(
        f"cores used   server {mine / total:.2f}, broker {used[0] / total:.2f}, carriers {shares}"
    )
    return None


if __name__ == "__main__":
    main()
