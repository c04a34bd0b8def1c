"""A queue entry that is being handed over: its messages, and which of them are done with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from zkms import codec as codecs
from zkms.codec import Codec
from zkms.errors import AlreadyAcked, CannotDecode
from zkms.frame import Frame, Packed
from zkms.message import NO_HEADERS, Message


class Handover:
    """Calls `done` once, when every message of the entry has been acked."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left = count
        self._done = done
        self._acked: set[int] = set()
        self._finished: set[int] = set()
        self._lock = threading.Lock()

    def ack(self, message: Message) -> None:
        """The user's ack; a second one is `AlreadyAcked`."""
        with self._lock:
            if message.seq in self._acked:
                raise AlreadyAcked(message.id)
            self._acked.add(message.seq)
        self.finish(message.seq)

    def finish(self, seq: int) -> None:
        """This message needs nothing more; harmless if that is known."""
        with self._lock:
            if seq in self._finished:
                return
            self._finished.add(seq)
            self._left -= 1
            complete = self._left == 0
        if complete:
            self._done()


def unpack(
    topic: str, frame: Frame, handover: Handover, type: Any, codec: Codec | None
) -> list[Message | tuple[int, str]]:
    """The messages of a frame in order; for one that cannot be decoded its number and the reason."""
    return [_message(topic, frame, i, packed, handover, type, codec) for i, packed in enumerate(frame.messages)]


def _message(
    topic: str, frame: Frame, index: int, packed: Packed, handover: Handover, type: Any, codec: Codec | None
) -> Message | tuple[int, str]:
    try:
        data = codecs.unpack(packed.format, packed.data, type, codec)
    except CannotDecode as error:
        return frame.seq + index, error.reason
    return Message(
        data=data,
        topic=topic,
        key=packed.key,
        headers=NO_HEADERS if packed.headers is None else packed.headers,
        producer=frame.producer,
        seq=frame.seq + index,
        published_at=frame.published_at,
        given_id=packed.id,
        acknowledger=handover,
    )
