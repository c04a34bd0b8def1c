"""How what went wrong reaches a person: one sentence on stderr, and an exit code. No traceback for what we foresee."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

import click

from zkms.cli.exit_codes import Exit
from zkms.errors import ConnectionLost, InvalidArgument, NoSubscribers, Timeout, Unauthorised, ZkmsError


class Failure(click.ClickException):
    """A command that ends with a sentence and an exit code of its own."""

    def __init__(self, message: str, code: Exit = Exit.ERROR) -> None:
        super().__init__(message)
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it from the instance


def as_failure(error: ZkmsError) -> Failure:
    """What an error of the library is on the command line."""
    sentence = str(error)
    if isinstance(error, NoSubscribers):
        sentence = f"nobody subscribes to {error.topic!r}, nothing was stored (--if-nobody drop accepts that)"
    elif isinstance(error, Unauthorised):
        sentence = sentence.replace("given as auth=", "in ZKMS_AUTH or ZKMS_AUTH_FILE")
    return Failure("; ".join([sentence, *getattr(error, "__notes__", ())]), _code(error))


def _code(error: ZkmsError) -> Exit:
    if isinstance(error, InvalidArgument):
        return Exit.USAGE
    if isinstance(error, ConnectionLost):
        return Exit.NO_ZOOKEEPER
    if isinstance(error, Timeout):
        return Exit.NOT_IN_TIME
    return Exit.NOBODY if isinstance(error, NoSubscribers) else Exit.ERROR


def stop_writing() -> None:
    """Whoever read our output has enough (`| head`): let what Python still has to flush go nowhere."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - its descriptor is what we want
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def interrupt_on_sigterm() -> None:
    """Make SIGTERM end a command as Ctrl-C does: subscriptions are given up, children ended, the session closed."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


def set_up_logging(verbose: int) -> None:
    """Show the library's log on stderr: errors only, unless asked for more with -v or -vv."""
    handler = logging.StreamHandler()
    # On the handler, for a logger's own level, such as that of kazoo's, would override the root's.
    handler.setLevel({0: logging.ERROR, 1: logging.INFO}.get(verbose, logging.DEBUG))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.DEBUG, handlers=[handler], force=True)
