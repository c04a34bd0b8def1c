"""`zkms pub`: publish one message, many of the same, or one per line of standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import repeat
from typing import Any

import click
import msgspec

from zkms.bus import Bus
from zkms.cli.connection import open_bus
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.messages.delivery import Delivery
from zkms.cli.options import CommandSettings, seconds_option, settings, trail_option
from zkms.cli.output import plural, print_json, print_table
from zkms.cli.progress import Progress
from zkms.errors import ZkmsError
from zkms.names import check_topic
from zkms.zookeeper.operations import MAX_TRANSACTION

CHUNK = 5_000
"""Messages of one call: bounds what is held in memory."""
READ = 256 * 1024


@click.command()
@click.argument("topic")
@click.argument("data", required=False)
@click.option("--key", help="Key of the messages, such as the id of what has changed.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be given repeatedly.")
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="Publish DATA so many times.")
@click.option("--priority", type=click.IntRange(0, 9), default=0, show_default=True, help="Higher ones come first.")
@seconds_option("--delay", help="Publish it so much later.")
@click.option("--at", metavar="TIME", help="Publish it then: seconds since the epoch, or 2026-11-16T12:00:00+01:00.")
@seconds_option("--ttl", least_open=True, help="Do not deliver it any later.")
@click.option("--id", "id_", help="Refuse it if a message of this id was published within the last ten minutes.")
@click.option("--stdin", is_flag=True, help="Publish each line of standard input, as it comes.")
@click.option("--json-data", is_flag=True, help="DATA, or each line, is JSON and arrives as what it stands for.")
@seconds_option("--wait", help="Wait until everybody has acked, and say who has.")
@click.option(
    "--if-nobody", type=click.Choice(["raise", "drop"]), default="raise", show_default=True, help="Without subscribers."
)
@trail_option
@settings
def pub(
    settings: CommandSettings,
    topic: str,
    data: str | None,
    key: str | None,
    headers: tuple[str, ...],
    count: int,
    at: str | None,
    id_: str | None,
    stdin: bool,
    json_data: bool,
    wait: float | None,
    trail: str | None,
    **terms: Any,
) -> None:
    """Publish messages to a topic: to everybody who subscribes to it now.

    \b
    Examples:
      zkms pub users 42 --key 42 --wait 2
      zkms pub users '{"id": 42}' --json-data
      tail -f changes.txt | zkms pub users --stdin
      zkms pub reminders 'stand up' --delay 3600
    """
    if stdin == (data is not None):
        raise click.UsageError("give either DATA or --stdin")
    if stdin and count != 1:
        raise click.UsageError("--count repeats DATA; it does not go with --stdin")
    if id_ is not None and (stdin or count != 1):
        raise click.UsageError("--id is that of one message; it does not go with --stdin or --count")
    check_topic(topic)
    terms |= {"headers": _headers(headers), "at": _moment(at)}
    chunks = _read_lines() if stdin else _repeated(data or "", count)
    delivery = Delivery(topic, keep=wait is not None)
    with open_bus(settings, cleaner=False, trail=trail) as bus, Progress("messages") as progress:
        for chunk in chunks:
            values = [_parse(text) for text in chunk] if json_data else chunk
            _publish(bus, delivery, values, key, id_, terms)
            progress.add(len(chunk))
        if wait is not None:
            delivery.wait(wait)
    _print(settings, delivery, waited=wait is not None)
    if wait is not None and not delivery.complete:
        raise click.exceptions.Exit(Exit.NOT_IN_TIME)


def _publish(
    bus: Bus, delivery: Delivery, values: list[Any], key: str | None, id: str | None, terms: dict[str, Any]
) -> None:
    by_key = None if key is None else lambda _data: key
    if len(values) == 1:
        delivery.add([bus.publish(delivery.topic, values[0], key=key, id=id, **terms)])
        return
    try:
        receipts = bus.publish_many(delivery.topic, values, key=by_key, **terms)
    except ZkmsError as error:
        if delivery.messages:
            error.add_note(f"{plural(delivery.messages, 'message')} before these had been stored")
        raise
    delivery.add(receipts)


def _print(settings: CommandSettings, delivery: Delivery, *, waited: bool) -> None:
    if settings.json:
        print_json(delivery.as_json(waited=waited))
        return
    if delivery.due is not None:
        due = datetime.fromtimestamp(delivery.due).astimezone().isoformat(timespec="seconds")
        click.echo(f"Stored {plural(delivery.messages, 'message')} for {delivery.topic!r}, due at {due}.")
    elif not delivery.subscriptions:
        click.echo(f"Nobody subscribes to {delivery.topic!r}: {plural(delivery.messages, 'message')} dropped.")
        return
    else:
        where = plural(len(delivery.subscriptions), "subscription")
        click.echo(f"Published {plural(delivery.messages, 'message')} to {delivery.topic!r}: {where}.")
    if waited:
        rows = [(name, state, why) for name, (state, why) in sorted(delivery.states().items())]
        print_table(("SUBSCRIPTION", "STATE", "WHY"), rows, empty="")


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [item.partition("=") for item in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.UsageError(f"--header {name!r}: write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _moment(text: str | None) -> float | datetime | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(
            f"--at {text!r}: write seconds since the epoch, or a moment such as 2026-11-16T12:00:00+01:00"
        ) from error


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise click.UsageError(f"{text!r:.60} is not JSON: {error}") from error


def _repeated(data: str, count: int) -> Iterator[list[str]]:
    while count:
        yield list(repeat(data, min(count, CHUNK)))
        count -= min(count, CHUNK)


def _read_lines() -> Iterator[list[str]]:
    """The lines of standard input, those that are there now at once: buffering would hold a slow stream back."""
    number = 0
    for raw in _raw_lines(sys.stdin.fileno()):
        lines = []
        for line in raw:
            number += 1
            try:
                lines.append(line.decode())
            except UnicodeDecodeError as error:
                raise Failure(f"line {number} of standard input is not UTF-8") from error
        yield lines


def _raw_lines(descriptor: int) -> Iterator[list[bytes]]:
    rest = b""
    while part := os.read(descriptor, READ):
        *lines, rest = (rest + part).split(b"\n")
        if lines:
            yield lines
        if len(rest) > MAX_TRANSACTION:
            raise Failure(f"a line of more than {MAX_TRANSACTION:,} bytes on standard input is too large for a message")
    if rest:
        yield [rest]
