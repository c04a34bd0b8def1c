"""Connections between the servers of an embedded ensemble that can be cut, each direction by itself.

A Java process can be told to make its connections through a SOCKS proxy. Each server gets one of its own, so that of
every connection it is known who speaks and who hears. That needs neither root nor a firewall.
A cut is like dropped packets: connections stay open, new ones fail, and data arrives when the cut ends. Clients are not
affected.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

_LOOK = 0.01  # seconds between two looks at whether a wire is whole again
_TIMEOUT = 10.0
_SERVER = re.compile(r"^server\.(\d+)=[^:]+:(\d+):(\d+)", re.MULTILINE)

# SOCKS 5: a greeting with methods, "no authentication" as the answer, then a request of which only CONNECT is known.
_NO_AUTHENTICATION = b"\x05\x00"
_CONNECTED, _REFUSED = (bytes([5, code, 0, 1, 0, 0, 0, 0, 0, 0]) for code in (0, 5))
_ADDRESS_BYTES = {1: 4, 4: 16}


class Switchboard:
    """The wires between so many servers, counted from 0."""

    def __init__(self, nodes: int) -> None:
        """Make it with no cuts; `start()` or `with` runs it."""
        self._count = nodes
        self._cut: set[tuple[int, int]] = set()
        self._owners: dict[int, int] = {}
        self._ports: list[int] = []
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="switchboard", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wrap(self, node: int, command: list[str | Path]) -> list[str | Path]:
        """A server's command line, for one that speaks through us; its zoo.cfg tells whose ports are whose."""
        for number, *ports in _SERVER.findall(Path(command[-1]).read_text()):
            self._owners |= {int(port): int(number) - 1 for port in ports}
        # An empty list of exceptions, since loopback is one by default.
        way = ["-DsocksProxyHost=127.0.0.1", f"-DsocksProxyPort={self._ports[node]}", "-DsocksNonProxyHosts="]
        return [command[0], *way, *command[1:]]

    def cut(self, speaker: int, hearer: int) -> None:
        """Drop everything that `speaker` sends to `hearer`."""
        self._cut.add((speaker, hearer))

    def isolate(self, node: int) -> None:
        """Cut a server off from all others, both ways."""
        for other in set(range(self._count)) - {node}:
            self.cut(node, other)
            self.cut(other, node)

    def heal(self) -> None:
        """End all cuts."""
        self._cut.clear()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT)

    async def _listen(self) -> None:
        for node in range(self._count):
            self._servers.append(await asyncio.start_server(partial(self._serve, node), "127.0.0.1", 0))
        self._ports = [server.sockets[0].getsockname()[1] for server in self._servers]

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, speaker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._connect(speaker, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one end is gone, as ends do when servers are killed
        finally:
            writer.close()

    async def _connect(self, speaker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(_NO_AUTHENTICATION)
        *_, kind = await reader.readexactly(4)
        await reader.readexactly(_ADDRESS_BYTES[kind])
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        hearer = self._owners[port]
        # As the first packet, or the answer to it, that is lost and sent again.
        while {(speaker, hearer), (hearer, speaker)} & self._cut:
            if reader.at_eof():
                return
            await asyncio.sleep(_LOOK)
        try:
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.write(_REFUSED)
            return
        writer.write(_CONNECTED)
        ways = [
            asyncio.ensure_future(self._carry(reader, their_writer, (speaker, hearer))),
            asyncio.ensure_future(self._carry(their_reader, writer, (hearer, speaker))),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            their_writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: tuple[int, int]) -> None:
        """Carry one direction until its end, which cannot be heard on a wire that is cut either."""
        with suppress(OSError):
            while part := await reader.read(65_536):
                await self._whole(wire)
                writer.write(part)
                await writer.drain()
        await self._whole(wire)

    async def _whole(self, wire: tuple[int, int]) -> None:
        while wire in self._cut:
            await asyncio.sleep(_LOOK)
