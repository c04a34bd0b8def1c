"""A publisher for a stream of messages: it packs messages into frames, and returns a `Sent` for each message.

    with bus.publisher("prices") as prices:
        for price in ticker:
            prices.send(price)

`send()` returns at once. A frame is sent when it is full, or `linger` seconds after its first message; while ZooKeeper
is busy with earlier frames, it fills further. At most `max_in_flight` messages and `MAX_BYTES` are in flight: beyond
that, send() waits. Messages are stored in the order of sending, and each once (see pipeline.py).

Thread: `zkms-stream-TOPIC` packs and sends.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from zkms.checks import check_seconds
from zkms.errors import Closed, ConnectionLost, Timeout, UsedAfterFork, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.packer import Budget, Packer
from zkms.publish.receipt import Receipt

log = logging.getLogger("zkms.publish")
MAX_BYTES = 16 * 1024 * 1024
"""The most bytes in flight."""


class Send(Protocol):
    """Sends a frame to the stream's topic."""

    def __call__(self, packed: list[Packed], deadline: float) -> Future[Receipt]:
        """Return the receipt to come."""
        ...


class Sent:
    """One message of a stream: in flight, stored, or failed."""

    __slots__ = ("_frame", "_place")

    def __init__(self, frame: _Frame, place: int) -> None:
        self._frame = frame
        self._place = place

    def done(self) -> bool:
        """Whether it is stored, or has failed."""
        return self._frame.future.done()

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait until it is stored and return its receipt; raise the error if it is not."""
        timeout = None if timeout is None else check_seconds("timeout", timeout)
        try:
            return self._frame.future.result(timeout).at(self._place)
        except TimeoutError as error:
            if isinstance(error, ZkmsError):
                raise
            raise Timeout(f"not stored within {timeout:g} s; it is still on its way") from None

    def add_done_callback(self, callback: Callable[[Sent], object]) -> None:
        """Call `callback(self)` when it is done, on one of our threads: it must not block."""
        self._frame.future.add_done_callback(lambda _future: callback(self))

    def __repr__(self) -> str:
        return f"<Sent {'done' if self.done() else 'on its way'}>"


@dataclass(slots=True, eq=False)
class _Frame(Packer):
    """Messages that share a frame, and so an answer."""

    begun: float = field(default_factory=time.monotonic)
    future: Future[Receipt] = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.future.set_running_or_notify_cancel()  # no caller can cancel it for the others


class TopicPublisher:
    """What bus.publisher() returns: send() messages, and close() it or leave its `with` block. Thread-safe."""

    def __init__(
        self,
        topic: str,
        *,
        pack: Callable[[Any, str | None, Mapping[str, str] | None, str | None], Packed],
        budget: Callable[[float], Budget],
        send: Send,
        ended: Callable[[TopicPublisher], None],
        linger: float,
        max_in_flight: int,
        timeout: float,
    ) -> None:
        self.topic = topic
        self._pack = pack
        self._budget = budget
        self._send = send
        self._ended = ended
        self._linger = linger
        self._max = max_in_flight
        self._timeout = timeout
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._open: _Frame | None = None
        self._full: list[_Frame] = []
        self._messages = 0
        self._bytes = 0
        """Messages and bytes in flight: send() waits for room."""
        self._unsettled = 0
        """Messages whose result is not set yet: flush() and close() wait for them."""
        self._frame_budget = budget(time.monotonic() + timeout)
        self._hurry = False
        self._closing = False
        self.answered: Callable[[], None] | None = None
        """Called after each frame that was answered, and when it is closed. Must not block."""
        self._thread = threading.Thread(target=self._run, name=f"zkms-stream-{topic}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<TopicPublisher to {self.topic!r}, {self._messages} on their way>"

    def send(
        self, data: Any, *, key: str | None = None, headers: Mapping[str, str] | None = None, id: str | None = None
    ) -> Sent:
        """Send a message; waits only while `max_in_flight` messages are in flight.

        Raises `Timeout` if there was no room for it in time; then it is not sent.
        """
        packed = self._pack(data, key, headers, id)
        size = packed.size
        with self._changed:
            if not self._roomy(size):
                self._await_room(size)
            return self._put(packed, size)

    # For zkms.aio, which waits for room in its own way.

    def pack(self, data: Any, key: str | None, headers: Mapping[str, str] | None, id: str | None) -> Packed:
        """Return a message as send() packs it."""
        return self._pack(data, key, headers, id)

    def send_at_once(self, packed: Packed) -> Sent | None:
        """Send a message, or return None if there is no room: `answered` is called when there may be."""
        size = packed.size
        with self._changed:
            if self._roomy(size):
                return self._put(packed, size)
            self._hurry = True
            self._changed.notify_all()
            return None

    def _put(self, packed: Packed, size: int) -> Sent:
        if self._closing:
            raise Closed(f"the publisher of {self.topic!r} is closed")
        frame = self._open
        if frame is None or not frame.take(packed):
            if frame is not None:
                self._full.append(frame)
            frame = self._open = _Frame(self._frame_budget, [packed], size)
            self._changed.notify_all()
        self._messages += 1
        self._unsettled += 1
        self._bytes += size
        if len(frame.packed) >= frame.budget[1]:
            self._full.append(frame)
            self._open = None
            self._changed.notify_all()
        return Sent(frame, len(frame.packed) - 1)

    def _roomy(self, size: int) -> bool:
        return self._closing or (
            self._messages < self._max and (self._messages == 0 or self._bytes + size <= MAX_BYTES)
        )

    def _await_room(self, size: int) -> None:
        self._hurry = True  # send the open frame at once, to make room
        self._changed.notify_all()
        if not self._changed.wait_for(lambda: self._roomy(size), self._timeout):
            raise Timeout(
                f"{self._messages} messages to {self.topic!r} are on their way, and none was stored for "
                f"{self._timeout:g} s; this one was not sent"
            )

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every message sent so far is stored or has failed; `Timeout` after `timeout` seconds."""
        if self._process != os.getpid():
            raise UsedAfterFork
        timeout = self._timeout if timeout is None else check_seconds("timeout", timeout)
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._unsettled == 0, timeout):
                raise Timeout(f"{self._messages} messages to {self.topic!r} are still on their way")

    def close(self, timeout: float | None = None) -> None:
        """Take no more messages, and wait until those in flight are stored or have failed. Safe to call again."""
        if self._process != os.getpid():
            return  # a forked child has nothing to close: the messages in flight are the parent's
        timeout = self._timeout if timeout is None else check_seconds("timeout", timeout)
        deadline = time.monotonic() + timeout
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self.answered is not None:
            self.answered()
        self._thread.join(timeout)
        with self._changed:
            stored = self._changed.wait_for(lambda: self._unsettled == 0, max(0.0, deadline - time.monotonic()))
        self._ended(self)
        if not stored:
            raise Timeout(f"{self._messages} messages to {self.topic!r} are still on their way")

    def __enter__(self) -> TopicPublisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the stream's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (frame := self._next()) is not None:
            deadline = time.monotonic() + self._timeout
            try:
                budget = self._budget(deadline)
                sent = self._send(frame.packed, deadline)
            except Exception as error:  # noqa: BLE001 - the message's `Sent` raises it
                self._finish(frame, None, error)
                continue
            with self._changed:
                self._frame_budget = budget
                if self._open is not None:
                    self._open.budget = budget
            sent.add_done_callback(lambda answer, frame=frame: self._answered(frame, answer))  # type: ignore[misc]

    def _next(self) -> _Frame | None:
        """Return the next frame to send: a full one, or the open one after `linger`; None at the end."""
        with self._changed:
            while True:
                if self._full:
                    return self._full.pop(0)
                frame = self._open
                if frame is None:
                    self._hurry = False
                    if self._closing:
                        return None
                    self._changed.wait()
                    continue
                left = frame.begun + self._linger - time.monotonic()
                if left <= 0 or self._hurry or self._closing:
                    self._open = None
                    return frame
                self._changed.wait(left)

    def _answered(self, frame: _Frame, answer: Future[Receipt]) -> None:
        if answer.cancelled():
            self._finish(frame, None, ConnectionLost("the bus was closed before ZooKeeper answered"))
        elif (error := answer.exception()) is not None:
            self._finish(frame, None, error)
        else:
            self._finish(frame, answer.result(), None)

    def _finish(self, frame: _Frame, receipt: Receipt | None, error: BaseException | None) -> None:
        """Make room first, then set the result: a callback may send the next message."""
        count = len(frame.packed)
        with self._changed:
            self._messages -= count
            self._bytes -= frame.size
            self._changed.notify_all()
        try:
            if error is not None or receipt is None:
                log.info("%d messages to %r were not stored: %s", count, self.topic, error)
                frame.future.set_exception(error)
            else:
                frame.future.set_result(receipt)
        finally:
            with self._changed:
                self._unsettled -= count
                self._changed.notify_all()
            if self.answered is not None:
                self.answered()
