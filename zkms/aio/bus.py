"""The bus for asyncio: what zkms.aio.connect() opens."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

import msgspec

from zkms.admin.dead_letters import DEFAULT_LIMIT as MOST_LETTERS
from zkms.admin.dead_letters import DeadLetterInfo
from zkms.admin.delayed import DelayedInfo
from zkms.admin.discovery import ClientInfo, QueueInfo, SubscriptionInfo, TopicInfo
from zkms.admin.groups import GroupInfo
from zkms.admin.observer import Change, Observer, OnChange
from zkms.aio.bulk import Bulk
from zkms.aio.calls import Calls
from zkms.aio.consumer import Consumer
from zkms.aio.message import Handler, Message, OnError
from zkms.aio.outbox import Kind, Outbox, late
from zkms.aio.publisher import TopicPublisher
from zkms.aio.receipt import Receipt
from zkms.aio.stream import Stream
from zkms.aio.subscription import Subscription
from zkms.aio.supply import Supply
from zkms.aio.transaction import Transaction
from zkms.aio.waiting import Waiting
from zkms.bus import Bus as ThreadedBus
from zkms.checks import Codec, check_codec, check_positive, check_seconds
from zkms.config import Config
from zkms.deliver.live import AckMode, OnGap
from zkms.errors import AlreadySubscribed, Closed, DuplicateMessage, InvalidArgument, ZkmsError
from zkms.message.encode import pack
from zkms.message.frame import Packed
from zkms.names import check_topic, matches
from zkms.publish.delayed import due_at
from zkms.publish.receipt import Receipt as ThreadedReceipt
from zkms.publish.shipment import IfNobody
from zkms.request_reply import Answers
from zkms.subscribe.options import (
    DEFAULT_LIMIT,
    DEFAULT_PARTITIONS,
    Overflow,
    SubscribeOptions,
    check_target,
)
from zkms.tree.records import DEFAULT_BYTES

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("zkms.aio")


class Bus:
    """A connection to the topics below one root, for the event loop in which it was opened."""

    def __init__(self, bus: ThreadedBus) -> None:
        self._bus = bus
        self._calls = Calls(self._orphaned)
        self._outbox = Outbox(bus, self._calls)
        bus.replies.submit = self._calls.submit
        self._subscriptions: dict[tuple[str, str | None], Subscription | Consumer] = {}
        """The latest for each topic and name."""
        self._closing: asyncio.Task[None] | None = None
        self._ending = threading.Lock()
        self._ended: Future[None] | None = None
        """What closes the threaded bus."""

    def __repr__(self) -> str:
        return f"<aio.{repr(self._bus)[1:]}"

    @property
    def client_id(self) -> str:
        """The name that this process has in ZooKeeper."""
        return self._bus.client_id

    @property
    def config(self) -> Config:
        """What it runs with."""
        return self._bus.parts.context.config

    @property
    def threaded(self) -> ThreadedBus:
        """The bus below, for what is not here: its calls wait, so keep them off the event loop."""
        return self._bus

    # -- life ----------------------------------------------------------------------------------------------------

    async def close(self, timeout: float = 5.0) -> None:
        """Finish what is in hand, unsubscribe, and end the session. Safe to call again, and goes on when cancelled.

        In this order: publishes, handlers (those that are busy after `timeout` seconds are cancelled), and then what
        the threaded bus does.
        """
        timeout = check_seconds("timeout", timeout)
        if asyncio.get_running_loop() is not self._calls.loop and self._calls.loop.is_closed():
            # The one thing that can be done from elsewhere; whoever noticed the loop's end may have begun it.
            await asyncio.shield(asyncio.wrap_future(self._close_threaded(timeout)))
            return
        self._calls.check_loop()
        own = asyncio.current_task()
        if self._closing is None:
            self._closing = self._calls.loop.create_task(self._close(timeout, own), name="zkms-close")
        elif any(own is sub.task for sub in self._subscriptions.values()):
            return  # the closing waits for this handler
        await asyncio.shield(self._closing)

    async def _close(self, timeout: float, caller: asyncio.Task[Any] | None) -> None:
        deadline = time.monotonic() + timeout
        try:
            await self._outbox.drain(timeout)
            left = max(0.0, deadline - time.monotonic())
            subscriptions = self._subscriptions.values()
            await asyncio.gather(*(sub.stop(left, None if sub.task is caller else sub.task) for sub in subscriptions))
            await self._settled(max(0.0, deadline - time.monotonic()))
        finally:
            closing = self._close_threaded(max(0.0, deadline - time.monotonic()))
        await self._calls.finished(closing)
        closing.result()

    async def _settled(self, timeout: float) -> None:
        """Wait for subscriptions that are being opened or given up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for subscription in self._subscriptions.values():
                    await self._calls.finished(subscription.busy)

    def _close_threaded(self, timeout: float) -> Future[None]:
        """Once, on a thread of its own: calls that wait for ZooKeeper must not be in the way."""
        with self._ending:
            if self._ended is None:
                pool = ThreadPoolExecutor(1, "zkms-aio-close")
                self._ended = pool.submit(self._bus.close, timeout)
                self._ended.add_done_callback(lambda _: self._calls.close())
                pool.shutdown(wait=False)
            return self._ended

    def _orphaned(self) -> None:
        """On a thread of the core: the event loop is no more, so nobody will ever take a message."""
        self._close_threaded(0.0)

    async def __aenter__(self) -> Bus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        self._calls.check_loop()
        if self._closing is not None:
            raise Closed("the bus is closed")
        self._bus._check_open()

    # -- publish -------------------------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        data: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: float | None = None,
        at: float | datetime | None = None,
        ttl: float | None = None,
        id: str | None = None,
        to_self: bool = True,
        if_nobody: IfNobody = "raise",
        codec: Codec | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Store a message in the queue of every subscription of the topic, or of none; return when it is stored.

        Raises as the threaded one does. When cancelled, it may have been stored or not; before it is sent, it is not.
        """
        self._check_open()
        due = due_at(delay, at, ttl, to_self=to_self)
        packed = self._bus.packed(topic, data, key, headers, id, codec, priority=priority, ttl=ttl)
        deadline = time.monotonic() + self._bus._allowed(timeout)
        self._bus.options(topic, to_self, if_nobody)
        await self._subscribed(topic, deadline)
        kind = Kind(topic, to_self, if_nobody, packed.codec, priority, due)
        receipt = await self._outbox.send(kind, packed, deadline)
        if id is not None and receipt.duplicate_of is not None:
            raise DuplicateMessage(topic, id, receipt.duplicate_of)
        return Receipt(receipt, self._calls)

    async def _subscribed(self, topic: str, deadline: float) -> None:
        """What this bus subscribes to before it publishes, it hears."""
        for subscription in [*self._subscriptions.values()]:
            if not subscription.busy.done() and matches(subscription.topic, topic):
                try:
                    async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                        await self._calls.finished(subscription.busy)
                except TimeoutError as error:
                    raise late(sent=False) from error

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Any] | AsyncIterable[Any],
        *,
        key: Callable[[Any], str] | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: float | None = None,
        at: float | datetime | None = None,
        ttl: float | None = None,
        id: Callable[[Any], str] | None = None,
        to_self: bool = True,
        if_nobody: IfNobody = "raise",
        codec: Codec | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Publish many messages the fast way: packed into frames, several in flight. One receipt a message, in order.

        As the threaded one; `messages` may also be an asynchronous iterable. When cancelled, no more are sent.
        """
        self._check_open()
        self._bus.options(check_target(topic), to_self, if_nobody)
        codec = check_codec(codec) or self._bus.parts.context.config.codec
        due = due_at(delay, at, ttl, to_self=to_self)
        bulk = Bulk(self._bus, self._calls, topic, to_self, if_nobody, timeout, due)
        await self._subscribed(topic, time.monotonic() + self._bus._allowed(timeout))

        def packed(data: Any) -> Packed:
            own_key, own_id = key(data) if key else None, id(data) if id else None
            return pack(data, own_key, headers, own_id, codec, priority=priority, ttl=ttl)

        try:
            if isinstance(messages, AsyncIterable):
                await bulk.take_slowly(messages, packed)
            else:
                await bulk.take(messages, packed)
            receipts = await bulk.end()
        except ZkmsError as error:
            await bulk.give_up(error)
            raise
        return [one for receipt in receipts for one in self._each(receipt)]

    def _each(self, receipt: ThreadedReceipt) -> list[Receipt]:
        shared = Receipt(receipt, self._calls)
        return [shared if one is receipt else Receipt(one, self._calls) for one in receipt.each()]

    def publisher(
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
        """Publish a stream of messages to one topic; use it in `async with`, or `await` it and close() it.

        Its send() packs what comes within `linger` seconds; `await sent.result()` waits until the message is stored. At
        most `max_in_flight` messages are on their way: past that, send() waits.
        """
        self._check_open()
        make = functools.partial(
            self._bus.publisher,
            check_topic(topic),
            linger=linger,
            max_in_flight=max_in_flight,
            to_self=to_self,
            if_nobody=if_nobody,
            codec=codec,
            timeout=timeout,
        )
        return TopicPublisher(self._calls, topic, make, self._bus._allowed(timeout))

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Ack and publish as one: `async with bus.transaction() as tx: tx.ack(message); tx.publish(...)`.

        As the threaded one: at the end of the block all of it is stored, or nothing.
        """
        self._check_open()
        return Transaction(self._calls, self._bus.transaction(timeout))

    async def request(
        self,
        topic: str,
        data: Any,
        timeout: float = 5.0,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        to_self: bool = True,
        codec: Codec | None = None,
    ) -> Answers:
        """Ask every subscription of the topic, and gather the answers: of every live node, of one member of a group.

        As the threaded one. Tasks of this bus may answer while this one waits. When cancelled, answers are dropped.
        """
        self._check_open()
        timeout = check_positive("timeout", timeout)
        done, replies = asyncio.Event(), self._bus.replies
        await self._calls.run(replies.listen)
        question = replies.open(lambda: self._calls.post(done.set))
        try:
            deadline = time.monotonic() + self._bus.parts.context.config.request_timeout
            await self._subscribed(topic, deadline)
            send = functools.partial(replies.send, key=key, headers=headers, to_self=to_self, codec=codec)
            sent = await self._calls.run(send, question, topic, data, deadline)
            await self._calls.finished(sent)
            question.expect(sent.result())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await done.wait()
            return question.answers()
        finally:
            replies.close(question)

    # -- subscribe -----------------------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Handler | None = None,
        *,
        ack: AckMode | None = None,
        type: Any = None,
        codec: Codec | None = None,
        limit: int = DEFAULT_LIMIT,
        max_bytes: int = DEFAULT_BYTES,
        prefetch: int = 10_000,
        where: Mapping[str, str | Sequence[str]] | None = None,
        overflow: Overflow | None = None,
        max_age: float | None = None,
        on_gap: OnGap | None = None,
        on_error: OnError | None = None,
    ) -> Subscription: ...

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Handler | None = None,
        *,
        name: str,
        takeover: bool = False,
        max_attempts: int | None = 3,
        backoff: float = 1.0,
        ack: AckMode | None = None,
        type: Any = None,
        codec: Codec | None = None,
        limit: int = DEFAULT_LIMIT,
        max_bytes: int = DEFAULT_BYTES,
        prefetch: int = 10_000,
        where: Mapping[str, str | Sequence[str]] | None = None,
        overflow: Overflow | None = None,
        max_age: float | None = None,
        on_gap: OnGap | None = None,
        on_error: OnError | None = None,
    ) -> Consumer: ...

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Handler | None = None,
        *,
        group: str,
        partitions: int | None = None,
        ttr: float | None = None,
        max_attempts: int | None = 3,
        backoff: float = 1.0,
        ack: AckMode | None = None,
        type: Any = None,
        codec: Codec | None = None,
        limit: int = DEFAULT_LIMIT,
        max_bytes: int = DEFAULT_BYTES,
        prefetch: int = 10_000,
        where: Mapping[str, str | Sequence[str]] | None = None,
        overflow: Overflow | None = None,
        max_age: float | None = None,
        on_gap: OnGap | None = None,
        on_error: OnError | None = None,
    ) -> Consumer: ...

    def subscribe(
        self,
        topic: str,
        handler: Handler | None = None,
        *,
        name: str | None = None,
        takeover: bool = False,
        group: str | None = None,
        partitions: int | None = None,
        ttr: float | None = None,
        max_attempts: int | None = 3,
        backoff: float = 1.0,
        ack: AckMode | None = None,
        type: Any = None,
        codec: Codec | None = None,
        limit: int = DEFAULT_LIMIT,
        max_bytes: int = DEFAULT_BYTES,
        prefetch: int = 10_000,
        where: Mapping[str, str | Sequence[str]] | None = None,
        overflow: Overflow | None = None,
        max_age: float | None = None,
        on_gap: OnGap | None = None,
        on_error: OnError | None = None,
    ) -> Subscription | Consumer:
        """Receive all that is published to the topic; once the result has been awaited, nothing is missed any more.

        The arguments are those of the threaded bus; `handler`, `on_gap` and `on_error` may be coroutine functions. They
        run on the event loop, one message after the other, and a message is acked when the handler has returned.
        """
        self._check_open()
        request = SubscribeOptions(
            topic=topic,
            name=name,
            group=group,
            partitions=partitions,
            ttr=ttr,
            max_attempts=max_attempts,
            backoff=backoff,
            takeover=takeover,
            where=where,
            overflow=overflow,
            max_age=max_age,
            ack=ack,
            type=type,
            codec=codec,
            limit=limit,
            max_bytes=max_bytes,
            prefetch=prefetch,
            make=Message,
        )
        return self._subscribe(request, handler, on_gap, on_error)

    def _subscribe(
        self, request: SubscribeOptions, handler: Handler | None, on_gap: OnGap | None, on_error: OnError | None
    ) -> Subscription | Consumer:
        topic, name = request.topic, request.name or request.group
        check_topic(topic)
        for what, callback in (("handler", handler), ("on_gap", on_gap), ("on_error", on_error)):
            if callback is not None and not callable(callback):
                raise InvalidArgument(f"{what} must be callable, not {callback!r:.60}")
        former = self._subscriptions.get((topic, name))
        if former is not None and not former.closed:
            raise AlreadySubscribed(topic, name)
        after = None if former is None else former.busy
        self._subscriptions = {key: sub for key, sub in self._subscriptions.items() if not sub.over}
        subscription: Subscription | Consumer
        if request.kind == "live":
            stream = Stream(self._calls, topic, on_gap, on_error, pulled=handler is None)
            live = functools.partial(self._bus.parts.subscriptions.subscribe_live, _with(request, stream))
            manual = request.ack == "manual"
            subscription = Subscription(self._calls, topic, handler, stream, live, manual=manual, after=after)
        else:
            supply = Supply(self._calls, topic, on_gap, on_error, pulled=handler is None)
            kept = functools.partial(self._bus.parts.subscriptions.subscribe_durable, _with(request, supply))
            subscription = Consumer(self._calls, topic, handler, supply, kept, ack=request.ack, after=after)
        self._subscriptions[topic, name] = subscription
        return subscription

    async def create_group(
        self,
        topic: str,
        group: str,
        *,
        partitions: int = DEFAULT_PARTITIONS,
        where: Mapping[str, str | Sequence[str]] | None = None,
        overflow: Overflow = "reject",
        max_age: float | None = None,
        limit: int = DEFAULT_LIMIT,
        max_bytes: int = DEFAULT_BYTES,
    ) -> bool:
        """Declare a group before it has any member: what is published from now on waits for them.

        False if it is there already; `GroupMismatch` if that one has other partitions.
        """
        self._check_open()
        return await self._calls.run(
            self._bus.create_group,
            topic,
            group,
            partitions=partitions,
            where=where,
            overflow=overflow,
            max_age=max_age,
            limit=limit,
            max_bytes=max_bytes,
        )

    # -- discovery -----------------------------------------------------------------------------------------------

    async def topics(self) -> list[TopicInfo]:
        """All topics, with how many subscribe to each."""
        return await self._calls.run(self._bus.topics)

    async def subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """Who subscribes to a topic."""
        return await self._calls.run(self._bus.subscriptions, topic)

    async def queues(self, *, count: bool = False) -> list[QueueInfo]:
        """All queues, with how many entries wait in each; with `count` also messages by state, and the oldest's age."""
        return await self._calls.run(self._bus.queues, count=count)

    async def delayed(self) -> list[DelayedInfo]:
        """How many messages of which topics wait to become due, and when the next one is."""
        return await self._calls.run(self._bus.delayed)

    async def clients(self) -> list[ClientInfo]:
        """The processes that are connected."""
        return await self._calls.run(self._bus.clients)

    async def groups(self, topic: str | None = None, name: str | None = None) -> list[GroupInfo]:
        """Durable subscriptions and groups: members, who reads which partition, how much waits and for how long."""
        return await self._calls.run(self._bus.groups, topic, name)

    async def watch(self, callback: OnChange) -> Observer:
        """Call `callback(change)`, on the event loop, when topics, subscriptions, members or clients come and go.

        It is a plain function; close() what this returns.
        """
        if not callable(callback) or asyncio.iscoroutinefunction(callback):
            raise InvalidArgument(f"callback must be a plain function, not {callback!r:.60}")
        observers: list[Observer] = []

        def tell(change: Change) -> None:
            if not (observers and observers[0].closed):
                callback(change)

        observers.append(await self._calls.run(self._bus.watch, functools.partial(self._calls.post, tell)))
        return observers[0]

    # -- dead letters --------------------------------------------------------------------------------------------

    async def dead_letters(
        self, topic: str | None = None, subscription: str | None = None, *, limit: int = MOST_LETTERS
    ) -> list[DeadLetterInfo]:
        """What readers could not do with, and what was found in queues and is no message; the oldest first."""
        return await self._calls.run(self._bus.dead_letters, topic, subscription, limit=limit)

    async def requeue(self, letter: DeadLetterInfo) -> None:
        """Deliver a dead letter again, as the last of its partition, with all its attempts before it."""
        await self._calls.run(self._bus.requeue, letter)

    async def purge_dead(
        self, *letters: DeadLetterInfo, topic: str | None = None, subscription: str | None = None
    ) -> int:
        """Remove these letters for good, or all of a topic and a subscription; how many that were."""
        return await self._calls.run(self._bus.purge_dead, *letters, topic=topic, subscription=subscription)


def _with(request: SubscribeOptions, waiting: Waiting) -> SubscribeOptions:
    """What is told on the threads below is noted there, and told on the loop."""
    return msgspec.structs.replace(request, on_gap=waiting.on_gap, on_error=waiting.on_error)
