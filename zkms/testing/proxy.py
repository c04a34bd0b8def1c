"""A proxy between clients and a ZooKeeper that loses, delays and cuts what a test tells it to.

    with Proxy(zookeeper.hosts) as proxy, zkms.connect(proxy.hosts) as bus:
        cut = proxy.cut_reply(op="multi")      # the next transaction is carried out, and its reply never arrives
        bus.publish("users", 1)
        assert cut.wait(5)

One thread runs everything; the methods may be called from any other.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import Self

from kazoo.hosts import collect_hosts

from zkms.testing.faults import Faults
from zkms.testing.link import Link

_TIMEOUT = 10.0


class Proxy:
    """A TCP proxy on loopback, one port for each server behind it, with faults on demand."""

    def __init__(self, hosts: str) -> None:
        """Describe a proxy in front of `hosts`; `start()` or `with` runs it."""
        addresses, chroot = collect_hosts(hosts)
        self._backends: list[tuple[str, int]] = [(host, int(port)) for host, port in addresses]
        self._chroot = chroot or ""
        self._faults = Faults()
        self._links: set[Link] = set()
        self._servers: list[asyncio.Server] = []
        self.hosts = ""
        """Where clients connect instead: one port for each server behind the proxy, in the same order."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="zkms proxy", daemon=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start(self) -> Self:
        """Listen, and return when clients can connect."""
        if not self._thread.is_alive():
            self._thread.start()
            self._run(self._listen())
        return self

    def close(self) -> None:
        """Close every connection and stop listening."""
        if self._thread.is_alive():
            self._run(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    @property
    def requests(self) -> Counter[str]:
        """How many requests of each operation have come in so far, those that were lost included."""
        return self._faults.requests

    def cut_reply(self, n: int = 1, op: str | None = None) -> threading.Event:
        """Let the n-th request from now through, drop its reply and close its connection; the event is set then.

        Only requests of operation `op` count ("multi", "create", ...); without it all but pings and connects do.
        """
        return self._faults.cut(n, op, reply=True).done

    def cut_request(self, n: int = 1, op: str | None = None) -> threading.Event:
        """Drop the n-th request from now before the server sees it and close its connection; the event is set then."""
        return self._faults.cut(n, op, reply=False).done

    def black_hole(self) -> None:
        """Swallow everything both ways from now on, with all connections open."""
        self._faults.black_hole = True

    def delay(self, seconds: float) -> None:
        """Hold each frame back for so long, in each direction; 0 ends it."""
        self._faults.delay = seconds

    def trickle(self, size: int, seconds: float) -> None:
        """Hand replies over in pieces of `size` bytes, with so many seconds after each; heal() ends it."""
        self._faults.pace = size, seconds

    def stop_reading(self) -> None:
        """Take no more from clients, with all connections open, until heal(): what they send fills the buffers."""
        self._faults.deaf = True

    def refuse(self) -> None:
        """Close new connections at once from now on; those that are open stay."""
        self._faults.refuse = True

    def accept(self) -> None:
        """Undo `refuse()`."""
        self._faults.refuse = False

    def age(self, op: str) -> None:
        """Make the server one that does not know an operation, as one from before it was invented."""
        self._faults.check(op)
        self._faults.unknown.add(op)

    def drop(self) -> None:
        """Close all connections that are open now."""
        self._run(self._close_links(damaged_only=False))

    def heal(self) -> None:
        """Undo every fault; connections that lost something are closed, for neither end could make sense of them."""
        self._faults.heal()
        self._run(self._close_links(damaged_only=True))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        """Do something in the proxy's thread, and return when it is done."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT)

    async def _listen(self) -> None:
        for backend in self._backends:
            self._servers.append(await asyncio.start_server(partial(self._serve, backend), "127.0.0.1", 0))
        ports = [server.sockets[0].getsockname()[1] for server in self._servers]
        self.hosts = ",".join(f"127.0.0.1:{port}" for port in ports) + self._chroot

    async def _serve(
        self, backend: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._faults.refuse:
            writer.transport.abort()
            return
        try:
            server = await asyncio.open_connection(*backend)
        except OSError:
            writer.transport.abort()  # nobody there: the client sees its connection break
            return
        link = Link((reader, writer), server, self._faults)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _close_links(self, *, damaged_only: bool) -> None:
        for link in self._links:
            if link.damaged or not damaged_only:
                link.close()

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
