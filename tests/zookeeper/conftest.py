"""What the tests of the session share: sessions without a bus, and watching what is left behind."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zkms.config import Config
from zkms.server.server import Server
from zkms.testing import Proxy
from zkms.zookeeper.operations import Create
from zkms.zookeeper.session import Session

OpenSession = Callable[..., Session]


@pytest.fixture
def open_session(zookeeper: Server, proxy: Proxy) -> Iterator[OpenSession]:
    """Open sessions that are closed after the test: short-lived ones, so that faults are noticed soon."""
    sessions: list[Session] = []

    def start(hosts: str | None = None, **options: object) -> Session:
        defaults = {"session_timeout": 3.0, "request_timeout": 5.0, "connect_timeout": 15.0}
        session = Session(Config(hosts=hosts or zookeeper.hosts, **{**defaults, **options}))
        sessions.append(session)
        session.start()
        return session

    yield start
    proxy.heal()  # so that they can say goodbye
    for session in sessions:
        session.close()


@pytest.fixture
def root(zookeeper_root: str, open_session: OpenSession) -> str:
    """A znode of the test's own."""
    open_session().multi([Create(zookeeper_root)])
    return zookeeper_root


@pytest.fixture
def left_behind() -> Callable[[], tuple[int, int]]:
    """Count the threads and the file descriptors of this process, as they are most of the time."""

    def count() -> tuple[int, int]:
        time.sleep(0.002)  # kazoo opens a descriptor for each wait and closes it: one look could miss it
        return threading.active_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- no Path per descriptor

    return lambda: statistics.mode(count() for _ in range(50))


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """As a user connects."""
    return {"cleaner": True}
