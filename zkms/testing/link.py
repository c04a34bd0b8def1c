"""One client's connection through a proxy: two directions, each read into a queue and written from it.

Reading and writing are apart so that a delay holds each frame back for as long as it says, not for the sum of those
before it.
"""

from __future__ import annotations

import asyncio

from zkms.testing import wire
from zkms.testing.faults import Cut, Faults

_LOOK = 0.01  # seconds between two looks at whether a fault has ended
_CONNECT_XID = 0  # for the first frame each way, which has none; clients count their requests from 1

# Frames and when they are due; None ends the direction after all that came before it.
_Queue = asyncio.Queue[tuple[float, bytes | None]]


class Link:
    """A client's connection and ours to the server in its name."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        faults: Faults,
    ) -> None:
        """Join two connections; `run()` carries what comes."""
        self._client_reader, self._client = client
        self._server_reader, self._server = server
        self._faults = faults
        self._doomed: dict[int, Cut] = {}  # by the xid whose reply will not arrive
        self._cut: Cut | None = None
        self.damaged = False
        """Something was swallowed, so that neither end can make sense of the rest."""

    async def run(self) -> None:
        """Carry both directions until one of them ends, by an end of the link or by a cut; then close both ends."""
        requests, replies = _Queue(), _Queue()
        writers = [
            asyncio.ensure_future(self._write(requests, self._server)),
            asyncio.ensure_future(self._write(replies, self._client, paced=True)),
        ]
        readers = [
            asyncio.ensure_future(self._read_requests(requests)),
            asyncio.ensure_future(self._read_replies(replies)),
        ]
        try:
            await asyncio.wait(writers, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.close()
            for task in (*readers, *writers):
                task.cancel()
            ends = await asyncio.gather(*readers, *writers, return_exceptions=True)
        if self._cut is not None:
            self._cut.done.set()
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, OSError):
                raise end  # a mistake of ours; OSError is just an end that hung up

    def close(self) -> None:
        """Close both ends, after what was written to them."""
        self._client.close()
        self._server.close()

    async def _read_requests(self, queue: _Queue) -> None:
        first = True
        try:
            async for frame in wire.frames(self._client_reader):
                while self._faults.deaf:
                    await asyncio.sleep(_LOOK)
                xid, operation = (_CONNECT_XID, wire.CONNECT) if first else wire.request(frame)
                first = False
                cut = self._faults.take(operation)
                if cut is not None and not cut.reply:
                    self._cut = cut
                    break
                if cut is not None:
                    self._doomed[xid] = cut
                self._pass_on(wire.unknown(frame) if operation in self._faults.unknown else frame, queue)
        finally:
            self._end(queue)

    async def _read_replies(self, queue: _Queue) -> None:
        first = True
        try:
            async for frame in wire.frames(self._server_reader):
                xid = _CONNECT_XID if first else wire.reply_xid(frame)
                first = False
                if xid in self._doomed:
                    self._cut = self._doomed[xid]
                    break
                self._pass_on(frame, queue)
        finally:
            self._end(queue)

    def _pass_on(self, frame: bytes, queue: _Queue) -> None:
        if self._faults.black_hole:
            self.damaged = True
        else:
            queue.put_nowait((asyncio.get_running_loop().time() + self._faults.delay, frame))

    def _end(self, queue: _Queue) -> None:
        queue.put_nowait((0.0, None))

    async def _write(self, queue: _Queue, writer: asyncio.StreamWriter, *, paced: bool = False) -> None:
        while True:
            due, frame = await queue.get()
            if frame is None:
                return
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            while paced and (pace := self._faults.pace) is not None and len(frame) > pace[0]:
                piece, frame = frame[: pace[0]], frame[pace[0] :]
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pace[1])
            writer.write(frame)
            await writer.drain()
