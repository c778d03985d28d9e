"""A hook of MkDocs: every command with its own `--help`, and the fields of configurations, in the
pages that ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

import lpgcn
from lpgcn.cli import main

PLACE = "<!-- every command -->"
FIELDS = "<!-- fields of {} -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    if PLACE in markdown:
        markdown = markdown.replace(PLACE, "\n".join(_pages(main, "lpgcn", None)))
    for struct in (lpgcn.Config, lpgcn.Source):
        place = FIELDS.format(struct.__name__)
        if place in markdown:
            markdown = markdown.replace(place, "\n".join(_fields(struct)))
    return markdown


def _fields(struct: type[msgspec.Struct]) -> Iterator[str]:
    """A row of a table for each: its name, its default and what it means."""
    yield from ("| field | default | meaning |", "|---|---|---|")
    described = msgspec.inspect.type_info(struct)
    assert isinstance(described, msgspec.inspect.StructType)
    for field in described.fields:
        about = getattr(field.type, "extra_json_schema", None) or {}
        default = "" if field.required else f"`{field.default!r}`"
        if field.default_factory is not msgspec.NODEFAULT:
            default = f"`{field.default_factory()!r}`"
        meaning = about.get("description", "").replace("|", "\\|")
        yield f"| `{field.name}` | {default} | {meaning} |"


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
