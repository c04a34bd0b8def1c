"""What people and programs read: tables, JSON, and text that cannot harm a terminal."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from zkms.cli.exit_codes import Exit
from zkms.message.frame import UNWRITABLE

MIN_COLUMN = 8


def print_json(document: Any) -> None:
    """One JSON document, indented."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_json_line(document: Any) -> None:
    """One JSON document on one line, for streams."""
    click.echo(msgspec.json.encode(document))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str) -> None:
    """Aligned columns, numbers to the right. On a terminal long cells are cut to its width; a pipe gets all."""
    if not rows:
        click.echo(empty)
        return
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(width(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    if sys.stdout.isatty():
        _squeeze(widths, shutil.get_terminal_size().columns)
    numeric = [all(type(row[i]) in (int, float) for row in rows) for i in range(len(columns))]
    header = "  ".join(_fit(name, w, right) for name, w, right in zip(columns, widths, numeric, strict=True))
    click.echo(click.style(header.rstrip(), bold=True))
    for row in cells:
        click.echo("  ".join(_fit(c, w, right) for c, w, right in zip(row, widths, numeric, strict=True)).rstrip())


def print_found(
    as_json: bool, found: Any, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str
) -> None:
    """What a command has found, for programs or for people."""
    if as_json:
        print_json(found)
    else:
        print_table(columns, rows, empty=empty)


def _squeeze(widths: list[int], available: int) -> None:
    """Take from the widest column until the table fits, or every column is as narrow as is useful."""
    while sum(widths) + 2 * (len(widths) - 1) > available and max(widths) > MIN_COLUMN:
        widest = widths.index(max(widths))
        second = max([w for i, w in enumerate(widths) if i != widest], default=MIN_COLUMN)
        excess = sum(widths) + 2 * (len(widths) - 1) - available
        widths[widest] = max(widths[widest] - excess, min(second, widths[widest] - 1), MIN_COLUMN)


def _fit(cell: str, columns: int, right: bool) -> str:
    while width(cell) > columns:
        cell = cell[: max(0, columns - 1 - (width(cell) - len(cell)))] + "…" if len(cell) > 1 else ""
    padding = " " * (columns - width(cell))
    return padding + cell if right else cell + padding


def width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def safe(value: Any) -> str:
    """A value as one line of text without control characters."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and value.bit_length() <= 256:
        return f"{value:,}"
    if isinstance(value, int):
        return f"{value:#x}"  # Python does not write numbers of any length in decimals
    if isinstance(value, float):
        return f"{value:,.1f}"
    return escape("-" if value is None else str(value))


def escape(text: str) -> str:
    r"""Control and other invisible characters as \n, \x1b and the like."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def data_text(data: Any) -> str:
    """A message's data for people: text as it is, bytes as text where they are, everything else as JSON."""
    if isinstance(data, bytes):
        return escape(data.decode(errors="backslashreplace"))
    if isinstance(data, str):
        return data
    try:
        return msgspec.json.encode(data).decode()
    except UNWRITABLE:
        return escape(repr(data))


def data_json(data: Any) -> dict[str, Any]:
    """A message's data for programs: {"data": ...}, {"data_base64": ...} for bytes, {"data_text": ...} for others."""
    if isinstance(data, bytes):
        return {"data_base64": data}
    try:
        return {"data": msgspec.Raw(msgspec.json.encode(data))}
    except UNWRITABLE:
        return {"data_text": data_text(data)}


def clock(seconds: float) -> str:
    """A moment in local time, or "?" for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


def duration(seconds: float | None) -> str:
    """A span of time in its two largest units: "0.4 s", "12 s", "3 min 20 s", "2 h 5 min", "4 d 3 h"; "-" for none."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400:,} d {whole % 86_400 // 3600} h"


def confirm_removal(what: str) -> None:
    """End the command unless a person agrees to the removal; without a person, --yes has to be given."""
    try:
        if click.confirm(f"Remove {what}, for good?", err=True):
            return
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("nobody is there to confirm: pass --yes") from None
    click.echo("Nothing was removed.", err=True)
    raise click.exceptions.Exit(Exit.ERROR)


def plural(count: int, what: str, many: str | None = None) -> str:
    """ "1 message", "1,000 messages"."""
    return f"{count:,} {what if count == 1 else many or what + 's'}"
