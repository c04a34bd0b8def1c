"""`zkms peek`: the first entries of a queue, read and left where they are."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import click

from zkms.admin.peek import HUGE, Peeked, PeekedEntry, QueueTooLong
from zkms.admin.peek import peek as look
from zkms.cli.connection import Inspector, inspect
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import clock, data_json, data_text, plural, print_json, print_table
from zkms.errors import NodeMissing
from zkms.message import frame as frames
from zkms.names import check_name, check_topic

COLUMNS = ("SEQUENCE", "MESSAGES", "BYTES", "PRODUCER", "PUBLISHED", "KEY", "DATA")


@click.command()
@click.argument("subscription")
@click.argument("topic", required=False)
@click.option("--topic", "named_topic", help="The topic, as an option; needed only if SUBSCRIPTION has several.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Entries to show.")
@click.option("--force", is_flag=True, help=f"List the queue even if it has more than {HUGE:,} entries.")
@settings
def peek(
    settings: CommandSettings, subscription: str, topic: str | None, named_topic: str | None, limit: int, force: bool
) -> None:
    """Show the first entries of SUBSCRIPTION's queue for TOPIC, and leave them there.

    'zkms queues' tells which queues there are. A row is an entry, with its first message; --json has all of them.
    """
    check_name("subscription", subscription)
    topic = named_topic if topic is None else topic
    if topic is not None:
        check_topic(topic)
    with inspect(settings) as inspector:
        topic = _only_topic(inspector, subscription) if topic is None else topic
        waiting, found = _look(inspector, subscription, topic, limit, force)
    shown = [_as_object(entry) for entry in found]
    if settings.json:
        print_json(shown)
        return
    print_table(COLUMNS, [_row(entry) for entry in shown], empty="The queue is empty.")
    if waiting > len(shown):
        click.echo(f"... of {plural(waiting, 'entry', 'entries')}; --limit shows more.")


def _only_topic(inspector: Inspector, subscription: str) -> str:
    topics = inspector.names(inspector.tree.subscription(subscription))
    if len(topics) == 1:
        return topics[0]
    if not topics:
        raise Failure(f"{subscription!r} has no queues; 'zkms queues' tells which there are")
    raise click.UsageError(f"{subscription!r} has queues for several topics, give one of them: {', '.join(topics)}")


def _look(inspector: Inspector, subscription: str, topic: str, limit: int, force: bool) -> Peeked:
    try:
        return look(inspector.session, inspector.tree, subscription, topic, limit, force=force)
    except NodeMissing:
        raise Failure(f"{subscription!r} has no queue for {topic!r}; 'zkms queues' tells which there are") from None
    except QueueTooLong as error:
        raise Failure(f"{error}, which may slow it down for everybody: --force does it nevertheless") from None


def _as_object(found: PeekedEntry) -> dict[str, Any]:
    """An entry for programs; `kind` is frame, gap or garbage."""
    entry, frame = found.entry, found.frame
    described: dict[str, Any] = {"name": entry.name, "sequence": None if entry.foreign else entry.sequence}
    described |= {"size": len(found.raw), "kind": found.kind}
    if frame is None:
        described["reason"] = found.reason
        return described if found.kind == "gap" else described | {"raw_base64": found.raw}
    return described | {
        "producer": frame.producer,
        "seq": frame.seq,
        "published_at": frame.published_at,
        "messages": list(map(_message, frame.data, frame.extras or repeat(None), repeat(frame.codec))),
    }


def _message(data: Any, extra: frames.Extra | None, codec: str | None) -> dict[str, Any]:
    extra = extra or frames.Extra()
    common = {"key": extra.key, "headers": extra.headers or {}, "id": extra.id}
    if codec is None:
        return common | data_json(data)
    return common | {"unreadable": f"encoded with codec {codec!r}", "data_base64": data}


def _row(entry: dict[str, Any]) -> tuple[Any, ...]:
    size, sequence = entry["size"], "?" if entry["sequence"] is None else str(entry["sequence"])
    if entry["kind"] != "frame":
        return sequence, 0, size, "-", "-", "-", f"({entry['kind']}: {entry['reason']})"
    first = entry["messages"][0]
    data = first.get("data", first.get("data_base64", b""))
    text = f"({first['unreadable']})" if "unreadable" in first else data_text(data)
    more = len(entry["messages"]) - 1
    return (
        sequence,
        len(entry["messages"]),
        size,
        entry["producer"],
        clock(entry["published_at"]),
        first["key"],
        f"{text} (+{more:,} more)" if more else text,
    )
