"""Acknowledgements: entries that are done with, deleted in transactions off the latency path.

Acks that come while a transaction is under way share the next one, so an idle bus acks at once and a busy one in bulk.
The thread that acks sends it; what comes of it is looked at on the connection's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from zkms.errors import Closed, ConnectionLost, NodeMissing, NotEmpty, TransactionFailed, ZkmsError
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import MAX_TRANSACTION, Delete, transaction_size
from zkms.zookeeper.session import Session, State, failed_with

log = logging.getLogger("zkms.deliver")
BATCH = 500
BATCH_BYTES = MAX_TRANSACTION // 2


class Acks:
    """Deletes acked entries; a lost reply is asked again, and an entry that is gone already counts as done."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[str] = deque()
        self._under_way = 0
        self._idle = threading.Condition()

    def add(self, path: str) -> None:
        """Delete this entry soon. Callable from any thread."""
        with self._idle:
            self._waiting.append(path)
        self.flush()

    def flush(self) -> None:
        """Send what waits; while a transaction is under way, its answer does that."""
        with self._idle:
            if self._under_way or not self._waiting or self._session.state is not State.CONNECTED:
                return
            batch: list[str] = []
            size = 0
            while self._waiting and len(batch) < BATCH and size < BATCH_BYTES:
                batch.append(self._waiting.popleft())
                if self._waiting:  # else nothing follows that might not fit
                    size += transaction_size([Delete(batch[-1])], self._session.overhead)
            self._under_way += 1
        self._send(batch)

    def drain(self, timeout: float) -> bool:
        """Wait until nothing is left, at most `timeout` seconds. Not on the connection's thread."""
        deadline = time.monotonic() + timeout
        with self._idle:
            return self._idle.wait_for(lambda: not self._waiting and not self._under_way, deadline - time.monotonic())

    def _send(self, batch: Sequence[str]) -> None:
        self._session.call_multi([Delete(path) for path in batch], partial(self._done, batch))

    def _done(self, batch: Sequence[str], _results: Any, error: ZkmsError | None) -> None:
        apart: Sequence[str] = ()
        if isinstance(error, ConnectionLost):
            with self._idle:
                self._waiting.extendleft(reversed(batch))
        elif isinstance(error, TransactionFailed) and len(batch) > 1:
            apart = batch  # one of them is gone or cannot be deleted: each by itself
        elif error is not None and failed_with(error, NotEmpty):
            log.warning("%s has children, which cannot be ours: removing them", batch[0])
            threading.Thread(target=self._uproot, args=(batch[0],), name="zkms-uproot", daemon=True).start()
        elif error is not None and not failed_with(error, NodeMissing) and not isinstance(error, Closed):
            log.error("cannot delete %d acked entries, the first is %s: %s", len(batch), batch[0], error)
        with self._idle:
            self._under_way += len(apart) - 1
            self._idle.notify_all()
        for path in apart:
            self._send([path])
        if not apart:
            self.flush()

    def _uproot(self, path: str) -> None:
        """On a thread of its own, since it waits: another program's znodes below an entry, then the entry."""
        try:
            delete_children(self._session, path)
            self.add(path)
        except ZkmsError as error:
            log.error("cannot delete what is below the acked entry %s: %s", path, error)
