"""`zkms queues`: what waits where."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from zkms.admin.discovery import QueueInfo
from zkms.admin.groups import Groups
from zkms.cli.connection import inspect
from zkms.cli.inspect.groups import lag
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import duration, print_found
from zkms.names import check_topic
from zkms.tree.paths import subscription_of

COLUMNS = (
    *("SUBSCRIPTION", "TOPIC", "KIND", "ENTRIES", "LAG", "DELAYED", "READY", "RESERVED", "DEAD", "OLDEST"),
    *("REGISTERED", "STATE"),
)


@click.command()
@click.option("--topic", help="Only the queues of this topic.")
@click.option("--partitions", is_flag=True, help="Each partition of a group by itself.")
@settings
def queues(settings: CommandSettings, topic: str | None, partitions: bool) -> None:
    """List queues and how much waits in each, the longest first.

    An entry holds one or more messages, and LAG counts messages: delayed ones have failed and wait for another attempt,
    reserved ones are in a reader's hands, dead ones have been given up ('zkms dead list'). A + says that a queue is too
    long to be listed, and that its entries were counted instead. A group's partitions are added up; 'zkms peek' and
    'zkms purge' know each by the name that --partitions shows.

    A queue that nobody is registered for was left by a subscriber that is gone: the cleaner removes it after its grace
    period. Names are listed, within a budget; no message is read.
    """
    if topic is not None:
        check_topic(topic)
    with inspect(settings) as inspector:
        found = [q for q in inspector.discovery.queues() if topic is None or q.topic == topic]
        found = Groups(inspector.session, inspector.tree).count(found)
    if not partitions:
        found = _added_up(found)
    found.sort(key=lambda q: (-q.entries, q.topic, q.subscription))
    print_found(settings.json, found, COLUMNS, [_row(queue) for queue in found], empty="No queues.")


def _added_up(queues: list[QueueInfo]) -> list[QueueInfo]:
    """One for all partitions of a group."""
    found: dict[tuple[str, str], list[QueueInfo]] = {}
    for queue in queues:
        name = subscription_of(queue.subscription) if queue.kind == "group" else queue.subscription
        found.setdefault((name, queue.topic), []).append(queue)
    return [_sum(name, partitions) for (name, _), partitions in found.items()]


def _sum(name: str, partitions: list[QueueInfo]) -> QueueInfo:
    first = partitions[0]
    if len(partitions) == 1 and first.subscription == name:
        return first
    ages = [queue.age for queue in partitions if queue.age is not None]
    states = {queue.state for queue in partitions}
    counts = ("entries", "stored", "removed", "messages", "delayed", "ready", "reserved")
    return msgspec.structs.replace(
        first,
        subscription=name,
        partition=None,
        **{count: _total([getattr(queue, count) for queue in partitions]) for count in counts},
        age=max(ages, default=None),
        state=first.state if len(states) == 1 else ", ".join(sorted(states)),
    )


def _total(counts: list[int | None]) -> int | None:
    return None if None in counts else sum(count or 0 for count in counts)


def _row(queue: QueueInfo) -> tuple[Any, ...]:
    return (
        queue.subscription,
        queue.topic,
        queue.kind or "-",
        queue.entries,
        lag(queue.messages, queue.entries),
        queue.delayed,
        queue.ready,
        queue.reserved,
        queue.dead,
        duration(queue.age),
        queue.registered,
        queue.state,
    )
