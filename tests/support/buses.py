"""The buses of a test: connected under its root, directly or through a proxy, on threads or on an event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import zkms
from tests.support.blocking import BlockingBus, EventLoop
from zkms.testing import Proxy

Connect = Callable[..., zkms.Bus]
Eventually = Callable[..., None]


class Buses:
    """Connects buses with the options of a room unless the test gives others, and closes them all."""

    def __init__(self, hosts: str, root: str, loop: EventLoop | None = None, **defaults: Any) -> None:
        """With an event loop, each bus is one of zkms.aio behind the interface of the threaded one."""
        self._defaults: dict[str, Any] = {"hosts": hosts, "root": root, **defaults}
        self._loop = loop
        self._buses: list[zkms.Bus] = []

    def __call__(self, *, through: Proxy | None = None, **options: Any) -> zkms.Bus:
        """Connect another one."""
        settings = {**self._defaults, **({} if through is None else {"hosts": through.hosts}), **options}
        loop = self._loop
        self._buses.append(zkms.connect(**settings) if loop is None else cast(zkms.Bus, BlockingBus(loop, **settings)))
        return self._buses[-1]

    def close(self, timeout: float = 1.0) -> None:
        """Close them in the order in which they were connected."""
        for bus in self._buses:
            bus.close(timeout=timeout)

    def close_as_far_as_possible(self) -> None:
        """Close them, with time to finish what is in flight; for tests after which some cannot."""
        for bus in self._buses:
            with suppress(zkms.ZkmsError):
                bus.close()
