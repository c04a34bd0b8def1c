"""Reports changes: topics, subscriptions, members of groups and connected processes that are added or removed.

Each list (the topics, a topic's subscriptions, a group's members, ...) is read with a watch, compared with its former
state, and read again when its watch fires. A watch also fires when the connection is lost, so no change is missed; a
name that was added and removed between two reads is not reported.

Thread: `zkms-observer` reads and calls back. Watches only note which list to read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from zkms.errors import Closed, InvalidArgument, ZkmsError
from zkms.names import FULL_MARK
from zkms.tree.paths import Tree
from zkms.zookeeper.recipes import read_many
from zkms.zookeeper.session import Session

log = logging.getLogger("zkms.admin")
MAX_LISTS = 20_000
"""The most lists that one observer watches; ZooKeeper keeps each watch in memory."""
PAUSE = 0.05
"""Seconds between two reads at least, so that many changes are read at once."""
RETRY = 1.0

What = Literal["topic", "subscription", "member", "client"]


class Change(msgspec.Struct, frozen=True):
    """An addition or removal; for a subscription also "full", publishers skip it, and "drained", they do no more."""

    what: What
    event: Literal["added", "removed", "full", "drained"]
    topic: str = ""
    subscription: str = ""
    client: str = ""
    """The member or the connected process."""


OnChange = Callable[[Change], object]


class _List(NamedTuple):
    """A list of names in the tree: its kind and its position."""

    kind: Literal["topics", "topic", "groups", "group", "members", "clients"]
    topic: str = ""
    subscription: str = ""


ROOTS = (_List("clients"), _List("topics"), _List("groups"))


class Observer:
    """What bus.watch() returns: close() it, or use it in a `with` block. Nothing is reported once it is closed."""

    def __init__(self, session: Session, tree: Tree, callback: OnChange) -> None:
        if not callable(callback):
            raise InvalidArgument(f"callback must be callable, not {callback!r:.60}")
        self.closed = False
        self._session = session
        self._tree = tree
        self._callback = callback
        self._known: dict[_List, frozenset[str]] = {}
        self._due: set[_List] = set()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._calling = threading.RLock()
        self._complained = False
        self._forget: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="zkms-observer", daemon=True)

    def start(self) -> None:
        """Read everything for the first time, without a report; changes after this call are reported."""
        self._due.update(ROOTS)
        while self._due:
            self._look()
        self._thread.start()

    def close(self) -> None:
        """Stop reporting; wait for a running callback, unless it is the caller."""
        with self._calling:
            ended, self.closed = self.closed, True
        if not ended:
            self._forget()
        self._wake.set()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------------------------

    def _fired(self, place: _List) -> None:
        """Note a list whose watch fired; runs on the connection's thread."""
        with self._lock:
            self._due.add(place)
        self._wake.set()

    def _run(self) -> None:
        pause = threading.Event()
        while not self.closed:
            self._wake.wait()
            pause.wait(PAUSE)
            self._wake.clear()
            if self.closed:
                return
            try:
                for change in self._look():
                    self._tell(change)
            except Closed:
                return
            except ZkmsError as error:
                log.warning("cannot look at what has changed, trying again: %s", error)
                pause.wait(RETRY)
                self._wake.set()

    def _look(self) -> list[Change]:
        """Read and compare the lists that are due; new lists in them become due."""
        with self._lock:
            due, self._due = self._due, set()
        changes: list[Change] = []
        try:
            listed = read_many(
                self._session,
                due,
                lambda place: self._session.children_async(self._path(place), partial(self._fired, place)),
            )
        except BaseException:
            with self._lock:
                self._due |= due
            raise
        for place in sorted(due, key=_depth):
            outer = _outer(place)
            if outer is not None and place not in self._known:
                continue  # its removal was seen in the outer list
            if outer is not None and place not in listed:
                changes += self._compare(outer[0], self._known[outer[0]] - {outer[1]})
                self._fired(outer[0])  # it may have been created again since
            else:
                changes += self._compare(place, frozenset(listed[place][0]) if place in listed else frozenset())
        with self._lock:
            if self._due:
                self._wake.set()
        return changes

    def _compare(self, place: _List, names: frozenset[str]) -> list[Change]:
        before = self._known.get(place, frozenset())
        self._known[place] = names
        changes = []
        for name in sorted(before - names):
            inner = _inner(place, name)
            if inner is not None and inner in self._known:
                changes += self._compare(inner, frozenset())
                del self._known[inner]
            changes += _change(place, name, came=False)
        for name in sorted(names - before):
            changes += _change(place, name, came=True)
            inner = _inner(place, name)
            if inner is not None and inner not in self._known:
                self._watch(inner)
        return changes

    def _watch(self, place: _List) -> None:
        if len(self._known) >= MAX_LISTS:
            if not self._complained:
                log.warning("too many lists to watch: %s and later ones are not watched", place)
            self._complained = True
            return
        self._known[place] = frozenset()
        with self._lock:
            self._due.add(place)
        self._wake.set()

    def _path(self, place: _List) -> str:
        tree = self._tree
        return {
            "topics": tree.subscribers,
            "topic": tree.topic(place.topic),
            "groups": tree.groups,
            "group": f"{tree.groups}/{place.subscription}",
            "members": tree.members(place.subscription, place.topic),
            "clients": tree.clients,
        }[place.kind]

    def _tell(self, change: Change) -> None:
        with self._calling:
            if self.closed:
                return
            try:
                self._callback(change)
            except Exception:
                log.exception("%r raised at %r", self._callback, change)


def _depth(place: _List) -> int:
    return bool(place.topic) + bool(place.subscription)


def _inner(place: _List, name: str) -> _List | None:
    """Return the list that a name in a list stands for."""
    if place.kind == "topics":
        return _List("topic", name)
    if place.kind == "groups":
        return _List("group", subscription=name)
    if place.kind == "group":
        return _List("members", name, place.subscription)
    return None


def _outer(place: _List) -> tuple[_List, str] | None:
    """Return the list that contains this one, and its name there."""
    if place.kind == "topic":
        return _List("topics"), place.topic
    if place.kind == "group":
        return _List("groups"), place.subscription
    if place.kind == "members":
        return _List("group", subscription=place.subscription), place.topic
    return None


def _change(place: _List, name: str, *, came: bool) -> list[Change]:
    event: Literal["added", "removed"] = "added" if came else "removed"
    if place.kind == "topics":
        return [Change("topic", event, name)]
    if place.kind == "topic":
        if name.endswith(FULL_MARK):
            return [Change("subscription", "full" if came else "drained", place.topic, name.removesuffix(FULL_MARK))]
        return [Change("subscription", event, place.topic, name)]
    if place.kind == "members":
        return [Change("member", event, place.topic, place.subscription, name)]
    if place.kind == "clients":
        return [Change("client", event, client=name)]
    return []


def observe(
    session: Session,
    tree: Tree,
    callback: OnChange,
    before_close: Callable[[Callable[[float], object]], Callable[[], None]],
) -> Observer:
    """Start an observer, which is closed with its bus."""
    observer = Observer(session, tree, callback)
    observer.start()
    observer._forget = before_close(lambda _left: observer.close())
    return observer
