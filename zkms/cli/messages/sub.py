"""`zkms sub`: print the messages of a topic as they come, or hand each to a command or a URL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from zkms.bus import Bus
from zkms.cli.connection import open_bus
from zkms.cli.messages.action import GRACE, make_action
from zkms.cli.messages.intake import Intake, in_use
from zkms.cli.options import CommandSettings, seconds_option, settings, trail_option
from zkms.cli.output import escape
from zkms.consume.consumer import Consumer
from zkms.deliver.inbox import Gap
from zkms.deliver.live import Subscription
from zkms.errors import SubscriptionInUse
from zkms.message.message import Message
from zkms.names import check_subscription, check_topic


@click.command()
@click.argument("topic")
@click.option("--name", help="A durable subscription: kept while nobody reads it, read by one at a time.")
@click.option("--takeover", is_flag=True, help="With --name: take it from whoever reads it.")
@click.option("--group", help="Be a member of this group: its members share the messages.")
@click.option("--partitions", type=click.IntRange(1, 1024), help="Of a group that is made now; 8 if not given.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")
@seconds_option("--timeout", help="End after so many seconds, whatever came.")
@click.option("--drain", is_flag=True, help="With --name or --group: end when nothing is waiting any more.")
@click.option("--exec", "command", metavar="CMD", help="Run CMD for each message, with its data on standard input.")
@click.option("--post", "url", metavar="URL", help="Post each message's data to URL.")
@seconds_option(
    "--ttr",
    least_open=True,
    default=30.0,
    help="Time to run: how long CMD, URL or a member of a group has for a message.",
)
@click.option(
    "--max-attempts", type=click.IntRange(min=1), default=3, show_default=True, metavar="COUNT",
    help="After so many a message that fails is a dead letter.",
)  # fmt: skip
@seconds_option("--backoff", default=1.0, help="Pause before the second attempt; doubled each time.")
@trail_option
@settings
def sub(settings: CommandSettings, topic: str, **options: Any) -> None:
    """Print the messages of a topic as they come, until Ctrl-C. TOPIC may be a pattern: users.*, users.>

    \b
    Examples:
      zkms sub users                                   who is online gets it
      zkms sub users --name audit                      goes on where it has stopped
      zkms sub jobs --group workers --drain            work off what is there, and end
      zkms sub jobs --group workers --exec './handle --fast'
      zkms sub jobs --name hook --post https://example.org/hook

    A message is acked when it has been printed; with --exec when CMD has ended with exit code 0; with --post when the
    answer is 2xx. Otherwise it is tried again, after a pause that doubles each time, and after --max-attempts it is a
    dead letter: 'zkms dead list'. An answer of 4xx makes it one at once, but for 408 and 429. CMD is run without a
    shell, is ended when its time to run is over, and finds ZKMS_TOPIC, ZKMS_ID, ZKMS_KEY, ZKMS_ATTEMPT, ZKMS_PRODUCER,
    ZKMS_SEQ, ZKMS_PUBLISHED_AT and ZKMS_HEADERS (JSON) in its environment. A post carries the same as headers ZKMS-Id,
    ZKMS-Key and so on, and what is in ZKMS_POST_AUTHORIZATION as Authorization.

    Where messages may have been missed, stderr says so. With --timeout the exit code is 4 if nothing came, or less than
    --count, or --drain was cut short. It is 9 if somebody else reads the durable subscription. With --json each message
    is an object on a line of its own; bytes are in data_base64 instead of data.
    """
    check_topic(topic)
    _check_usage(**options)
    timeout = options["timeout"]
    action = make_action(options["command"], options["url"], options["ttr"], as_json=settings.json)
    deadline = None if timeout is None else time.monotonic() + timeout
    with open_bus(settings, cleaner=True, trail=options["trail"]) as bus, _subscribed(bus, topic, options) as source:
        intake = Intake(
            bus,
            source,
            action,
            count=options["count"],
            deadline=deadline,
            timeout=timeout or 0.0,
            drain=options["drain"],
            as_json=settings.json,
            max_attempts=options["max_attempts"],
        )
        try:
            intake.run()
        finally:
            if action is not None and not settings.json:
                click.echo(intake.summary(), err=True)


def _check_usage(**options: Any) -> None:
    name, group = options["name"], options["group"]
    if name is not None and group is not None:
        raise click.UsageError("give either --name or --group")
    if name is not None:
        check_subscription("name", name)
    if group is not None:
        check_subscription("group", group)
    if options["takeover"] and name is None:
        raise click.UsageError("--takeover is for a durable subscription: give --name too")
    if options["partitions"] is not None and group is None:
        raise click.UsageError("--partitions is for a group: give --group too")
    for option, given in (("--drain", options["drain"]), ("--exec", options["command"]), ("--post", options["url"])):
        if given and name is None and group is None:
            raise click.UsageError(f"{option} needs something that is kept: give --name or --group too")


@contextmanager
def _subscribed(bus: Bus, topic: str, options: dict[str, Any]) -> Iterator[Subscription | Consumer]:
    common: dict[str, Any] = {"ack": "manual", "on_gap": _tell_gap, "on_error": _tell_error}
    if options["name"] is not None or options["group"] is not None:
        common |= {"max_attempts": options["max_attempts"], "backoff": options["backoff"]}
    if options["name"] is not None:
        common |= {"name": options["name"], "takeover": options["takeover"]}
    elif options["group"] is not None:
        # A command is ended when its time is over, and given back by us: the group need not take it from us.
        spare = 2 * GRACE + 5.0 if options["command"] or options["url"] else 0.0
        common |= {"group": options["group"], "partitions": options["partitions"], "ttr": options["ttr"] + spare}
    try:
        subscription: Subscription | Consumer = bus.subscribe(topic, **common)
    except SubscriptionInUse as error:
        raise in_use(bus, error.topic, error.name, error.owner) from error
    with subscription:
        click.echo(f"Subscribed to {topic!r} as {subscription.id}; Ctrl-C ends.", err=True)
        yield subscription


def _tell_gap(gap: Gap) -> None:
    click.echo(f"Gap: messages may have been missed here: {escape(gap.reason)}", err=True)


def _tell_error(error: Exception, _message: Message | None) -> None:
    click.echo(f"Not shown: {escape(str(error))}", err=True)
