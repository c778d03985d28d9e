"""`lpgcn federation`: what it prints and writes, and that no secret is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lpgcn.cli import main
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker
from lpgcn.runtime.hosts.nats.credentials import Credentials


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["federation", *(str(word) for word in arguments)])


def report(*arguments: object, exit_code: int = 0) -> Any:
    """The one JSON object on standard output."""
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run("init", tmp_path / "fed")
    return tmp_path / "fed"


def test_init_makes_a_folder(tmp_path: Path) -> None:
    made = tmp_path / "fed"
    hosts = ["--host", "broker.example", "--host", "192.0.2.7"]
    found = report("init", made, *hosts, "--port", 4333, "--name", "spring")
    assert found == {
        "folder": str(made),
        "name": "spring",
        "urls": ["tls://broker.example:4333", "tls://192.0.2.7:4333"],
        "broker": str(made / "broker.conf"),
        "server_credentials": str(made / "server.credentials"),
    }
    assert Credentials.load(made / "server.credentials").federation == "spring"
    again = run("init", made)
    assert again.exit_code == 2 and "not an empty folder" in again.stderr


@pytest.mark.parametrize(
    ("asked", "listens"),
    [
        ([], "127.0.0.1"),
        (["--host", "192.0.2.7"], "0.0.0.0"),
        (["--host", "192.0.2.7", "--listen", "127.0.0.3"], "127.0.0.3"),
    ],
)
def test_the_broker_listens_where_it_is_told_to(
    tmp_path: Path, asked: list[str], listens: str
) -> None:
    run("init", tmp_path / "fed", *asked)
    assert f'\nhost: "{listens}"\n' in (tmp_path / "fed" / "broker.conf").read_text()


def test_plain_is_refused_in_words_where_others_listen(tmp_path: Path) -> None:
    result = run("init", tmp_path / "fed", "--host", "broker.example", "--plain")
    assert result.exit_code == 2 and result.stdout == ""
    assert "loopback" in result.stderr and not (tmp_path / "fed").exists()
    assert report("init", tmp_path / "fed", "--plain")["urls"] == ["nats://127.0.0.1:4222"]


def test_enrol_writes_a_file_for_each(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = report("enrol", folder, "alice", "bob", "--out", out, "--days", 3)["credentials"]
    assert [one["name"] for one in found] == ["alice", "bob"]
    for one in found:
        loaded = Credentials.load(Path(one["file"]))
        assert (loaded.name, loaded.role) == (one["name"], "client")
        assert one["expires"].startswith(f"{loaded.expires:%Y-%m-%d}")
    text = run("enrol", folder, "carol")
    assert "carol" in text.stdout and (folder / "issued" / "carol.credentials").exists()


def test_enrol_overwrites_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bob.credentials").write_text("mine")
    result = run("enrol", folder, "alice", "bob", "--out", tmp_path)
    assert result.exit_code == 2 and "not overwritten" in result.stderr
    assert (tmp_path / "bob.credentials").read_text() == "mine"
    assert set(FederationFolder(folder).registry.read().members) == {"server"}


@pytest.mark.parametrize("name", ["a.b", "*", "../up", "a b"])
def test_bad_names_are_refused(folder: Path, name: str) -> None:
    result = report("enrol", folder, name, exit_code=2)
    assert result["error"]["type"] == "CredentialsError"


def test_a_taken_name_is_refused_until_it_is_revoked(folder: Path, tmp_path: Path) -> None:
    run("enrol", folder, "alice")
    taken = run("enrol", folder, "alice", "--out", tmp_path)
    assert taken.exit_code == 2 and "is taken" in taken.stderr
    done = report("revoke", folder, "alice")
    assert done["name"] == "alice" and "kill -HUP" in done["do"]
    assert report("enrol", folder, "alice", "--out", tmp_path)["credentials"]
    assert "no member" in run("revoke", folder, "nobody").stderr


def test_invite_writes_an_invitation(folder: Path, tmp_path: Path) -> None:
    found = report("invite", folder, "--uses", 3, "--out", tmp_path / "spring.invitation")
    assert found["uses"] == 3 and found["file"] == str(tmp_path / "spring.invitation")
    assert Credentials.load(Path(found["file"])).role == "invited"
    again = run("invite", folder, "--out", tmp_path / "spring.invitation")
    assert again.exit_code == 2 and "not overwritten" in again.stderr
    text = run("invite", folder).stdout
    name = text.split()[-1]
    assert run("revoke", folder, name).exit_code == 0


def test_no_secret_is_printed_or_logged(tmp_path: Path, free_port: Callable[[], int]) -> None:
    made, log = tmp_path / "fed", tmp_path / "broker.log"
    results = [run("init", made, "--port", free_port())]
    opened = FederationFolder(made)
    with Broker(opened.config, log=log) as broker:
        for json_flag in ([], ["--json"]):
            results += [
                run("enrol", made, f"alice{len(json_flag)}", *json_flag),
                run("invite", made, *json_flag),
                run("revoke", made, f"alice{len(json_flag)}", *json_flag),
                run("enrol", made, "server", *json_flag),
            ]
            broker.reload()
        shown = [repr(opened), repr(broker), repr(opened.issuer("client")), log.read_text()]
    shown += [result.output + result.stderr for result in results]
    public = ("broker.conf", "federation.json", "members.json", "tls/ca.pem", "tls/broker.pem")
    shown += [(made / name).read_text() for name in public]
    secrets = [path.read_text().strip() for path in (made / "keys").glob("*.seed")]
    secrets += [json.loads(path.read_text())["seed"] for path in (made / "issued").iterdir()]
    secrets.append(Credentials.load(opened.server_credentials).seed)
    for path in (made / "keys" / "ca.key", made / "tls" / "broker.key"):
        secrets += path.read_text().splitlines()[1:-1]
    assert len(secrets) >= 5 + 4 + 1 + 4
    assert not [text for text in shown for secret in secrets if secret in text]


@pytest.mark.parametrize("command", ["init", "enrol", "invite", "revoke"])
def test_every_command_has_an_example(command: str) -> None:
    assert f"lpgcn federation {command} " in run(command, "--help").output
