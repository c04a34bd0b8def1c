"""What a benchmark's handler does with a message: count it, and look at its bytes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from zkms.message.message import Message

STAMP = 8
"""Bytes at the start of a timed message that say when it was sent, in nanoseconds of the monotonic clock."""
_decoder = msgspec.msgpack.Decoder(list[bytes])


class Tally:
    """The handler of one subscriber. Cheap, as it runs for every message, and the same work for every algorithm."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.done = threading.Event()
        self.latencies: list[float] = []
        self._expected = 0

    def expect(self, messages: int) -> None:
        """Begin anew; `done` is set at the last of so many messages."""
        self.done.clear()
        self.count = self.size = 0
        self.latencies.clear()
        self._expected = messages

    def take(self, data: bytes) -> None:
        """One message."""
        self.size += len(data)
        self.count += 1
        if self.count == self._expected:
            self.done.set()

    def take_message(self, message: Message) -> None:
        """One message of ours: the same, without a second call."""
        self.size += len(message.data)
        self.count += 1
        if self.count == self._expected:
            self.done.set()

    def release(self) -> None:
        """Let the first message pass, where it is held back."""


class Timed(Tally):
    """Also notes how long each message was under way."""

    def take(self, data: bytes) -> None:
        """One message that begins with the time it was sent at."""
        self.latencies.append((time.monotonic_ns() - int.from_bytes(data[:STAMP], "big")) / 1e9)
        super().take(data)

    def take_message(self, message: Message) -> None:
        """One of ours."""
        self.take(message.data)


class Held(Tally):
    """Does not return from the first message until released, so that the others pile up."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Event()
        self._open = False

    def expect(self, messages: int) -> None:
        """Begin anew, with the gate closed."""
        self._gate.clear()
        self._open = False
        super().expect(messages)

    def release(self) -> None:
        """Open the gate."""
        self._gate.set()

    def take_message(self, message: Message) -> None:
        """One of ours."""
        if not self._open:
            self._gate.wait()
            self._open = True
        super().take_message(message)


class Unpacking(Tally):
    """For messages that a user has packed into one by hand: a call for each."""

    def take(self, data: bytes) -> None:
        """One body of many messages."""
        take = super().take
        for each in _decoder.decode(data):
            take(each)

    def take_message(self, message: Message) -> None:
        """One of ours."""
        self.take(message.data)


KINDS: dict[str, type[Tally]] = {"count": Tally, "time": Timed, "hold": Held, "unpack": Unpacking}
