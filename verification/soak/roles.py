"""The roles of processes in a scenario. Each connects, reports that it is ready, works, and counts until stopped.

A message is [publisher, number, padding]; numbers only grow. A reader to whom one does not, without any cut of its
connection, has got a message twice or out of order: `backwards`, which must stay 0.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from typing import Any

import zkms
from verification.soak.stage import Stage
from zkms import Message
from zkms.publish.topic_publisher import Sent

BURST = 0.5
"""Seconds whose messages are sent at once, after a stall, at the most."""
SLICE = 0.02
"""Seconds between two bursts of a publisher."""
KEYS = 64
SESSION = 10.0
SHORT_SESSION = 4.0
"""Session timeout of processes that are killed often: their partitions wait for so long."""


def _connect(hosts: str, root: str, stage: Stage, session: float = SESSION) -> zkms.Bus:
    """Patient, for the machine may be overloaded; notes when the connection goes and comes."""
    bus = zkms.connect(
        hosts,
        root=root,
        client_id=stage.name,
        cleaner=False,
        session_timeout=session,
        connect_timeout=60.0,
        request_timeout=30.0,
    )

    def changed() -> None:
        stage.counts["generation"] = bus.parts.session.generation
        if bus.parts.session.state.value == "connected":
            stage.counts["connected_at"] = time.time()
        else:
            stage.add("cuts")

    bus.parts.session.listen(changed)
    stage.counts["generation"] = bus.parts.session.generation
    return bus


class Order:
    """Sees to it that what one publisher has sent comes in its order and once."""

    def __init__(self, stage: Stage, *, by_key: bool = False) -> None:
        self._stage = stage
        self._by_key = by_key
        self._last: dict[tuple[str, str | None], int] = {}

    def see(self, message: Message) -> None:
        """Count a message."""
        publisher, number = message.data[0], message.data[1]
        place = publisher, message.key if self._by_key else None
        if number <= self._last.get(place, -1):
            # What was not acked comes again after a cut, and to a group's members also after one of them died.
            again = self._by_key or "cuts" in self._stage.counts
            self._stage.add("repeated" if again else "backwards")
            return
        self._last[place] = number
        self._stage.add("received")


# -- publishers --------------------------------------------------------------------------------------------------


def publisher(stage: Stage, hosts: str, root: str, topic: str, size: int = 100, in_flight: int = 2_000) -> None:
    """Publish at `rate` messages/s, as fast as possible if that is None, not at all if it is 0."""
    padding = "." * max(0, size - 30)
    with _connect(hosts, root, stage) as bus:
        bus.publish(topic, [stage.name, 0, ""], key="0", if_nobody="drop")
        stage.begin()
        number, began = 0, time.monotonic()
        rate: float | None = 0.0
        full = threading.Event()

        def stored(sent: Sent) -> None:
            try:
                sent.result()
                stage.add("published")
            except zkms.QueueFull:
                stage.add("full")
                full.set()
            except zkms.ZkmsError as error:
                stage.add("unknown" if getattr(error, "outcome_unknown", False) else "failed")

        with bus.publisher(topic, max_in_flight=in_flight, if_nobody="drop", timeout=30.0) as stream:
            while not stage.stopping.is_set():
                told: float | None = stage.orders.get("rate", 0.0)
                if told != rate:
                    rate, began = told, time.monotonic()
                if full.is_set() or rate == 0:
                    stage.stopping.wait(0.1)  # back-pressure: others have to catch up first
                    full.clear()
                    began = time.monotonic()
                    continue
                if rate is None:
                    due = 500
                else:  # after a stall it goes on from there, and does not catch up
                    now = time.monotonic()
                    due, began = int(min(now - began, BURST) * rate), max(began, now - BURST)
                    began += due / rate
                try:
                    for _ in range(due):
                        number += 1
                        stream.send([stage.name, number, padding], key=str(number % KEYS)).add_done_callback(stored)
                except zkms.ZkmsError:
                    stage.add("failed")
                if rate is not None:
                    stage.stopping.wait(SLICE)
            stream.flush(60.0)


def planner(stage: Stage, hosts: str, root: str, topic: str, longest: float = 5.0) -> None:
    """Publish messages for later, and hear them when they are due: none early, how late the latest."""
    chance = random.Random(stage.name)

    def due(message: Message) -> None:
        late = time.time() - message.data[2]
        stage.add("received")
        if late < 0:
            stage.add("early")
        stage.note("latest_s", round(late, 3))

    with _connect(hosts, root, stage) as bus:
        bus.subscribe(topic, due)
        stage.begin()
        number = 0
        while not stage.stopping.wait(0.05):
            at = time.time() + chance.uniform(0.2, longest)
            number += 1
            try:
                bus.publish(topic, [stage.name, number, at], at=at)
                stage.add("published")
            except zkms.ZkmsError:
                stage.add("failed")


# -- readers -----------------------------------------------------------------------------------------------------


def listener(
    stage: Stage,
    hosts: str,
    root: str,
    topic: str,
    pause: float = 0.0,
    leak: str = "",
    jitter: bool = True,
    **options: Any,
) -> None:
    """A live subscription; `pause` seconds a message make it a slow one, `leak` a sick one."""
    if not jitter:
        _without_jitter()
    order = Order(stage)

    def handle(message: Message) -> None:
        order.see(message)
        if pause:
            time.sleep(pause)

    with _connect(hosts, root, stage) as bus:
        bus.subscribe(topic, handle, on_gap=lambda _gap: stage.add("gaps"), **options)
        stage.begin()
        leaking: list[Any] = []
        while not stage.stopping.wait(0.1):
            _leak(leak, leaking)


def reader(
    stage: Stage, hosts: str, root: str, topic: str, subscription: str, pause: float = 0.0, **options: Any
) -> None:
    """A durable subscription, read in batches and acked."""
    order = Order(stage)
    with _connect(hosts, root, stage) as bus:
        sub = bus.subscribe(topic, name=subscription, **options)
        stage.begin()
        while not stage.stopping.is_set():
            messages = sub.fetch(1 if pause else 500, timeout=0.2)
            for message in messages:
                order.see(message)
            try:
                sub.ack(messages)
            except zkms.ZkmsError:
                stage.add("failed")
            if messages:
                time.sleep(pause)


def member(stage: Stage, hosts: str, root: str, topic: str, group: str, partitions: int = 8) -> None:
    """A member of a group."""
    order = Order(stage, by_key=True)
    with _connect(hosts, root, stage) as bus:
        bus.subscribe(topic, order.see, group=group, partitions=partitions)
        stage.begin()
        stage.stopping.wait()


def guest(stage: Stage, hosts: str, root: str, topic: str, group: str, *, sends: bool) -> None:
    """Subscribes, joins a group for a while, and leaves: cleanly, or killed."""
    with _connect(hosts, root, stage, SHORT_SESSION) as bus:
        bus.subscribe(topic, lambda _message: stage.add("received"))
        bus.subscribe(topic, lambda _message: stage.add("worked"), group=group)
        if sends:
            bus.publish(f"{topic}.guests", [stage.name, 0, ""], if_nobody="drop")
        stage.begin()
        stage.stopping.wait()


# -- caches and cleaners -----------------------------------------------------------------------------------------


def cacher(stage: Stage, hosts: str, root: str, cache: str, keys: int = 2_000) -> None:
    """A node with a cache: asks for keys, and invalidates some on all nodes."""
    chance = random.Random(stage.name)
    with _connect(hosts, root, stage) as bus:
        values = zkms.Cache(bus, cache, maxsize=keys // 2)
        stage.begin()
        while not stage.stopping.wait(0.01):
            for _ in range(20):
                values.get(chance.randrange(keys), lambda key: [key] * 10)
                stage.add("asked")
            values.invalidate(chance.randrange(keys))
            stage.add("invalidated")
        stage.counts["kept"] = len(values)


def janitor(stage: Stage, hosts: str, root: str, interval: float = 5.0, grace: float = 5.0) -> None:
    """A cleaner that sweeps more often than by default."""
    from zkms_cleaner import Cleaner

    with _connect(hosts, root, stage) as bus:
        cleaner = Cleaner(
            bus.parts.session,
            bus.parts.tree,
            bus.client_id,
            interval=interval,
            grace=grace,
            swept=lambda swept, _seconds: stage.add("removed", len(swept.removed)),
            failed=lambda _error: stage.add("failed"),
        )
        cleaner.start()
        try:
            stage.begin()
            stage.stopping.wait()
        finally:
            cleaner.close()


# -- helpers -----------------------------------------------------------------------------------------------------


def _without_jitter() -> None:
    """Switch off the jitter of reconnects, for comparison."""
    from kazoo.retry import KazooRetry

    from zkms.zookeeper import kazoo_client

    def stiff(**options: Any) -> Any:
        return KazooRetry(**{**options, "max_jitter": 0.0})

    kazoo_client.KazooRetry = stiff  # type: ignore[attr-defined]


def _leak(what: str, kept: list[Any]) -> None:
    """A planted fault, by which the verdict is tried."""
    if what == "memory":
        kept.append(bytearray(512 * 1024))
    elif what == "files":
        kept.append(tempfile.TemporaryFile())  # noqa: SIM115 - that it stays open is the point
    elif what == "threads":
        thread = threading.Thread(target=threading.Event().wait, daemon=True)
        thread.start()
        kept.append(thread)
