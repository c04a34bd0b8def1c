"""The options that all commands share, declared once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from zkms.cli.failure import set_up_logging

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
HOSTS_HELP = "ZooKeeper's servers (ZKMS_HOSTS); without it, one on this machine's default port."
ROOT_HELP = "Znode that everything is below (ZKMS_ROOT); /zkms if not given."
JSON_HELP = "Print one JSON document instead of text; 'sub' prints one object per line."
TRAIL_HELP = "Record what happens to messages into files in this directory."
VERBOSE_HELP = "Show the library's log on stderr; -vv shows more."


class Seconds(click.FloatRange):
    """A span of time: a number that a clock can count, so neither NaN nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click's, and finite."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


def seconds_option(name: str, *, least: float = 0, least_open: bool = False, **attributes: Any) -> Decorator:
    """An option that takes a span of time."""
    kind = Seconds(min=least, min_open=least_open)
    return click.option(name, type=kind, metavar="SECONDS", show_default=True, **attributes)


trail_option = click.option("--trail", metavar="DIR", envvar="ZKMS_TRAIL", show_envvar=True, help=TRAIL_HELP)
"""For commands that send, receive or remove messages."""


def trails_option(help_: str) -> Decorator:
    """For commands that read what was recorded."""
    common: dict[str, Any] = {"metavar": "DIR", "envvar": "ZKMS_TRAIL", "show_envvar": True}
    return click.option("--trail", "directories", multiple=True, required=True, help=help_, **common)


def removal_options(help_: str) -> Decorator:
    """For commands that remove something: --yes, and --dry-run with this help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option("--dry-run", is_flag=True, help=help_)(command)
        return click.option("--yes", is_flag=True, help="Do not ask.")(command)

    return decorate


@dataclass(frozen=True)
class CommandSettings:
    """What was said on the command line and in the environment about where to connect and how to print."""

    hosts: str | None
    root: str
    json: bool


def settings(command: Callable[..., Any], json_help: str = JSON_HELP) -> Callable[..., Any]:
    """Add --hosts, --root, --json and --verbose to a command, and pass them as its first argument."""

    @click.option("--hosts", metavar="HOST:PORT,...", envvar="ZKMS_HOSTS", help=HOSTS_HELP)
    @click.option("--root", metavar="PATH", envvar="ZKMS_ROOT", default="/zkms", help=ROOT_HELP)
    @functools.partial(printing, json_help=json_help)
    @functools.wraps(command)
    def wrapper(*args: Any, hosts: str | None, root: str, json_: bool, **kwargs: Any) -> Any:
        return command(CommandSettings(hosts, root, json_), *args, **kwargs)

    return wrapper


def printing(command: Callable[..., Any], json_help: str = JSON_HELP) -> Callable[..., Any]:
    """Add --json, passed as `json_`, and --verbose to a command that needs no ZooKeeper."""

    @click.option("--json", "json_", is_flag=True, help=json_help)
    @click.option("-v", "--verbose", count=True, help=VERBOSE_HELP)
    @functools.wraps(command)
    def wrapper(*args: Any, verbose: int, **kwargs: Any) -> Any:
        set_up_logging(verbose)
        return command(*args, **kwargs)

    return wrapper
