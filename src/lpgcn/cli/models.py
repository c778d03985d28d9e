"""`lpgcn models`."""

from __future__ import annotations

import click
import msgspec

from lpgcn.cli.terminal import json_option, print_json, show, table, warn


@click.command(
    epilog="""\b
Examples:
  lpgcn models
  lpgcn models item-knn""",
)
@click.argument("name", required=False)
@json_option
def models(name: str | None, as_json: bool) -> None:
    """List what --model takes, or say what there is to know about NAME.

    FeSoG, FedHGNN and FedGR, which the paper's summary lists, too, need social links or meta-paths
    beside interactions, and are not there.
    """
    from lpgcn.methods.method import MethodError
    from lpgcn.methods.registry import Description, described, names

    found: list[Description] = []
    for one in [name] if name else names():
        try:
            found.append(described(one))
        except MethodError as error:
            # One package that is broken does not hide all the others.
            if name:
                raise
            warn(error)
    if as_json:
        print_json(found[0] if name else {"models": found})
        return
    if not name:
        rows = [(one.name, one.summary, "torch" if one.needs_torch else "") for one in found]
        show(table(rows, "model", "what it is", "needs"))
        return
    about = found[0]
    show(f"{about.name}: {about.summary}", f"Privacy: {about.protects}")
    for title, settings in (
        ("Settings (flags and keys of a configuration)", about.settings),
        ("Settings of its own (--option NAME=VALUE)", about.options),
    ):
        if settings:
            values = [
                (key, msgspec.json.encode(value).decode(), about.meanings.get(key, ""))
                for key, value in settings.items()
            ]
            show(table(values, "setting", "default", "what it is", title=title))
