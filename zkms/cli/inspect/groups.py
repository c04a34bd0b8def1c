"""`zkms groups`: durable subscriptions and groups, who reads them, and how far behind they are."""

from __future__ import annotations

from typing import Any

import click

from zkms.admin.groups import GroupInfo, Groups
from zkms.cli.connection import inspect
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import duration, print_json, print_table
from zkms.names import check_name, check_topic

COLUMNS = ("TOPIC", "NAME", "KIND", "MEMBERS", "PARTITIONS", "LAG", "OLDEST", "RESERVED", "DEAD", "STATE")


@click.command()
@click.argument("name", required=False)
@click.option("--topic", help="Only those of this topic.")
@settings
def groups(settings: CommandSettings, name: str | None, topic: str | None) -> None:
    """List durable subscriptions and groups; with NAME also its members, and who reads which partition.

    \b
    PARTITIONS  how many somebody reads, of how many there are
    LAG         messages that wait; with a + where the queue is too long to be listed, and entries were counted
    OLDEST      for how long the oldest of them has waited
    RESERVED    messages in a reader's hands, as it said up to a second ago
    STATE       active; no members; rebalancing; stuck: a handler has not come back in time; gone

    EPOCH counts how often a partition has changed hands. The longest queues are not listed, of these only the number of
    entries is told; an entry holds one or more messages.
    """
    if topic is not None:
        check_topic(topic)
    if name is not None:
        check_name("name", name)
    with inspect(settings) as inspector:
        found = Groups(inspector.session, inspector.tree).look(topic, name)
    if settings.json:
        print_json(found)
        return
    print_table(
        COLUMNS,
        [(*group_cells(group), group.state) for group in found],
        empty="No durable subscriptions and no groups.",
    )
    if name is not None:
        for group in found:
            _print_inside(group)


def group_cells(group: GroupInfo) -> tuple[Any, ...]:
    """What a table shows of a group, up to its dead letters."""
    owned = sum(bool(part.owner) for part in group.partitions)
    return (
        group.topic,
        group.name,
        group.kind or "-",
        len(group.members),
        f"{owned}/{len(group.partitions)}",
        lag(group.messages, group.entries),
        duration(group.age),
        group.reserved,
        group.dead,
    )


def lag(messages: int | None, entries: int) -> int | str:
    """How many messages wait; at the least, if there is a + behind it."""
    return f"{entries:,}+" if messages is None else messages


def _print_inside(group: GroupInfo) -> None:
    click.echo(f"\nMembers of {group.name} for {group.topic}:")
    members = [
        (m.client, m.host, str(m.pid), ", ".join(map(str, m.partitions)) or "-", m.reserved, m.handled, m.stuck)
        for m in group.members
    ]
    columns = ("CLIENT", "HOST", "PID", "PARTITIONS", "RESERVED", "HANDLED", "STUCK")
    print_table(columns, members, empty="Nobody is there.")
    click.echo("\nPartitions:")
    parts = [
        (str(p.partition), p.owner or "-", p.epoch, lag(p.messages, p.entries), p.delayed, p.reserved, duration(p.age))
        for p in group.partitions
    ]
    print_table(("PARTITION", "OWNER", "EPOCH", "LAG", "DELAYED", "RESERVED", "OLDEST"), parts, empty="None.")
