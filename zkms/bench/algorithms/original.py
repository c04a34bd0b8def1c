"""The algorithm of the original library on kazoo: a synchronous create for each subscriber and message.

A subscriber watches the children of its queue; woken up it gets each message, calls back, deletes it. The original also
listed the topic's subscribers before each message, which is left out here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kazoo.client import KazooClient

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.algorithms.tally import Tally
from zkms.cli.connection import read_auth, read_tls
from zkms.config import configure
from zkms.errors import Timeout
from zkms.zookeeper.kazoo_client import credentials


def client(address: str, session_timeout: float = 30.0) -> Any:
    """A started kazoo client, with the command line's credentials."""
    config = configure(hosts=address, auth=read_auth(), tls=read_tls(), acl=None, client_id=None, trail=None)
    made = KazooClient(address, timeout=session_timeout, **credentials(config))
    made.start(timeout=30)
    return made


class KazooPublisher:
    """A publisher with a kazoo client of its own, for algorithms that send each message by itself."""

    frame = 1

    def __init__(self, place: BenchPlace) -> None:
        self._client = client(place.address)

    def publish(self, payloads: Iterable[bytes]) -> None:
        """One message after the other."""
        for payload in payloads:
            self.publish_one(payload)

    def publish_one(self, payload: bytes) -> None:
        """Publish one at once."""
        raise NotImplementedError

    def settle(self, timeout: float) -> float:  # noqa: ARG002
        """A publisher knows of no acks here."""
        return time.monotonic()

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()


class OriginalPublisher(KazooPublisher):
    """Creates one znode after the other."""

    def __init__(self, place: BenchPlace) -> None:
        super().__init__(place)
        names = sorted(self._client.get_children(f"{place.root}/subscribers/{place.topic}"))
        self._queues = [f"{place.root}/messages/{name}/{place.topic}/m-" for name in names]

    def publish_one(self, payload: bytes) -> None:
        """Into one queue after the other."""
        for queue in self._queues:
            self._client.create(queue, payload, sequence=True)


class OriginalSubscriber:
    """One client, its queue, and a thread that empties it."""

    def __init__(self, place: BenchPlace, tally: Tally, name: str, session_timeout: float) -> None:
        self._client = client(place.address, session_timeout)
        self._queue = f"{place.root}/messages/{name}/{place.topic}"
        self._client.ensure_path(self._queue)
        self._client.create(f"{place.root}/clients/{name}", ephemeral=True, makepath=True)
        self._client.create(f"{place.root}/subscribers/{place.topic}/{name}", ephemeral=True, makepath=True)
        self._tally = tally
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"subscriber {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            names = self._client.get_children(self._queue, watch=lambda _event: self._wake.set())
            for name in sorted(names):
                path = f"{self._queue}/{name}"
                data, _ = self._client.get(path)
                self._tally.take(data)
                self._client.delete(path)
            if not names:
                self._wake.wait()

    def settle(self, deadline: float) -> None:
        """Return when the queue is empty."""
        while self._client.exists(self._queue).numChildren:
            if time.monotonic() > deadline:
                raise Timeout(f"{self._queue} is not empty in time")

    def close(self) -> None:
        """End the session."""
        self._closed = True
        self._wake.set()
        self._thread.join(5)
        self._client.stop()
        self._client.close()


class QueueReader(Protocol):
    """One subscriber with a client of its own."""

    def settle(self, deadline: float) -> None:
        """Return when its queue is empty; `Timeout` at the deadline."""

    def close(self) -> None:
        """End the session."""


class QueueReaders:
    """Subscribers of these names, with a client each."""

    def __init__(self, names: list[str], readers: Sequence[QueueReader]) -> None:
        self.names = names
        self._readers = readers

    def settle(self, timeout: float) -> None:
        """Return when all queues are empty."""
        deadline = time.monotonic() + timeout
        for reader in self._readers:
            reader.settle(deadline)

    def close(self) -> None:
        """End the sessions."""
        for reader in self._readers:
            reader.close()


publisher = OriginalPublisher


def subscribers(place: BenchPlace, tallies: Sequence[Tally], *, first: int, session_timeout: float) -> QueueReaders:
    """Connect and watch."""
    names = [f"original-{first + i:04}" for i in range(len(tallies))]
    pairs = zip(tallies, names, strict=True)
    return QueueReaders(names, [OriginalSubscriber(place, tally, name, session_timeout) for tally, name in pairs])
