"""`zkms sub`: print the messages of a topic as they come."""

from __future__ import annotations

import sys
import time

import click

from zkms.cli.connection import open_bus
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import Seconds, Settings, settings, trail_option
from zkms.cli.output import clock, data_json, data_text, escape, plural, print_json_line
from zkms.inbox import Gap
from zkms.message import Message
from zkms.names import check_topic
from zkms.subscription import Subscription

BATCH = 100


@click.command()
@click.argument("topic")
@click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("--timeout", type=Seconds(min=0), metavar="SECONDS", help="End after so many seconds, whatever came.")
@trail_option
@settings
def sub(settings: Settings, topic: str, count: int | None, timeout: float | None, trail: str | None) -> None:
    """Print the messages of a topic as they come, until Ctrl-C.

    A message is acked when it has been printed. Where messages may have been missed, stderr says so. With --timeout the
    exit code is 4 if nothing came, or less than --count. With --json each message is an object on a line of its own;
    bytes are in data_base64 instead of data.
    """
    check_topic(topic)
    deadline = None if timeout is None else time.monotonic() + timeout
    with (
        open_bus(settings, cleaner=True, trail=trail) as bus,
        bus.subscribe(topic, ack="manual", on_gap=_tell_gap, on_error=_tell_error) as subscription,
    ):
        click.echo(f"Subscribed to {topic!r} as {subscription.id}; Ctrl-C ends.", err=True)
        got = _print_messages(subscription, count, deadline, as_json=settings.json)
    if got == 0 or (count is not None and got < count):
        wanted = "" if count is None else f" of {plural(count, 'message')}"
        raise Failure(f"{got or 'nothing'}{wanted} received in {timeout:g} s", Exit.NOT_IN_TIME)


def _print_messages(subscription: Subscription, count: int | None, deadline: float | None, *, as_json: bool) -> int:
    got = 0
    while count is None or got < count:
        wait = None if deadline is None else deadline - time.monotonic()
        if wait is not None and wait < 0:
            break
        messages = subscription.fetch(BATCH if count is None else min(BATCH, count - got), wait)
        for message in messages:
            if as_json:
                print_json_line(as_object(message))
            else:
                _print_text(message)
        sys.stdout.flush()
        for message in messages:
            message.ack()
        got += len(messages)
    return got


def as_object(message: Message) -> dict[str, object]:
    """A message for programs."""
    return {
        "id": message.id,
        "topic": message.topic,
        "key": message.key,
        "headers": dict(message.headers),
        "producer": message.producer,
        "seq": message.seq,
        "published_at": message.published_at,
        **data_json(message.data),
    }


def _print_text(message: Message) -> None:
    text = data_text(message.data)
    if not sys.stdout.isatty():
        click.echo(text)
        return
    key = f" [{escape(message.key)}]" if message.key is not None else ""
    click.echo(f"{click.style(clock(message.published_at) + key, dim=True)} {escape(text)}")


def _tell_gap(gap: Gap) -> None:
    click.echo(f"Gap: messages may have been missed here: {escape(gap.reason)}", err=True)


def _tell_error(error: Exception, _message: Message | None) -> None:
    click.echo(f"Not shown: {escape(str(error))}", err=True)
