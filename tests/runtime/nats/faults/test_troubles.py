"""Whatever happens to processes, connections, messages and disks: the run waits, and goes on."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lpgcn.protocol.phases import PHASES, Phase

Make = Callable[..., Any]
Check = Callable[[Any], None]


@pytest.mark.slow
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.LOSS, Phase.CHECKPOINT, Phase.RANK_VALID])
def test_the_broker_is_restarted_in_the_middle_of_a_round(
    field_of: Make, check: Check, phase: Phase
) -> None:
    """With a warning to all connections, as who updates it does; a kill is among the points."""
    field = field_of()
    field.start()
    for nth in (2, 5):
        field.when(phase, nth=nth)
        field.broker.restart()
    field.finish()
    check(field)
    assert all(party.starts == 1 for party in field.parties.values())


@pytest.mark.slow
def test_a_tenth_of_the_clients_is_restarted_during_an_epoch(field_of: Make, check: Check) -> None:
    field = field_of()
    few = [field.parties[name] for name in ("join-14", "join-15")]
    field.start()

    def kill() -> None:
        for party in few:
            party.send(signal.SIGKILL)

    for phase in (Phase.FORWARD, Phase.BACKWARD):
        field.when(phase, kill, nth=20)
        for party in few:
            party.restart()
    field.finish()
    check(field)


@pytest.mark.slow
def test_a_frozen_host_is_waited_for(field_of: Make, check: Check) -> None:
    field = field_of(patience=2.0)
    host, server = field.parties["host-1"], field.parties["server"]
    field.start()
    field.when(Phase.LOSS, lambda: host.send(signal.SIGSTOP), nth=5)
    # A pause is told, and not before the patience is over.
    field.wait(lambda: "silent" in server.said(), "the server notices a silent host")
    host.send(signal.SIGCONT)
    field.finish()
    check(field)
    assert len(field.terms()) == 1 and host.starts == 1


def test_a_frozen_host_is_left_behind_and_comes_back(field_of: Make, check: Check) -> None:
    field = field_of(
        hosts={"host-0": range(11), "host-1": range(11, 14)},
        patience=3.0,
        serving={"on-missing": "leave"},
        settings={"epochs": 10},
    )
    host = field.parties["host-1"]
    field.start()
    field.when(Phase.BACKWARD, lambda: host.send(signal.SIGSTOP), nth=40)
    field.wait_for_terms(2)
    host.send(signal.SIGCONT)
    field.wait_for_terms(3)
    field.finish()
    check(field)
    everybody = tuple(range(16))
    # On a busy machine others may be taken for silent, too.
    assert field.terms()[0].members == field.terms()[-1].members == everybody
    assert any(not {11, 12, 13} & {*term.members} for term in field.terms())
    assert host.starts == 1


def test_connections_are_slow_and_cut(field_of: Make, check: Check, proxies: ModuleType) -> None:
    field = field_of(patience=20.0)
    proxy = proxies.Proxy(field.broker.port)
    try:
        for name in ("host-1", "join-14"):
            field.via(name, proxy.url)
        field.start()
        field.when(Phase.VERIFY, proxy.cut, client=8)
        field.when(Phase.FORWARD, proxy.cut, client=9, nth=3)
        proxy.delay = 0.05
        field.when(Phase.UPDATE, proxy.cut, client=14)
        proxy.delay = 0.0
        field.when(Phase.CHECKPOINT, proxy.cut, client=13)
        field.finish()
    finally:
        proxy.close()
    check(field)
    assert proxy.connections >= 2 + 4
    assert all(party.starts == 1 for party in field.parties.values())


@pytest.mark.slow
def test_a_connection_is_stuck_without_a_word(
    field_of: Make, check: Check, proxies: ModuleType
) -> None:
    """Longer than the patience; then everything that was sent meanwhile arrives at once."""
    field = field_of(patience=3.0)
    proxy, server = proxies.Proxy(field.broker.port), field.parties["server"]
    try:
        field.via("host-1", proxy.url)
        field.start()
        for nth in (3, 9):
            said = server.said().count("silent")
            field.when(Phase.GRADIENT, proxy.stop, client=9, nth=nth)
            field.wait(lambda said=said: server.said().count("silent") > said, "a silent host")
            proxy.go_on()
        field.finish()
    finally:
        proxy.close()
    check(field)


def test_messages_come_twice_late_and_in_another_order(field_of: Make, check: Check) -> None:
    field = field_of()
    field.spy.disturb(1)
    field.start()
    field.finish()
    check(field)
    assert field.spy.repeated > 1000
    assert len(field.terms()) == 1
    # So the spy hears everything that a point can be set at, but for what this backbone has not.
    shared = {phase for phase, row in PHASES.items() if row.shared}
    assert field.spy.phases == set(Phase) - {Phase.INHERIT, Phase.ENDOW} - shared


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_messages_of_the_dead_come_late(
    harness: ModuleType, field_of: Make, check: Check, seed: int
) -> None:
    """Those of sessions and stretches that are over are sent again after restarts."""
    field = field_of()
    field.spy.disturb(seed)
    field.start()
    chosen = {
        Phase.PLAN: "host-0", Phase.LOSS: "join-14", Phase.BACKWARD: "server",
        Phase.RANK_VALID: "host-1", Phase.CHECKPOINT: "server",
    }  # fmt: skip
    for phase, party in chosen.items():
        field.strike(harness.Point(party, phase, "up"))
    field.finish()
    check(field)


class Disk:
    """A client's folder on a disk of its own, which can be full."""

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1024)):
                pass

    def free(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """A file system of its own in place of the folder, with what was in there."""
    kept = shutil.copytree(folder, folder.with_name(f"{folder.name}.kept"))
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a disk that can be filled needs the right to mount one")
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
def test_the_disk_of_a_client_is_full_for_a_while(field_of: Make, check: Check) -> None:
    field = field_of()
    with small_disk(field.clients / "14") as disk:
        field.start()
        field.when(Phase.CHECKPOINT, disk.fill, client=14)
        field.wait_to_hear("join-14", os.strerror(errno.ENOSPC))
        disk.free()
        field.finish()
        check(field)
    assert field.parties["join-14"].starts == 1


@pytest.mark.slow
def test_there_is_no_room_for_the_model_at_first(field_of: Make, check: Check) -> None:
    field = field_of()
    with small_disk(field.clients / "14") as disk:
        field.start()
        field.when(Phase.GO_BACK, disk.fill, client=14)
        field.wait_to_hear("join-14", os.strerror(errno.ENOSPC))
        disk.free()
        field.finish()
        check(field)


@pytest.mark.parametrize("model", [pytest.param("lightgcn", marks=pytest.mark.slow), "lightgcn+"])
def test_one_joins_and_one_leaves_and_comes_back(field_of: Make, check: Check, model: str) -> None:
    field = field_of(
        first=15, serving={"on-missing": "leave"}, settings={"model": model, "epochs": 6}
    )
    leaver = field.parties["join-14"]
    field.start("server", "host-0", "host-1", "join-14")
    field.when(Phase.CHECKPOINT)
    field.start_in_time("join-15")
    field.wait_for_terms(2)
    leaver.stop()
    field.wait_for_terms(3)
    field.start_in_time("join-14")
    field.wait_for_terms(4)
    field.finish()
    check(field)
    before, everybody = tuple(range(15)), tuple(range(16))
    without = (*range(14), 15)
    assert [term.members for term in field.terms()] == [before, everybody, without, everybody]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_who_is_held_back_joins_when_another_one_leaves(
    field_of: Make, check: Check, model: str
) -> None:
    field = field_of(
        first=15,
        serving={"on-missing": "leave", "least-change": 2, "least-members": 15},
        settings={"model": model, "epochs": 6},
    )
    leaver = field.parties["join-14"]
    field.start("server", "host-0", "host-1", "join-14")
    field.when(Phase.CHECKPOINT)
    field.start_in_time("join-15")
    field.wait_to_hear("server", "1 client could join; waiting until 2 can")
    leaver.stop()
    field.wait_for_terms(2)
    others = [party for party in field.parties.values() if party is not leaver]
    field.wait(lambda: all(party.status == 0 for party in others), "the end of the run")
    check(field)
    assert [term.members for term in field.terms()] == [tuple(range(15)), (*range(14), 15)]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_one_is_killed_and_never_comes_back(field_of: Make, check: Check, model: str) -> None:
    field = field_of(
        patience=3.0, serving={"on-missing": "leave"}, settings={"model": model, "epochs": 6}
    )
    gone = field.parties["join-14"]
    field.start()
    field.when(Phase.FINAL, lambda: gone.send(signal.SIGKILL), nth=50)
    field.wait_for_terms(2)
    others = [party for party in field.parties.values() if party is not gone]
    field.wait(lambda: all(party.status == 0 for party in others), "the end of the run")
    check(field)
    assert 14 not in field.terms()[-1].members


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_one_joins_at_the_last_checkpoint(field_of: Make, check: Check, model: str) -> None:
    """It has taken part in no step, and ends with a model."""
    field = field_of(first=15, settings={"model": model})
    field.start("server", "host-0", "host-1", "join-14")
    field.when(Phase.RANK_VALID, nth=15 + 1)
    field.start_in_time("join-15")
    field.finish()
    check(field)
    last = field.terms()[-1]
    assert (last.epoch, last.step, len(last.members)) == (4, 0, 16)


@pytest.mark.slow
def test_a_second_process_is_refused_in_the_same_folder_and_under_the_same_name(
    field_of: Make, check: Check
) -> None:
    field = field_of(settings={"epochs": 8})
    first = field.parties["join-14"]
    second, third = field.twin("join-14"), field.twin("join-14")
    third.arguments += ["--state", field.folder / "elsewhere"]
    field.start()
    field.when(Phase.FORWARD, client=14)
    for other, expected in ((second, "is used by another process"), (third, "here already")):
        other.start()
        field.wait(lambda other=other: other.status is not None, "another process ends")
        assert other.status == 2 and expected in other.said(), other.said()
    field.finish()
    check(field)
    assert first.starts == 1


@pytest.mark.slow
def test_server_and_hosts_are_killed_at_once(field_of: Make, check: Check) -> None:
    field = field_of()
    many = [field.parties[name] for name in ("server", "host-0", "join-15")]
    field.start()

    def kill() -> None:
        for party in many:
            party.send(signal.SIGKILL)

    for phase in (Phase.ANSWERS, Phase.CHECKPOINT, Phase.RESUME, Phase.KEEP, Phase.PREDICT):
        field.when(phase, kill)
        for party in many:
            party.restart()
    field.finish()
    check(field)


@pytest.mark.slow
@pytest.mark.parametrize("phase", [Phase.KEYS, Phase.INHERIT, Phase.ENDOW, Phase.CHECKPOINT])
def test_another_one_is_killed_while_one_is_left_behind(
    harness: ModuleType, field_of: Make, check: Check, phase: Phase
) -> None:
    field = field_of(patience=4.0, serving={"on-missing": "leave"}, settings={"epochs": 6})
    leaver, server = field.parties["join-14"], field.parties["server"]
    field.start()
    field.when(Phase.CHECKPOINT, lambda: server.send(signal.SIGSTOP), nth=16 + 1)
    leaver.send(signal.SIGTERM)
    server.send(signal.SIGCONT)
    field.strike(harness.Point("server", phase, "up"))
    field.strike(harness.Point("host-1", Phase.RESUME, "up"))
    others = [party for name, party in field.parties.items() if name != "join-14"]
    field.wait(lambda: all(party.status == 0 for party in others), "the end of the run")
    check(field)
    assert 14 not in field.terms()[-1].members


@pytest.mark.slow
def test_a_server_that_is_started_with_another_number_of_clients_goes_on_as_it_began(
    field_of: Make, check: Check
) -> None:
    """How large the initial vectors of who joins later are depends on the first number."""
    settings = {"model": "lightgcn", "epochs": 6}
    hosts = {"host-0": range(8), "host-1": range(8, 14)}
    field = field_of(first=14, settings=settings, hosts=hosts)
    server = field.parties["server"]
    field.start("server", *hosts)
    field.when(Phase.CHECKPOINT, lambda: server.send(signal.SIGKILL), nth=14 + 3)
    server.process.wait()
    server.arguments[server.arguments.index("--clients") + 1] = "4"
    server.start()
    field.start_in_time("join-14")
    everybody = [field.parties[name] for name in ("server", "join-14", *hosts)]
    field.wait(lambda: all(party.status == 0 for party in everybody), "the end")
    check(field)
