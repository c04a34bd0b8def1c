"""`zkms topics`: the topics, how many subscribe to each, and what is published there later."""

from __future__ import annotations

import time
from typing import Any

import click

from zkms.admin.delayed import delayed_by_topic
from zkms.cli.connection import inspect
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import duration, print_found


@click.command()
@settings
def topics(settings: CommandSettings) -> None:
    """List topics, with how many subscribe to each, and how many messages are not due yet.

    DELAYED messages were published with a delay: who gets them is decided when they are due, so they belong to no queue
    yet. DUE IN says when the first of them is.
    """
    with inspect(settings) as inspector:
        found = {info.topic: info.subscriptions for info in inspector.discovery.topics()}
        delayed = {info.topic: info for info in delayed_by_topic(inspector.session, inspector.tree)}
    rows: list[dict[str, Any]] = []
    for topic in sorted(found.keys() | delayed.keys()):
        later = delayed.get(topic)
        rows.append(
            {
                "topic": topic,
                "subscriptions": found.get(topic, 0),
                "delayed": 0 if later is None else later.messages,
                "next_due": None if later is None else later.next_due,
            }
        )
    columns = ("TOPIC", "SUBSCRIPTIONS", "DELAYED", "DUE IN")
    print_found(settings.json, rows, columns, [_row(row) for row in rows], empty="No topics.")


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    due = row["next_due"]
    wait = duration(None if due is None else max(0.0, due - time.time()))
    return row["topic"], row["subscriptions"], row["delayed"], wait
