"""Many messages at once: packed into frames, several frames in flight."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from zkms.errors import ConnectionLost, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.receipt import Receipt

log = logging.getLogger("zkms")
Send = Callable[[list[Packed], float], "Future[Receipt]"]
Budget = Callable[[float], tuple[int, int]]


def publish_all(
    messages: Iterable[Any], pack: Callable[[Any], Packed], allowed: float, budget: Budget, send: Send
) -> list[Receipt]:
    """Pack and send them in order; one receipt a message. `allowed` is for each frame.

    If one fails, no more are sent; the error says in its notes how many were stored.
    """
    futures: list[Future[Receipt]] = []
    frame: list[Packed] = []
    size = 0
    given = checked = 0
    deadline = time.monotonic() + allowed
    try:
        largest, most = budget(deadline)
        for data in messages:
            given += 1
            packed = pack(data)
            added = packed.size
            if frame and (size + added > largest or len(frame) >= most):
                deadline = time.monotonic() + allowed
                futures.append(send(frame, deadline))
                frame, size = [], 0
                largest, most = budget(deadline)
                while checked < len(futures) and futures[checked].done():
                    futures[checked].result()
                    checked += 1
            frame.append(packed)
            size += added
        if frame:
            deadline = time.monotonic() + allowed
            futures.append(send(frame, deadline))
        receipts = [result(future, deadline) for future in futures]
    except ZkmsError as error:
        for future in futures:
            try:
                result(future, deadline)
            except ZkmsError as other:
                log.debug("another frame of the same call failed: %s", other)
        error.add_note(f"{stored(futures)} of the {given} messages taken were stored")
        raise
    return [one for receipt in receipts for one in receipt.each()]


def result(future: Future[Receipt], deadline: float) -> Receipt:
    """The receipt, waited for; `ConnectionLost` at the deadline."""
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except CancelledError as error:  # by us, when it was waited for before
        raise ConnectionLost("ZooKeeper did not answer in time") from error
    except TimeoutError as error:
        if not future.done():
            future.cancel()  # recovery will not send it again
            raise ConnectionLost("ZooKeeper did not answer in time") from error
        return future.result()


def stored(futures: Sequence[Future[Receipt]]) -> int:
    """Messages stored among these frames."""
    return sum(f.result().count for f in futures if f.done() and not f.cancelled() and f.exception() is None)
