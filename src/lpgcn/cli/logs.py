"""Events as lines of JSON on standard error, for whoever collects logs: `--log-json`.

A line has a time, a level, an event and its fields: counts, names of carriers, phases. There is
never a key, a token, or an item in it: what is wrong with somebody's data is told without
`--log-json` only.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from lpgcn.cli.terminal import print_json, say
from lpgcn.data import DataError
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import EvaluationWarning
from lpgcn.runtime.crowd import PrivacyWarning

LOGGERS: Final = ("lpgcn", "nats", "asyncio")
_TOLD: Final = (PrivacyWarning, EvaluationWarning)
_UNTOLD: Final = "it is about the data of a user; the command without --log-json tells what it is"


class EventLog:
    """Writes lines; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, event: str, *, level: str = "info", **fields: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = msgspec.json.encode({"time": time, "level": level, "event": event, **fields})
        with self._lock:
            click.echo(line.decode(), err=True)

    def failed(self, error: Exception) -> int:
        """Why a command ends; its exit code."""
        code = int(getattr(error, "exit_code", 2))
        message = _UNTOLD if is_about_data(error) else text_of(error)
        event, level = ("stopped", "warning") if code == 130 else ("failed", "error")
        self(event, level=level, error=type(error).__name__, message=message)
        return code


def text_of(error: Exception) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def is_about_data(error: BaseException) -> bool:
    """Whether its text, or that of its cause, may name an item."""
    cause = error.__cause__
    return isinstance(error, DataError) or (cause is not None and is_about_data(cause))


@contextmanager
def telling(*, log_json: bool, as_json: bool) -> Iterator[EventLog | None]:
    """Within a command: records of loggers, warnings and the error that ends it are lines of JSON,
    or, without a log, lines for people."""
    with ExitStack() as stack:
        if not log_json:
            stack.enter_context(_records(_say, logging.WARNING))
            yield None
            return
        log = EventLog()

        def tell(level: str, logger: str, message: str) -> None:
            log("log", level=level, logger=logger, message=message)

        stack.enter_context(_records(tell, logging.INFO))
        stack.enter_context(_thread_errors(log))
        stack.enter_context(warnings.catch_warnings())
        warnings.showwarning = lambda message, category, *_, **__: log(
            "warning",
            level="warning",
            kind=category.__name__,
            # They have counts only, and are meant for who reads the log.
            message=str(message) if issubclass(category, _TOLD) else _UNTOLD,
        )
        try:
            yield log
        except (click.ClickException, LpgcnError, OSError) as error:
            code = log.failed(error)
            if as_json:
                print_json({"error": {"type": type(error).__name__, "message": text_of(error)}})
            raise click.exceptions.Exit(code) from error


@contextmanager
def _thread_errors(log: EventLog) -> Iterator[None]:
    """What ends a thread is a line as well, and no traceback."""
    before = threading.excepthook

    def hook(found: threading.ExceptHookArgs) -> None:
        name = found.thread.name if found.thread else ""
        log("thread_failed", level="error", thread=name, error=found.exc_type.__name__)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


Tell = Callable[[str, str, str], None]
"""Level, logger, message."""


def _say(level: str, logger: str, message: str) -> None:
    say(message, style="yellow" if level == "warning" else "red", label=level)


@contextmanager
def _records(tell: Tell, level: int) -> Iterator[None]:
    handler, found = _Handler(tell, level), [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in found]
    for logger in found:
        logger.addHandler(handler)
    found[0].setLevel(level)
    try:
        yield
    finally:
        for logger, its_level in zip(found, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(its_level)


class _Handler(logging.Handler):
    def __init__(self, tell: Tell, level: int) -> None:
        super().__init__(level)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        # What libraries warn of is dealt with here, and told in our words.
        if not record.name.startswith("lpgcn") and record.levelno < logging.ERROR:
            return
        self._tell(record.levelname.lower(), record.name, record.getMessage())
