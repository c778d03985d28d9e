"""What all commands share: how they end well, badly, or when somebody stops them."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn

import click

from lpgcn.cli.terminal import print_json, say, warn
from lpgcn.errors import LpgcnError

_SIGTERM_EXIT: Final = 128 + signal.SIGTERM


class Stopped(click.ClickException):
    """Somebody pressed Ctrl-C, or sent SIGTERM."""

    exit_code = 130


class Program(click.Group):
    """The group of all commands. Errors are one message and an exit code, never a traceback."""

    def list_commands(self, context: click.Context) -> list[str]:
        """In the order in which they are added."""
        return list(self.commands)

    def main(self, args: Sequence[str] | None = None, *other: Any, **options: Any) -> NoReturn:
        arguments = list(sys.argv[1:] if args is None else args)
        options["standalone_mode"] = False
        terminated: list[int] = []
        try:
            with warnings.catch_warnings(), _ending_on_sigterm(terminated):
                _show_warnings()
                # A command that logs in lines of JSON has told of its end, and gives a code only.
                code = super().main(arguments, *other, **options) or 0
                sys.exit(_SIGTERM_EXIT if terminated and code == Stopped.exit_code else code)
        except click.exceptions.NoArgsIsHelpError as help_wanted:
            help_wanted.show()
            sys.exit(help_wanted.exit_code)
        except click.Abort:
            error: Exception = Stopped("nothing is left to continue")
        except (click.ClickException, LpgcnError, OSError, MemoryError) as raised:
            error = raised
        if "--json" in arguments:
            # Where standard output takes nothing, the message below is all that can be said.
            with suppress(OSError):
                print_json({"error": {"type": type(error).__name__, "message": _message(error)}})
        stopped = isinstance(error, Stopped)
        say(_message(error), style="red", label="stopped" if stopped else "error")
        sys.exit(_SIGTERM_EXIT if stopped and terminated else getattr(error, "exit_code", 2))


@contextmanager
def _ending_on_sigterm(told: list[int]) -> Iterator[None]:
    """What a service is stopped with ends a command as Ctrl-C does; `told` has the signal then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> NoReturn:
        told.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _message(error: Exception) -> str:
    """One message; for a wrong option also where to look."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}; lower --dim, or use fewer users and items"
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
        warn(message)

    warnings.filterwarnings("always", module=r"lpgcn\.")
    warnings.showwarning = show
