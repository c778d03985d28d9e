"""The broker is a process that starts, reads its file again, and never outlives who started it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lpgcn.crypto import FormatError
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker, BrokerError, find_server
from lpgcn.runtime.hosts.nats.configuration import FederationError
from lpgcn.runtime.hosts.nats.credentials import Credentials
from lpgcn.runtime.hosts.nats.jwt import CredentialsError

DEADLINE = 20.0


@pytest.fixture
def folder(tmp_path: Path, free_port: Callable[[], int]) -> FederationFolder:
    return FederationFolder.create(tmp_path / "federation", port=free_port(), plain=True)


def greets(port: int | None) -> bool:
    """Whether a plain broker says INFO on a port."""
    try:
        with socket.create_connection(("127.0.0.1", port or 0), DEADLINE) as line:
            return line.recv(4) == b"INFO"
    except ConnectionRefusedError:
        return False


def test_it_serves_on_the_port_of_its_file_until_it_is_closed(
    folder: FederationFolder, tmp_path: Path
) -> None:
    with Broker(folder.config, log=tmp_path / "logs" / "broker.log") as broker:
        assert broker.port == folder.about.place.port
        assert (broker.url,) == folder.about.urls
        assert greets(broker.port)
        pid = broker.pid
        with pytest.raises(BrokerError, match="runs already"):
            broker.start()
    assert not greets(broker.port)
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(BrokerError, match="does not run"):
        _ = broker.pid
    broker.close()
    assert "Server is ready" in broker.log.read_text()
    assert "[ERR]" not in broker.log.read_text()


def test_a_free_port_is_kept(folder: FederationFolder, tmp_path: Path) -> None:
    with Broker(folder.config, log=tmp_path / "log", port=0) as broker:
        first, port = broker.pid, broker.port
        assert port and greets(port)
        broker.restart()
        assert broker.pid != first and broker.port == port and greets(port)
        broker.kill()
        assert not greets(port)
        broker.start()
        assert broker.port == port and greets(port)
        broker.reload()
        assert greets(port)


def test_a_bad_file_is_an_error_that_says_why(folder: FederationFolder, tmp_path: Path) -> None:
    good = folder.config.read_text()
    broker = Broker(folder.config, log=tmp_path / "log")
    folder.config.write_text("nonsense: {\n")
    with pytest.raises(BrokerError, match=r"ended with status 1.*Parse error"):
        broker.start()
    folder.config.write_text(good)
    with broker:
        folder.config.write_text(good.replace("port:", "jort:"))
        with pytest.raises(BrokerError, match="goes on with its old configuration"):
            broker.reload()
        assert greets(broker.port)
        folder.config.write_text(good)
        broker.reload()
    folder.config.unlink()
    with pytest.raises(BrokerError, match="is missing"):
        broker.start()


def test_a_port_in_use_is_an_error(folder: FederationFolder, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = Broker(folder.config, log=tmp_path / "log", port=taken.getsockname()[1])
        with pytest.raises(BrokerError, match="address already in use"):
            broker.start()


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end the child")
def test_it_ends_with_a_parent_that_is_killed(folder: FederationFolder, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from lpgcn.runtime.hosts.nats.broker import Broker\n"
        "broker = Broker(Path(sys.argv[1]), log=Path(sys.argv[2])); broker.start()\n"
        "print(broker.pid, flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", script, str(folder.config), str(tmp_path / "log")]
    # A killed parent leaves an empty folder behind.
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            ended, _, _ = select.select([child], [], [], DEADLINE)
            if not ended:
                signal.pidfd_send_signal(child, signal.SIGKILL)
            assert ended
        finally:
            os.close(child)
    assert not greets(folder.about.place.port)


def test_nats_server_is_looked_for_on_the_path_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == Path(sys.executable).parent / "nats-server"
    (tmp_path / "nats-server").write_text("#!/bin/sh\n")
    (tmp_path / "nats-server").chmod(0o755)
    assert find_server() == tmp_path / "nats-server"
    (tmp_path / "nats-server").unlink()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(BrokerError, match=r"pip install 'lpgcn\[network\]'"):
        find_server()


# The folder of a federation


def test_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    folder = FederationFolder.create(tmp_path / "new" / "federation")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    modes = {
        path.relative_to(folder.path).as_posix(): path.stat().st_mode & 0o777
        for path in folder.path.rglob("*")
        if path.is_file()
    }
    public = {"broker.conf", "federation.json", "tls/ca.pem", "tls/broker.pem"}
    assert {name for name, mode in modes.items() if mode != 0o600} <= public
    assert {f"keys/{name}.seed" for name in ("operator", "account", "client")} <= modes.keys()
    assert os.listdir(tmp_path / "new") == ["federation"]


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "federation"
    place.mkdir()
    FederationFolder.create(place)
    before = (place / "broker.conf").read_bytes()
    with pytest.raises(FederationError, match="not an empty folder"):
        FederationFolder.create(place)
    assert (place / "broker.conf").read_bytes() == before
    (tmp_path / "file").touch()
    with pytest.raises(FederationError, match="not an empty folder"):
        FederationFolder.create(tmp_path / "file")


@pytest.mark.parametrize(
    ("hosts", "listen"),
    [
        (["broker.example"], None),
        (["127.0.0.1", "192.0.2.1"], None),
        (["localhost.example"], None),
        (["127.0.0.1"], "0.0.0.0"),
        (["127.0.0.1"], "::"),
    ],
)
def test_plain_is_for_loopback_only(tmp_path: Path, hosts: list[str], listen: str | None) -> None:
    with pytest.raises(FederationError, match="leave out --plain"):
        FederationFolder.create(tmp_path / "f", hosts=hosts, listen=listen, plain=True)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("hosts", "listen"),
    [
        (["127.0.0.1", "localhost"], "127.0.0.1"),
        (["::1"], "::1"),
        (["broker.example", "127.0.0.1"], "0.0.0.0"),
    ],
)
def test_it_listens_where_its_hosts_are(tmp_path: Path, hosts: list[str], listen: str) -> None:
    folder = FederationFolder.create(tmp_path / "f", hosts=hosts, port=4333)
    assert f'host: "{listen}"\nport: 4333\n' in folder.config.read_text()
    assert folder.enrol("alice").urls == tuple(
        f"tls://{f'[{host}]' if ':' in host else host}:4333" for host in hosts
    )


def test_wishes_that_cannot_be_fulfilled(tmp_path: Path) -> None:
    for wrong in ({"port": 0}, {"port": 70000}, {"hosts": []}):
        with pytest.raises(FederationError):
            FederationFolder.create(tmp_path / "f", **wrong)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="neither a host name"):
        FederationFolder.create(tmp_path / "f", hosts=['a"\nport: 1'])
    with pytest.raises(CredentialsError, match="cannot be a name"):
        FederationFolder.create(tmp_path / "f", name='a"')
    assert not any(tmp_path.iterdir())
    folder = FederationFolder.create(tmp_path / "f", plain=True)
    folder.enrol("alice")
    for names in (["alice"], ["bob", "bob"], ["bob", "server"]):
        with pytest.raises(FederationError):
            folder.enrol_all(names)
    assert set(folder.registry.read().members) == {"server", "alice"}
    with pytest.raises(FederationError, match="no member"):
        folder.revoke("nobody")
    with pytest.raises(FederationError, match="at least 1"):
        folder.invite(uses=0)


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="is missing"):
        FederationFolder(tmp_path)
    folder = FederationFolder.create(tmp_path / "f", plain=True)
    (folder.path / "keys" / "client.seed").chmod(0o644)
    with pytest.raises(CredentialsError, match="chmod 600"):
        folder.enrol("alice")
    (folder.path / "members.json").write_text("{")
    with pytest.raises(CredentialsError, match="restore it from a copy"):
        folder.revoke("server")
    (folder.path / "members.json").unlink()
    with pytest.raises(CredentialsError, match="restore it from a copy"):
        folder.revoke("server")
    (folder.path / "federation.json").write_text("[]")
    with pytest.raises(FederationError, match="damaged"):
        FederationFolder(folder.path)


def test_a_moved_folder_works(tmp_path: Path, free_port: Callable[[], int]) -> None:
    folder = FederationFolder.create(tmp_path / "here", port=free_port())
    moved = FederationFolder(folder.path.rename(tmp_path / "there"))
    with Broker(moved.config, log=tmp_path / "log") as broker:
        host, port = broker.url.removeprefix("tls://").split(":")
        context = Credentials.load(moved.server_credentials).tls_context()
        with (
            socket.create_connection((host, int(port)), DEADLINE) as line,
            context.wrap_socket(line, server_hostname=host) as safe,
        ):
            assert safe.recv(4) == b"INFO"
