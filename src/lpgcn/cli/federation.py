"""`lpgcn federation`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lpgcn.cli.terminal import json_option, print_json, say, show, table
from lpgcn.cli.up import up

if TYPE_CHECKING:
    from lpgcn.runtime.hosts.nats.credentials import Credentials

_folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


@click.group(
    epilog="""\b
Example:
  lpgcn federation init fed --host broker.example.org
  lpgcn federation enrol fed alice bob --out credentials"""
)
def federation() -> None:
    """Make a federation over a network, let members in and throw them out."""


@federation.command(
    epilog="""\b
Examples:
  lpgcn federation init fed --host broker.example.org --host 192.0.2.7
  lpgcn federation init trial --plain"""
)
@_folder
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=("127.0.0.1",),
    show_default=True,
    help="Name or address under which members reach the broker; again for another one.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=4222, show_default=True)
@click.option("--listen", help="Address on which the broker listens; all, or loopback for --host.")
@click.option("--name", default="federation", show_default=True, help="What members call it.")
@click.option("--plain", is_flag=True, help="Without TLS; for loopback addresses only.")
@json_option
def init(
    folder: Path,
    hosts: tuple[str, ...],
    port: int,
    listen: str | None,
    name: str,
    plain: bool,
    as_json: bool,
) -> None:
    """Make the folder of a new federation.

    DIR gets all keys, the broker's configuration and the server's credentials. Whoever reads it
    decides who takes part: keep a copy in a safe place.
    """
    from lpgcn.runtime.hosts.nats.authority import FederationFolder

    made = FederationFolder.create(
        folder, name=name, hosts=hosts, port=port, listen=listen, plain=plain
    )
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "name": name,
                "urls": made.about.urls,
                "broker": str(made.config),
                "server_credentials": str(made.server_credentials),
            }
        )
        return
    show(f"the federation {name} is in {folder}; its broker is {', '.join(made.about.urls)}")
    say(f"start the broker: cd {folder} && nats-server -c {made.config.name}")
    say(
        f"let clients in: lpgcn federation enrol {folder} NAME, or lpgcn federation invite {folder}"
    )


@federation.command(
    epilog="""\b
Example:
  lpgcn federation enrol fed alice bob --out credentials"""
)
@_folder
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the new files; DIR/issued by default."
)
@click.option("--days", type=click.IntRange(min=1), default=365, show_default=True, help="Valid.")
@json_option
def enrol(folder: Path, names: tuple[str, ...], out: Path | None, days: int, as_json: bool) -> None:
    """Write a credentials file for each new client.

    A file is all that its client needs, and as secret as a password.
    """
    from lpgcn.runtime.hosts.nats.authority import FederationFolder
    from lpgcn.runtime.hosts.nats.credentials import refuse_to_overwrite
    from lpgcn.runtime.hosts.nats.jwt import check_name

    opened = FederationFolder(folder)
    place = out or folder / "issued"
    paths = [place / f"{check_name(name)}.credentials" for name in names]
    for path in paths:
        refuse_to_overwrite(path)
    made = opened.enrol_all(names, days=days)
    for credentials, path in zip(made, paths, strict=True):
        credentials.save(path)
    written = [_described(one, path) for one, path in zip(made, paths, strict=True)]
    if as_json:
        print_json({"credentials": written})
        return
    rows = [[one["name"], one["file"], one["expires"]] for one in written]
    show(table(rows, "client", "file", "expires"))


@federation.command(
    epilog="""\b
Example:
  lpgcn federation invite fed --uses 20 --days 3 --out spring.invitation"""
)
@_folder
@click.option("--uses", type=click.IntRange(min=1), default=1, show_default=True, help="Newcomers.")
@click.option("--days", type=click.IntRange(min=1), default=7, show_default=True, help="Valid.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The new file; one in DIR/issued by default."
)
@json_option
def invite(folder: Path, uses: int, days: int, out: Path | None, as_json: bool) -> None:
    """Write an invitation by which newcomers become clients themselves.

    The key of a newcomer never leaves its machine. `lpgcn serve` lets it in.
    """
    from lpgcn.runtime.hosts.nats.authority import FederationFolder
    from lpgcn.runtime.hosts.nats.credentials import refuse_to_overwrite

    opened = FederationFolder(folder)
    if out is not None:
        refuse_to_overwrite(out)
    made = opened.invite(uses=uses, days=days)
    path = out or folder / "issued" / f"{made.name}.invitation"
    made.save(path)
    described = _described(made, path)
    if as_json:
        print_json({**described, "uses": uses})
        return
    show(
        f"{path} lets {uses} in until {described['expires']}; to make it void: "
        f"lpgcn federation revoke {folder} {made.name}"
    )


@federation.command(
    epilog="""\b
Example:
  lpgcn federation revoke fed bob"""
)
@_folder
@click.argument("name")
@json_option
def revoke(folder: Path, name: str, as_json: bool) -> None:
    """Throw a client out, or make an invitation void."""
    from lpgcn.runtime.hosts.nats.authority import FederationFolder

    done = FederationFolder(folder).revoke(name)
    if as_json:
        print_json({"name": name, "key": done.key, "broker": str(done.config), "do": done.to_do})
    else:
        show(done.to_do)


def _described(credentials: Credentials, path: Path) -> dict[str, str]:
    expires = f"{credentials.expires:%Y-%m-%d %H:%M} UTC"
    return {"name": credentials.name, "file": str(path), "expires": expires}


federation.add_command(up)
