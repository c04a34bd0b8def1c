"""Removes a durable subscription or a group that no process reads."""

from __future__ import annotations

from typing import NamedTuple

from zkms.admin.lag import unacked_messages
from zkms.errors import NodeMissing, NotSubscribed, SubscriptionInUse
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.trail.hooks import Recorder
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree, queues_of
from zkms.tree.records import Ledger, decode_or_none
from zkms.zookeeper.session import Session


class Abandoned(NamedTuple):
    """A durable subscription or a group that no process reads."""

    kind: str
    messages: int
    """Messages that are not acked, and would be lost."""


def find_abandoned(session: Session, tree: Tree, client_id: str, topic: str, name: str) -> Abandoned:
    """Return what unsubscribe() would remove; `NotSubscribed` if it is missing, `SubscriptionInUse` if it is read."""
    registrations = DurableRegistration(session, tree, client_id)
    found = registrations.find(topic, name)
    if found is None or found.kind == "live":
        raise NotSubscribed(topic)
    if readers := registrations.members(topic, name):
        raise SubscriptionInUse(topic, name, readers[0])
    messages = 0
    for number, queue in enumerate(queues_of(name, found)):
        try:
            entries = [parse_entry(entry) for entry in session.children(tree.queue(queue, topic))[0]]
            ledger = decode_or_none(session.get(tree.ledger(name, topic, number))[0], Ledger) or Ledger()
        except NodeMissing:
            continue
        messages += unacked_messages(entries, ledger.parts)
    return Abandoned(found.kind, messages)


def unsubscribe(
    session: Session, tree: Tree, client_id: str, topic: str, name: str, kind: str, trail: Recorder
) -> None:
    """Remove a durable subscription or a group with its queues; its dead letters stay.

    `SubscriptionInUse` if a process reads it, `NotSubscribed` if it does not exist.
    """
    zxid = DurableRegistration(session, tree, client_id).unregister(topic, name)
    trail.note("unsubscribed", sub=name, topic=topic, kind=kind, zxid=zxid)
