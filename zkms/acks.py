"""Acknowledgements: entries that are done with, deleted in transactions off the latency path. Runs on the reader loop.

Acks that come while a transaction is under way share the next one, so an idle bus acks at once and a busy one in bulk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from zkms.errors import Closed, ConnectionLost, NodeMissing, NotEmpty, TransactionFailed, ZkmsError
from zkms.loop import Loop
from zkms.operations import MAX_TRANSACTION, Delete, transaction_size
from zkms.purge import delete_children
from zkms.session import Session, State, failed_with

log = logging.getLogger("zkms.acks")
BATCH = 500
BATCH_BYTES = MAX_TRANSACTION // 2


class Acks:
    """Deletes acked entries; a lost reply is asked again, and an entry that is gone already counts as done."""

    def __init__(self, session: Session, loop: Loop) -> None:
        self._session = session
        self._loop = loop
        self._waiting: deque[str] = deque()
        self._under_way = 0
        self._idle = threading.Condition()
        self._scheduled = False

    def add(self, path: str) -> None:
        """Delete this entry soon. Callable from any thread."""
        with self._idle:
            self._waiting.append(path)
            if self._scheduled:
                return
            self._scheduled = True
        self._loop.post(self.flush)

    def flush(self) -> None:
        """Send what waits, unless a transaction is under way, whose end will."""
        with self._idle:
            self._scheduled = False
            if self._under_way or not self._waiting or self._session.state is not State.CONNECTED:
                return
            batch: list[str] = []
            size = 0
            while self._waiting and len(batch) < BATCH and size < BATCH_BYTES:
                batch.append(self._waiting.popleft())
                size += transaction_size([Delete(batch[-1])])
        self._send(batch)

    def drain(self, timeout: float) -> bool:
        """Wait until nothing is left, at most `timeout` seconds. Not on the loop."""
        deadline = time.monotonic() + timeout
        with self._idle:
            return self._idle.wait_for(lambda: not self._waiting and not self._under_way, deadline - time.monotonic())

    def _send(self, batch: Sequence[str]) -> None:
        with self._idle:
            self._under_way += 1
        reply = self._session.multi_async([Delete(path) for path in batch])
        reply.add_done_callback(lambda answer: self._loop.post(self._done, batch, answer))

    def _done(self, batch: Sequence[str], reply: Future[list[Any]]) -> None:
        error = reply.exception()
        if isinstance(error, ConnectionLost):
            with self._idle:
                self._waiting.extendleft(reversed(batch))
        elif isinstance(error, TransactionFailed) and len(batch) > 1:
            for path in batch:  # one of them is gone or cannot be deleted: each by itself
                self._send([path])
        elif error is not None and failed_with(error, NotEmpty):
            log.warning("%s has children, which cannot be ours: removing them", batch[0])
            threading.Thread(target=self._uproot, args=(batch[0],), name="zkms-uproot", daemon=True).start()
        elif isinstance(error, ZkmsError) and not failed_with(error, NodeMissing) and not isinstance(error, Closed):
            log.error("cannot delete %d acked entries, the first is %s: %s", len(batch), batch[0], error)
        with self._idle:
            self._under_way -= 1
            self._idle.notify_all()
        self.flush()

    def _uproot(self, path: str) -> None:
        """Off the loop, since it waits for ZooKeeper: another program's znodes below an entry, then the entry."""
        try:
            delete_children(self._session, path)
            self.add(path)
        except ZkmsError as error:
            log.error("cannot delete what is below the acked entry %s: %s", path, error)
