"""Is what zkms keeps in ZooKeeper whole, protected, swept and flowing? Nothing here lists a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from zkms.admin.discovery import QueueInfo
from zkms.cli.connection import Inspector
from zkms.cli.operate.checks import CLEANERS_SEE, Finding, some
from zkms.cli.operate.checks.security import check_access, check_quotas
from zkms.cli.output import plural
from zkms.errors import NodeMissing, Unauthorised
from zkms.tree.paths import LAYOUT
from zkms.tree.records import Layout, decode

T = TypeVar("T")
LONG = 10_000
"""Entries of a queue that are worth a word."""


def check_tree(inspector: Inspector) -> Iterator[Finding]:
    """Everything below ROOT."""
    root = inspector.tree.root
    try:
        data, _ = inspector.session.get(root)
    except NodeMissing:
        yield Finding("tree", "ok", f"{root} does not exist yet", "the first client that connects makes it")
        return
    layout = _layout(inspector, data)
    yield layout
    yield from check_access(inspector)
    yield from check_quotas(inspector)
    if layout.level == "problem":
        return
    hidden: list[str] = []
    queues = _allowed(inspector.discovery.queues, "queues", hidden)
    clients = inspector.discovery.clients()
    versions = sorted({client.version for client in clients})
    yield Finding(
        "clients", "ok", f"{len(clients):,} connected" + (f", zkms {', '.join(versions)}" if versions else "")
    )
    yield _election(inspector, busy=bool(queues or clients))
    if queues is not None:
        yield _orphans(queues)
        yield _backlog(queues)
    yield from _registrations(inspector, queues or [])
    dead = _allowed(lambda: _set_aside(inspector), "dead letters", hidden)
    if dead is not None:
        yield dead
    if hidden:
        said = f"not looked at, since these credentials may not: {', '.join(hidden)}"
        yield Finding("others' own", "ok", said, CLEANERS_SEE)


def _allowed(look: Callable[[], T], what: str, hidden: list[str]) -> T | None:
    """What is found there; None, and a note of `what` it is, if these credentials may not look at it."""
    try:
        return look()
    except Unauthorised:
        hidden.append(what)
        return None


def _layout(inspector: Inspector, data: bytes) -> Finding:
    tree = inspector.tree
    try:
        layout = decode(data, Layout).layout
    except msgspec.MsgspecError:
        said = f"{tree.root} holds another program's data"
        return Finding("tree", "problem", said, "choose another root, with --root or ZKMS_ROOT")
    if layout > LAYOUT:
        return Finding("tree", "problem", f"layout {layout}, this zkms knows {LAYOUT}", "upgrade zkms here")
    missing = [path for path in tree.skeleton if not _is_there(inspector, path)]
    if missing:
        return Finding("tree", "problem", f"{some(missing)} missing", "create it; zkms makes it only with a new root")
    return Finding("tree", "ok", f"{tree.root}, layout {layout}")


def _is_there(inspector: Inspector, path: str) -> bool:
    try:
        return inspector.session.exists(path) is not None
    except Unauthorised:
        return True  # or ZooKeeper would not speak of rights


def _election(inspector: Inspector, *, busy: bool) -> Finding:
    candidates = [name for name in inspector.names(inspector.tree.cleaner) if name[-10:].isdigit()]
    if candidates:
        leader = min(candidates, key=lambda name: name[-10:])
        said = f"{plural(len(candidates), 'candidate')}, {leader[:-10].rstrip('_')} leads"
        return Finding("cleaner", "ok", said)
    if not busy:
        return Finding("cleaner", "ok", "nobody stands for election, and there is nothing to clean")
    advice = "run 'zkms cleaner', or connect() a client without cleaner=False"
    return Finding("cleaner", "warning", "nobody stands for election: dead subscribers' queues stay", advice)


def _orphans(queues: list[QueueInfo]) -> Finding:
    orphans = sorted((q for q in queues if not q.registered), key=lambda q: -q.entries)
    if not orphans:
        return Finding("orphaned queues", "ok", "none")
    entries = sum(q.entries for q in orphans)
    said = f"{len(orphans):,} with {plural(entries, 'entry', 'entries')}: {some([_name(q) for q in orphans])}"
    advice = "the leading cleaner removes them after its grace; where nobody leads, run 'zkms cleaner --once --grace 0'"
    return Finding("orphaned queues", "warning", said, advice)


def _backlog(queues: list[QueueInfo]) -> Finding:
    longest = sorted((q for q in queues if q.entries), key=lambda q: -q.entries)[:3]
    if not longest:
        return Finding("backlog", "ok", "nothing waits")
    said = "; ".join(f"{_name(q)}: {plural(q.entries, 'entry', 'entries')}" for q in longest)
    if longest[0].entries < LONG:
        return Finding("backlog", "ok", said)
    return Finding("backlog", "warning", said, "see why these subscribers are slow; 'zkms purge' empties a queue")


def _registrations(inspector: Inspector, queues: list[QueueInfo]) -> Iterator[Finding]:
    discovery, tree = inspector.discovery, inspector.tree
    full: list[str] = []
    garbage = [f"the queue {_name(q)}" for q in queues if q.state == "garbage"]
    for topic in (topic for topic in discovery.topics() if topic.subscriptions):
        registered = discovery.subscriptions(topic.topic)
        full += [f"{s.subscription} for {topic.topic}" for s in registered if s.full]
        garbage += [tree.registration(topic.topic, s.subscription) for s in registered if s.kind == "garbage"]
    if full:
        advice = "they get nothing until they have caught up: see why they are slow"
        yield Finding("full queues", "warning", some(full), advice)
    else:
        yield Finding("full queues", "ok", "none")
    if garbage:
        yield Finding(
            "foreign data", "warning", some(garbage), "another program wrote there: delete it, find the program"
        )
    else:
        yield Finding("foreign data", "ok", "none")


def _set_aside(inspector: Inspector) -> Finding:
    tree, count, where = inspector.tree, 0, []
    for subscription in inspector.names(tree.dead):
        for topic in inspector.names(f"{tree.dead}/{subscription}"):
            stat = inspector.session.exists(tree.dead_queue(subscription, topic))
            if stat is not None and stat.numChildren:
                count += stat.numChildren
                where.append(f"{subscription} for {topic}")
    if not count:
        return Finding("dead letters", "ok", "none")
    said = f"{plural(count, 'message')} given up, or unreadable, from {some(where)}"
    return Finding("dead letters", "warning", said, "'zkms dead list' says why; then requeue or purge them")


def _name(queue: QueueInfo) -> str:
    return f"{queue.subscription} for {queue.topic}"
