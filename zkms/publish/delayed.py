"""Publishing for later: from `delay=` and `at=` to a frame that waits in `delayed/`.

The same transactions store it as any frame, with the producer's number, so exactly once; but only once for all
subscriptions. When it is due, the leading cleaner chooses its queues and moves it there (see zkms_cleaner.due). Without
a cleaner it would never be delivered, so a publish first checks that there is one.
"""

from __future__ import annotations

import math
import sys
import time
from collections import OrderedDict
from datetime import datetime

from zkms.checks import check_seconds
from zkms.errors import ConnectionLost, InvalidArgument, MessageTooLarge, NoCleaner, NodeExists
from zkms.message.frame import Packed
from zkms.publish.audience import Members
from zkms.publish.shipment import LARGEST_KEPT, OWN_BYTES, OutgoingFrame
from zkms.tree.delayed_names import Delayed, bucket_of, milliseconds
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Operation, transaction_size
from zkms.zookeeper.recipes import attempt
from zkms.zookeeper.session import Session

NOBODY_YET = Members(-1, ticket=sys.maxsize)
"""The snapshot for delayed frames; it never becomes stale."""
LONGEST = 10 * 365 * 86_400
"""Seconds: ten years."""
FRAME_BYTES = 8 * 1024
FRAME_MESSAGES = 256
"""The limits of a delayed frame: with an entry in every queue, it must fit into a transaction when it is due."""
MAX_BUCKETS = 10_000
STANDING = 5.0
"""Seconds for which a cleaner that was seen is assumed to be there."""


def due_at(
    delay: float | None, at: float | datetime | None, ttl: float | None = None, *, to_self: bool = True
) -> float | None:
    """Return when a message is due, in seconds since the epoch; None for now. `InvalidArgument` if impossible."""
    if delay is None and at is None:
        return None
    now = time.time()
    if delay is not None and at is not None:
        raise InvalidArgument(f"give delay= or at=, not both: {delay!r:.60} and {at!r:.60}")
    if delay is not None:
        seconds = check_seconds("delay", delay)
        if seconds < 0:
            raise InvalidArgument(f"delay must not be negative, but is {seconds:g}: nothing is delivered in the past")
        due = now + seconds
    elif isinstance(at, datetime):
        if at.tzinfo is None or at.utcoffset() is None:
            raise InvalidArgument(f"at={at!r} has no time zone: give one, such as datetime.now(timezone.utc)")
        due = at.timestamp()
    else:
        if isinstance(at, bool) or not isinstance(at, (int, float)) or not math.isfinite(at):
            raise InvalidArgument(f"at must be seconds since the epoch or a datetime with a time zone, not {at!r:.60}")
        due = float(at)
    if due - now > LONGEST:
        raise InvalidArgument(f"due in {due - now:,.0f} seconds: at most {LONGEST:,} (ten years) are possible")
    if isinstance(ttl, (int, float)) and 0 < ttl <= due - now:
        raise InvalidArgument(
            f"ttl={ttl:g} is over before the message is due, in {due - now:g} seconds: it would never be delivered"
        )
    if not to_self:
        raise InvalidArgument("to_self=False does not go with delay= or at=: who gets it is decided when it is due")
    return due


class DelayedFrame(OutgoingFrame):
    """A frame that is stored in `delayed/` until it is due."""

    def __init__(self, topic: str, packed: list[Packed], *, due: float, drop: bool, deadline: float) -> None:
        super().__init__(topic, packed, without=None, drop=drop, deadline=deadline)
        self.due: float = due
        self._bucket = bucket_of(due, time.time())

    def operations(self, tree: Tree, producer: str, snapshot: Members, overhead: int) -> list[Operation]:
        """Return the operations that store it in its bucket."""
        del snapshot  # its queues are chosen when it is due
        places = tuple(place for place in range(len(self.packed)) if place not in self.duplicates)
        operations: list[Operation] = []
        if places:
            raw = self.encode(producer, places if self.duplicates else None, self.topic)
            self.size = len(raw)
            self.delayed = Delayed(
                milliseconds(self.due), self.seq, producer, self.topic, self._bucket,
                len(places), self.size, self.packed[0].priority, self.drop,
            )  # fmt: skip
            operations.append(Create(self.delayed.path(tree), raw))
        else:
            self.delayed = None
            operations.append(Check(tree.delayed, -1))
        operations += self.remember(tree, producer)
        excess = max(transaction_size(operations, overhead) + OWN_BYTES - MAX_TRANSACTION, self.size - LARGEST_KEPT)
        if excess > 0:
            raise MessageTooLarge(self.topic, self.size, max(0, self.size - excess - 1), 1)
        return operations

    def bucket(self, tree: Tree) -> str:
        """Return the path of its bucket."""
        return tree.bucket(self._bucket)


class DelayedPublishing:
    """Prepares the tree for delayed frames. Used by all threads that publish."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self.standing = False
        """Whether this process itself is a candidate in the cleaners' election."""
        self._session = session
        self._tree = tree
        self._buckets: OrderedDict[str, None] = OrderedDict()
        self._seen = float("-inf")

    def prepare(self, outgoing: DelayedFrame) -> Members:
        """Check that there is a cleaner to move the frame, and create its bucket."""
        if not self.standing and time.monotonic() - self._seen > STANDING:
            if not self._session.children(self._tree.cleaner, deadline=outgoing.deadline)[0]:
                raise NoCleaner(outgoing.topic)
            self._seen = time.monotonic()
        bucket = outgoing.bucket(self._tree)
        if bucket not in self._buckets:
            self.make(bucket, outgoing.deadline)
        return NOBODY_YET

    def make(self, bucket: str, deadline: float | None = None) -> None:
        """Create a bucket if it is missing."""
        while True:
            try:
                attempt(self._session, [Create(bucket)], NodeExists, deadline=deadline)
                break
            except ConnectionLost as error:
                if not error.outcome_unknown:
                    raise  # otherwise try again, until the deadline
        self._buckets[bucket] = None
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
