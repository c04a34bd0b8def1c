"""`zkms top`: topics, groups and members at work, live."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import click

from zkms.admin.overview import GroupRow, Overview, TopicRow, TreeWatcher
from zkms.cli.connection import inspect
from zkms.cli.failure import Failure
from zkms.cli.inspect.groups import group_cells
from zkms.cli.options import CommandSettings, seconds_option, settings
from zkms.cli.output import clock, plural, print_json, safe, width
from zkms.errors import ConnectionLost

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import Console, RenderableType
    from rich.table import Table

ROWS = 1_000
"""Rows of a table where there is no terminal whose height would say so."""
FRAME = 4
"""Lines of a table that are no rows: its title, its header, what is left out, and an empty one."""


@click.command()
@seconds_option("--interval", least=0.1, default=1.0, help="Between two looks.")
@click.option("--once", is_flag=True, help="Look twice, --interval apart, print what is seen, and end.")
@settings
def top(settings: CommandSettings, interval: float, once: bool) -> None:
    """Watch topics, groups and members at work, until Ctrl-C. What lags most comes first.

    \b
    ENTRIES   that wait in all queues of the topic; an entry holds one or more messages
    IN, OUT   entries stored and removed, a second
    LAG       messages that wait; with a + where the queue is too long to be listed, and entries were counted
    OLDEST    for how long the oldest of them has waited
    DONE      messages that a member is done with, a second
    DEAD      dead letters: 'zkms dead list' says why

    Where standard output is no terminal, and with --json, it is as with --once.
    """
    with inspect(settings) as inspector:
        watcher = TreeWatcher(inspector.session, inspector.tree)
        where = f"{inspector.session.config.hosts}{inspector.tree.root}"
        if once or settings.json or not sys.stdout.isatty():
            watcher.look()
            time.sleep(interval)
            overview = watcher.look()
            if settings.json:
                print_json(overview)
            else:
                console = _console()
                console.print(_page(overview, where, console.width, ROWS))
            return
        _watch(watcher, where, interval)


def _console() -> Console:
    try:
        from rich.console import Console
    except ModuleNotFoundError as error:
        raise Failure("'zkms top' needs rich: pip install 'zkms[top]'; --json does without it") from error
    return Console(highlight=False)


def _watch(watcher: TreeWatcher, where: str, interval: float) -> None:
    console = _console()
    from rich.live import Live

    trouble = ""
    with _until_interrupted() as left:
        overview = watcher.look()
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not left.is_set():
                live.update(_page(overview, where, console.width, console.height, trouble), refresh=True)
                if left.wait(interval):
                    return
                try:
                    overview, trouble = watcher.look(), ""
                except ConnectionLost as error:
                    trouble = f"not connected, what is shown is old: {error}"


@contextmanager
def _until_interrupted() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, which is how one leaves; a second Ctrl-C does not wait for the look under way."""
    left = threading.Event()

    def leave(_number: int, _frame: FrameType | None) -> None:
        if left.is_set():
            raise KeyboardInterrupt
        left.set()

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield left
    finally:
        signal.signal(signal.SIGINT, before)


# -- the page ----------------------------------------------------------------------------------------------------


def _page(overview: Overview, where: str, columns: int, height: int, trouble: str = "") -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    rate = "" if overview.published_per_second is None else f"  {overview.published_per_second:,.0f} messages/s"
    head = Text.assemble(
        ("zkms ", "bold"), safe(where), "  ", (clock(overview.at), "dim"), "\n",
        f"{plural(overview.clients, 'client')}  {plural(len(overview.topics), 'topic')}  "
        f"{plural(len(overview.groups), 'group')}  {plural(overview.entries, 'entry', 'entries')} waiting{rate}  ",
        (plural(overview.dead, "dead letter"), "bold red" if overview.dead else ""),
    )  # fmt: skip
    if trouble:
        head.append(f"\n{safe(trouble)}", "bold yellow")
    topics = sorted(overview.topics, key=lambda t: (-t.entries, -(t.stored_per_second or 0.0), t.topic))
    groups = sorted(overview.groups, key=lambda g: (-(g.info.messages or g.info.entries), g.info.topic, g.info.name))
    members = [(row, member) for row in groups for member in row.info.members]
    parts: list[RenderableType] = [head]
    left = height - 3 - 3 * FRAME
    shares = _shares(left, [len(topics), len(groups), len(members)])
    tables = (
        ("Topics", TOPIC_COLUMNS, [_topic(row) for row in topics]),
        ("Durable subscriptions and groups", GROUP_COLUMNS, [_group(row) for row in groups]),
        ("Members", MEMBER_COLUMNS, [_member(row, member) for row, member in members]),
    )
    for (title, names, rows), share in zip(tables, shares, strict=True):
        if rows:
            parts += [Text(), _table(title, names, rows[:share], columns)]
            if len(rows) > share:
                parts.append(Text(f"... and {len(rows) - share:,} more", "dim"))
    return Group(*parts)


def _shares(lines: int, wanted: Sequence[int]) -> list[int]:
    """How many rows each table gets: what it needs, as long as there is room; else an equal share of what is left."""
    shares = [0] * len(wanted)
    for rank, index in enumerate(sorted(range(len(wanted)), key=lambda i: wanted[i])):
        shares[index] = max(1, min(wanted[index], lines // (len(wanted) - rank)))
        lines -= shares[index]
    return shares


TOPIC_COLUMNS = ("TOPIC", "LIVE", "KEPT", "ENTRIES", "IN/s", "DEAD")
GROUP_COLUMNS = (
    *("TOPIC", "NAME", "KIND", "MEMBERS", "PARTS", "LAG", "OLDEST", "RESERVED", "DEAD", "IN/s", "OUT/s", "STATE"),
)
MEMBER_COLUMNS = ("CLIENT", "GROUP", "TOPIC", "HOST", "PID", "PARTITIONS", "RESERVED", "DONE/s")
LEFT = {"TOPIC", "NAME", "KIND", "STATE", "CLIENT", "GROUP", "HOST", "PARTITIONS"}
LONG = {"TOPIC", "NAME", "CLIENT", "GROUP", "HOST", "PARTITIONS"}
SHORTEST = 6
"""Columns that a name gets at the least."""
STYLES = {"no members": "yellow", "rebalancing": "cyan", "stuck": "bold red", "gone": "dim", "garbage": "red"}


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], available: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(columns, *cells, strict=True)]
    _squeeze(widths, [place for place, column in enumerate(columns) if column in LONG], available - 2 * len(columns))
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for column, fitted in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "left" if column in LEFT else "right"
        table.add_column(column, justify=justify, no_wrap=True, overflow="ellipsis", min_width=fitted, max_width=fitted)
    for row in cells:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    return table


def _squeeze(widths: list[int], places: Sequence[int], available: int) -> None:
    """Names are cut, the widest first; numbers never."""
    while sum(widths) > available and max(widths[place] for place in places) > SHORTEST:
        widths[max(places, key=lambda place: widths[place])] -= 1


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def _topic(row: TopicRow) -> tuple[Any, ...]:
    return row.topic, row.live, row.kept, row.entries, _rate(row.stored_per_second), row.dead


def _group(row: GroupRow) -> tuple[Any, ...]:
    rates = _rate(row.stored_per_second), _rate(row.removed_per_second)
    return (*group_cells(row.info), *rates, row.info.state)


def _member(row: GroupRow, member: Any) -> tuple[Any, ...]:
    return (
        member.client,
        row.info.name,
        row.info.topic,
        member.host,
        str(member.pid),
        ", ".join(map(str, member.partitions)) or "-",
        member.reserved,
        _rate(row.handled_per_second.get(member.client)),
    )
