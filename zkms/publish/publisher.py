"""All ways to publish: one message, many at once, a stream; for both buses, for transactions, requests and staged jobs.

`prepare` checks and packs a message. `Batching` lets it share a transaction with others, or a `Packer` puts it into a
frame. The `Pipeline` stores the frame in the queues of the topic's `Audience`, and returns a `Receipt`.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from datetime import datetime
from typing import Any, NamedTuple, Unpack

from zkms.checks import Codec, check_codec, check_count, check_seconds
from zkms.context import Context
from zkms.errors import (
    Closed,
    ConnectionLost,
    DuplicateMessage,
    InvalidArgument,
    InvalidMessage,
    UsedAfterFork,
    ZkmsError,
)
from zkms.message import frame as frames
from zkms.message.codec import encode_with
from zkms.message.frame import Packed
from zkms.names import check_topic, is_pattern
from zkms.publish.audience import MAX_TOPICS, Audience
from zkms.publish.batching import Batching
from zkms.publish.budget import frame_budget
from zkms.publish.delayed import FRAME_BYTES, FRAME_MESSAGES, due_at
from zkms.publish.options import IfNobody, Kind, ManyOptions, PublishOptions, SharedOptions
from zkms.publish.packer import Budget, Packer
from zkms.publish.pipeline import Pipeline
from zkms.publish.receipt import Receipt
from zkms.publish.shipment import OutgoingFrame, Shipment
from zkms.publish.topic_publisher import TopicPublisher
from zkms.tree.entry import MAX_PRIORITY

log = logging.getLogger("zkms.publish")
MAX_TTL = 10 * 365 * 86_400
"""Seconds: ten years."""
PackOne = Callable[[Any, int], Packed]
"""Packs a message; it also takes its number in the call, so that `map` counts the messages at no cost."""


class Terms(NamedTuple):
    """What all messages of one call have in common."""

    kind: Kind
    headers: Mapping[str, str] | None
    codec: Codec | None
    ttl: float | None

    def pack(self, data: Any, key: str | None = None, id: str | None = None) -> Packed:
        """Check and encode one message; `InvalidMessage` if that is impossible."""
        return pack(data, key, self.headers, id, self.codec, self.kind.priority, self.ttl)


class Publisher:
    """Publishes for one bus. Thread-safe; methods that return a Future block only while the window is full."""

    def __init__(self, context: Context, audience: Audience, pipeline: Pipeline) -> None:
        self._session = context.session
        self._config = context.config
        self._lifetime = context.lifetime
        self._audience = audience
        self._pipeline = pipeline
        self._batching = Batching(pipeline.send)
        self._streams: set[TopicPublisher] = set()
        self._targets: set[str] = set()
        """Topics whose names were checked."""
        self._process = os.getpid()

    # -- preparing -----------------------------------------------------------------------------------------------

    def options(
        self,
        topic: str,
        *,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: float | None = None,
        at: float | datetime | None = None,
        ttl: float | None = None,
        to_self: bool = True,
        if_nobody: IfNobody = "raise",
        codec: Codec | None = None,
    ) -> Terms:
        """Check the options of one call; the defaults here are those of every way to publish."""
        due = None if delay is None and at is None else due_at(delay, at, ttl, to_self=to_self)
        self.check(topic)
        if if_nobody not in ("raise", "drop"):
            raise InvalidArgument(f"if_nobody is 'raise' or 'drop', not {if_nobody!r}")
        codec = self._config.codec if codec is None else check_codec(codec)
        kind = Kind(topic, bool(to_self), if_nobody == "drop", None if codec is None else codec.name, priority, due)
        return Terms(kind, headers, codec, ttl)

    def prepare(
        self,
        topic: str,
        data: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        **options: Unpack[SharedOptions],
    ) -> tuple[Kind, Packed]:
        """Check and encode one message; also return the kind of the messages that may share its frame."""
        terms = self.options(topic, **options)
        return terms.kind, terms.pack(data, key, id)

    def prepare_many(
        self,
        topic: str,
        *,
        key: Callable[[Any], str] | None = None,
        id: Callable[[Any], str] | None = None,
        **options: Unpack[SharedOptions],
    ) -> tuple[Kind, PackOne]:
        """Check the options for many messages; return their kind, and the function that packs each."""
        kind, headers, codec, ttl = self.options(topic, **options)
        priority = kind.priority

        def packed(data: Any, _number: int) -> Packed:
            own_key, own_id = key(data) if key else None, id(data) if id else None
            return pack(data, own_key, headers, own_id, codec, priority, ttl)

        return kind, packed

    def frame(self, topic: str, data: Any, **options: Unpack[PublishOptions]) -> OutgoingFrame:
        """Return one message as a frame for a `Shipment`, which sets its deadline."""
        kind, packed = self.prepare(topic, data, **options)
        return self._pipeline.frame(kind, [packed], 0.0)

    def check(self, topic: str) -> None:
        """Raise unless the bus is open and the topic can be published to."""
        if os.getpid() != self._process:
            raise UsedAfterFork
        if self._lifetime.closed:
            raise Closed("the bus is closed")
        if topic.__class__ is not str or topic not in self._targets:
            check_topic(topic)
            if is_pattern(topic):
                raise InvalidArgument(
                    f"{topic!r} is a pattern: subscribe to it, and publish to a topic that it matches"
                )
            if len(self._targets) >= MAX_TOPICS:
                self._targets.clear()
            self._targets.add(topic)

    def allowed(self, timeout: float | None) -> float:
        """Return the seconds that a publish may take."""
        return self._config.request_timeout if timeout is None else check_seconds("timeout", timeout)

    # -- sending -------------------------------------------------------------------------------------------------

    def budget(self, kind: Kind, deadline: float) -> Budget:
        """Return the most bytes and messages of a frame of this kind, for the current subscriptions."""
        if kind.due is not None:
            return FRAME_BYTES, FRAME_MESSAGES
        try:
            snapshot = self._audience.get(kind.topic, deadline)
        except ConnectionLost as error:
            raise ConnectionLost(f"not stored: {error}", outcome_unknown=False) from error
        if snapshot.budget is None:
            snapshot.budget = frame_budget(snapshot.members, self._session.overhead)
        return snapshot.budget

    def send(self, kind: Kind, packed: list[Packed], deadline: float) -> Future[Receipt]:
        """Send one frame; the Future gets its receipt, or the error if it is not stored."""
        return self._pipeline.send(kind, packed, deadline)

    def ship(self, shipment: Shipment) -> None:
        """Send a transaction."""
        if self._lifetime.closed:
            raise Closed("the bus is closed")
        self._pipeline.ship(shipment)

    # -- one, many, a stream -------------------------------------------------------------------------------------

    def publish(
        self, topic: str, data: Any, *, timeout: float | None = None, **options: Unpack[PublishOptions]
    ) -> Receipt:
        """Store one message, and wait until it is stored."""
        kind, packed = self.prepare(topic, data, **options)
        deadline = time.monotonic() + self.allowed(timeout)
        place = 0
        if kind.due is None:
            most = self.budget(kind, deadline)[1]
            future, place = self._batching.send(kind, packed, most, deadline)
        else:
            future = self._pipeline.send(kind, [packed], deadline)
        receipt = result(future, deadline)
        if place:
            receipt = receipt.at(place)
        if packed.id is not None:
            refuse_duplicate(topic, packed.id, receipt)
        return receipt

    def publish_many(
        self, topic: str, messages: Iterable[Any], *, timeout: float | None = None, **options: Unpack[ManyOptions]
    ) -> list[Receipt]:
        """Store messages in order, with several frames in flight; return a receipt for each. `timeout` is per frame.

        If one fails, no more are sent; the error says in its notes how many were stored.
        """
        kind, pack_one = self.prepare_many(topic, **options)
        return publish_all(
            messages,
            pack_one,
            self.allowed(timeout),
            budget=lambda deadline: self.budget(kind, deadline),
            send=lambda packed, deadline: self._pipeline.send(kind, packed, deadline),
        )

    def stream(
        self,
        topic: str,
        *,
        linger: float = 0.005,
        max_in_flight: int = 20_000,
        to_self: bool = True,
        if_nobody: IfNobody = "raise",
        codec: Codec | None = None,
        timeout: float | None = None,
    ) -> TopicPublisher:
        """Begin a stream of messages to one topic."""
        linger = check_seconds("linger", linger)
        if linger < 0:
            raise InvalidArgument(f"linger must not be negative, but is {linger:g}")
        check_count("max_in_flight", max_in_flight)
        kind, _, codec, _ = self.options(topic, to_self=to_self, if_nobody=if_nobody, codec=codec)

        def packed(data: Any, key: str | None, headers: Mapping[str, str] | None, id: str | None) -> Packed:
            self.check(topic)
            return pack(data, key, headers, id, codec)

        stream = TopicPublisher(
            topic,
            pack=packed,
            budget=lambda deadline: self.budget(kind, deadline),
            send=lambda packed, deadline: self._pipeline.send(kind, packed, deadline),
            ended=self._streams.discard,
            linger=linger,
            max_in_flight=max_in_flight,
            timeout=self.allowed(timeout),
        )
        self._streams.add(stream)
        return stream

    def close(self, timeout: float) -> None:
        """Wait for messages in flight, at most `timeout` seconds, then fail the rest."""
        deadline = time.monotonic() + timeout
        for stream in list(self._streams):
            try:
                stream.close(max(0.0, deadline - time.monotonic()))
            except ZkmsError as error:
                log.warning("%s", error)
        self._pipeline.close(max(0.0, deadline - time.monotonic()))


def pack(
    data: Any,
    key: str | None,
    headers: Mapping[str, str] | None,
    id: str | None,
    codec: Codec | None,
    priority: int = 0,
    ttl: float | None = None,
) -> Packed:
    """Check and encode one message; `InvalidMessage` if that is impossible."""
    if priority.__class__ is not int or not 0 <= priority <= MAX_PRIORITY:
        raise InvalidMessage(f"priority must be a whole number from 0 to {MAX_PRIORITY}, not {priority!r:.60}")
    if ttl is not None and (not isinstance(ttl, (int, float)) or not 0 < ttl <= MAX_TTL):
        raise InvalidMessage(f"ttl must be a number of seconds above 0 and at most {MAX_TTL:,}, not {ttl!r:.60}")
    expires = 0.0 if ttl is None else time.time() + ttl
    if key is not None and not _is_text(key):
        raise InvalidMessage(f"key must be a str that UTF-8 can hold, not {key!r:.60}")
    if id is not None and not _is_text(id):
        raise InvalidMessage(f"id must be a str that UTF-8 can hold, not {id!r:.60}")
    if headers is not None and not (
        isinstance(headers, Mapping) and all(_is_text(k) and _is_text(v) for k, v in headers.items())
    ):
        raise InvalidMessage("headers: give a mapping whose names and values are str that UTF-8 can hold")
    if codec is not None:
        data = encode_with(codec, data)
    name = None if codec is None else codec.name
    return frames.pack(data, key, dict(headers) if headers else None, id, name, expires, priority)


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def publish_all(
    messages: Iterable[Any],
    pack_one: PackOne,
    allowed: float,
    *,
    budget: Callable[[float], Budget],
    send: Callable[[list[Packed], float], Future[Receipt]],
) -> list[Receipt]:
    """Pack and send messages in order; return a receipt for each. `allowed` is the timeout of each frame.

    If one fails, no more are sent; the error says in its notes how many were stored.
    """
    futures: list[Future[Receipt]] = []
    checked = 0
    taken = itertools.count()
    deadline = time.monotonic() + allowed
    try:
        packer = Packer(budget(deadline))
        for frame in packer.fill(map(pack_one, messages, taken)):
            deadline = time.monotonic() + allowed
            futures.append(send(frame, deadline))
            packer.budget = budget(deadline)
            while checked < len(futures) and futures[checked].done():
                futures[checked].result()
                checked += 1
        if packer.packed:
            deadline = time.monotonic() + allowed
            futures.append(send(packer.packed, deadline))
        receipts = [result(future, deadline) for future in futures]
    except ZkmsError as error:
        for future in futures:
            try:
                result(future, deadline)
            except ZkmsError as other:
                log.debug("another frame of the same call failed: %s", other)
        note_stored(error, futures, next(taken))
        raise
    return [one for receipt in receipts for one in receipt.each()]


def result(future: Future[Receipt], deadline: float) -> Receipt:
    """Wait for the receipt; `ConnectionLost` at the deadline."""
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except CancelledError as error:  # cancelled below, by an earlier call
        raise ConnectionLost("ZooKeeper did not answer in time") from error
    except TimeoutError as error:
        if not future.done():
            future.cancel()  # recovery will not send it again
            raise ConnectionLost("ZooKeeper did not answer in time") from error
        return future.result()


def refuse_duplicate(topic: str, id: str, receipt: Receipt) -> None:
    """Raise `DuplicateMessage` if the message was stored before."""
    if receipt.duplicate_of is not None:
        raise DuplicateMessage(topic, id, receipt.duplicate_of)


def note_stored(error: ZkmsError, futures: Sequence[Future[Receipt]], taken: int) -> None:
    """Add a note to the error: how many of the messages taken from the caller are stored."""
    stored = sum(f.result().count for f in futures if f.done() and not f.cancelled() and f.exception() is None)
    error.add_note(f"{stored} of the {taken} messages taken were stored")
