"""A hook of MkDocs: every command with its own `--help`, in the page that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from lpgcn.cli import main

PLACE = "<!-- every command -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(PLACE, "\n".join(_pages(main, "lpgcn", None)))


def _pages(command: click.Command, name: str, above: click.Context | None) -> Iterator[str]:
    context = click.Context(
        command, info_name=name, parent=above, terminal_width=100, max_content_width=100
    )
    yield f"## `{context.command_path}`\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _pages(found, each, context)
