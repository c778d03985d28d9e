"""What all commands share: how they end well, badly, or when somebody stops them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from lpgcn.cli.terminal import print_json, say
from lpgcn.errors import LpgcnError


class Stopped(click.ClickException):
    """Somebody pressed Ctrl-C."""

    exit_code = 130


class Program(click.Group):
    """The group of all commands. Errors are one message and an exit code, never a traceback."""

    def list_commands(self, context: click.Context) -> list[str]:
        """In the order in which they are added."""
        return list(self.commands)

    def main(self, args: Sequence[str] | None = None, *other: Any, **options: Any) -> NoReturn:
        arguments = list(sys.argv[1:] if args is None else args)
        options["standalone_mode"] = False
        try:
            with warnings.catch_warnings():
                _show_warnings()
                sys.exit(super().main(arguments, *other, **options) or 0)
        except click.exceptions.NoArgsIsHelpError as help_wanted:
            help_wanted.show()
            sys.exit(help_wanted.exit_code)
        except click.Abort:
            error: Exception = Stopped("nothing is left to continue")
        except (click.ClickException, LpgcnError, OSError) as raised:
            error = raised
        if "--json" in arguments:
            print_json({"error": {"type": type(error).__name__, "message": _message(error)}})
        label = "stopped" if isinstance(error, Stopped) else "error"
        say(_message(error), style="red", label=label)
        sys.exit(getattr(error, "exit_code", 2))


def _message(error: Exception) -> str:
    """One message; for a wrong option also where to look."""
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        return f"the system refused{where}: {error.strerror or error}; check the place"
    if not isinstance(error, click.ClickException):
        return str(error)
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
    message = error.format_message()
    if not command:
        return message
    return f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} See `{command} --help`."


def _show_warnings() -> None:
    """Warnings, such as those about data, are lines on standard error."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(str(message), style="yellow", label="warning")

    warnings.filterwarnings("always", module=r"lpgcn\.")
    warnings.showwarning = show
