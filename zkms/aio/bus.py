"""The bus for asyncio: what zkms.aio.connect() opens."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import AsyncIterable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Unpack, overload

from zkms.admin.observer import Change, Observer, OnChange
from zkms.aio.calls import Calls, Twin, awaited
from zkms.aio.consumer import Consumer
from zkms.aio.message import Handler, Message
from zkms.aio.outbox import Bulk, Outbox, late
from zkms.aio.publisher import TopicPublisher
from zkms.aio.receipt import Receipt
from zkms.aio.subscription import Subscription
from zkms.aio.transaction import Transaction
from zkms.bus import Bus as ThreadedBus
from zkms.checks import Codec, check_options, check_positive, check_seconds
from zkms.config import Config
from zkms.errors import AlreadySubscribed, Closed, InvalidArgument, ZkmsError
from zkms.names import check_topic, matches
from zkms.publish.options import ManyOptions, PublishOptions, StreamOptions
from zkms.publish.publisher import refuse_duplicate
from zkms.publish.receipt import Receipt as ThreadedReceipt
from zkms.request_reply import Answers
from zkms.subscribe.options import DurableOptions, GroupOptions, GroupQueueOptions, LiveOptions, SubscribeOptions

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("zkms.aio")


class Bus(Twin[ThreadedBus]):
    """A connection to the topics below one root, for the event loop in which it was opened."""

    def __init__(self, bus: ThreadedBus) -> None:
        super().__init__(Calls(self._orphaned), bus)
        self._context = bus.parts.context
        self._publisher = bus.parts.publisher
        self._outbox = Outbox(self._publisher, self._calls)
        bus.parts.replies.submit = self._calls.submit
        self._subscriptions: dict[tuple[str, str | None], Subscription | Consumer] = {}
        """The latest for each topic and name."""
        self._closing: asyncio.Task[None] | None = None
        self._ending = threading.Lock()
        self._ended: Future[None] | None = None
        """What closes the threaded bus."""

    def __repr__(self) -> str:
        return f"<aio.{repr(self._threaded)[1:]}"

    @property
    def client_id(self) -> str:
        """The name that this process has in ZooKeeper."""
        return self._threaded.client_id

    @property
    def config(self) -> Config:
        """What it runs with."""
        return self._context.config

    @property
    def threaded(self) -> ThreadedBus:
        """The bus below, for what is not here: its calls wait, so keep them off the event loop."""
        return self._threaded

    # -- life ----------------------------------------------------------------------------------------------------

    async def close(self, timeout: float = 5.0) -> None:
        """Finish what is under way, unsubscribe, and end the session. Safe to call again, and goes on when cancelled.

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
                self._ended = pool.submit(self._threaded.close, timeout)
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

    def calls(self) -> Calls:
        """Internal: what runs the calls of all that stands on this bus; `Closed` if the bus is."""
        self._check_open()
        return self._calls

    def _check_open(self) -> None:
        self._calls.check_loop()
        if self._closing is not None:
            raise Closed("the bus is closed")
        self._context.check_open()

    # -- publish -------------------------------------------------------------------------------------------------

    async def publish(
        self, topic: str, data: Any, *, timeout: float | None = None, **options: Unpack[PublishOptions]
    ) -> Receipt:
        """Store a message in the queue of every subscription of the topic, or of none; return when it is stored.

        Raises as the threaded one does. When cancelled, it may have been stored or not; before it is sent, it is not.
        """
        self._check_open()
        check_options("publish", options, PublishOptions.__annotations__)
        kind, packed = self._publisher.prepare(topic, data, **options)
        deadline = time.monotonic() + self._publisher.allowed(timeout)
        await self._subscribed(topic, deadline)
        receipt = await self._outbox.send(kind, packed, deadline)
        if packed.id is not None:
            refuse_duplicate(topic, packed.id, receipt)
        return Receipt(self._calls, receipt)

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
        timeout: float | None = None,
        **options: Unpack[ManyOptions],
    ) -> list[Receipt]:
        """Publish many messages the fast way: packed into frames, several in flight. One receipt a message, in order.

        As the threaded one; `messages` may also be an asynchronous iterable. When cancelled, no more are sent.
        """
        self._check_open()
        check_options("publish_many", options, ManyOptions.__annotations__)
        allowed = self._publisher.allowed(timeout)
        kind, pack = self._publisher.prepare_many(topic, **options)
        bulk = Bulk(self._publisher, self._calls, kind, pack, allowed)
        await self._subscribed(topic, time.monotonic() + allowed)
        try:
            await bulk.take(messages)
            receipts = await bulk.end()
        except ZkmsError as error:
            await bulk.give_up(error)
            raise
        return [one for receipt in receipts for one in self._each(receipt)]

    def _each(self, receipt: ThreadedReceipt) -> list[Receipt]:
        shared = Receipt(self._calls, receipt)
        return [shared if one is receipt else Receipt(self._calls, one) for one in receipt.each()]

    def publisher(self, topic: str, **options: Unpack[StreamOptions]) -> TopicPublisher:
        """Publish a stream of messages to one topic; use it in `async with`, or `await` it and close() it.

        Its send() packs what comes within `linger` seconds; `await sent.result()` waits until the message is stored. At
        most `max_in_flight` messages are on their way: past that, send() waits.
        """
        self._check_open()
        check_options("publisher", options, StreamOptions.__annotations__)
        make = functools.partial(self._publisher.stream, check_topic(topic), **options)
        return TopicPublisher(self._calls, topic, make, self._publisher.allowed(options.get("timeout")))

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Ack and publish as one: `async with bus.transaction() as tx: tx.ack(message); tx.publish(...)`.

        As the threaded one: at the end of the block all of it is stored, or nothing.
        """
        self._check_open()
        return Transaction(self._calls, self._threaded.transaction(timeout))

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
        done, replies = asyncio.Event(), self._threaded.parts.replies
        await self._calls.run(replies.listen)
        question = replies.open(lambda: self._calls.post(done.set))
        try:
            deadline = time.monotonic() + self._context.config.request_timeout
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
        self, topic: str, handler: Handler | None = None, **options: Unpack[LiveOptions[Message]]
    ) -> Subscription: ...

    @overload
    def subscribe(
        self, topic: str, handler: Handler | None = None, *, name: str, **options: Unpack[DurableOptions[Message]]
    ) -> Consumer: ...

    @overload
    def subscribe(
        self, topic: str, handler: Handler | None = None, *, group: str, **options: Unpack[GroupOptions[Message]]
    ) -> Consumer: ...

    def subscribe(self, topic: str, handler: Handler | None = None, **options: Any) -> Subscription | Consumer:
        """Receive all that is published to the topic; once the result has been awaited, nothing is missed any more.

        The options are those of the threaded bus (`help(zkms.Bus.subscribe)`): of all kinds `where`, `limit`,
        `max_bytes`, `overflow`, `max_age`, `ack`, `type`, `codec`, `prefetch`, `on_gap`, `on_error`; `name` with
        `takeover`, or `group` with `partitions` and `ttr`, and for both `max_attempts` and `backoff`.

        `handler`, `on_gap` and `on_error` may be coroutine functions. They run on the event loop, one message after the
        other, and a message is acked when the handler has returned.
        """
        self._check_open()
        check_options("subscribe", options, SubscribeOptions.__struct_fields__)
        asked = AwaitedOptions(topic=topic, handler=handler, **options)
        asked.check_callbacks()
        name = asked.name or asked.group
        former = self._subscriptions.get((topic, name))
        if former is not None and not former.closed:
            raise AlreadySubscribed(topic, name)
        after = None if former is None else former.busy
        self._subscriptions = {key: sub for key, sub in self._subscriptions.items() if not sub.over}
        subscription: Subscription | Consumer
        threaded = self._threaded.parts.subscriptions
        if asked.kind == "live":
            subscription = Subscription(self._calls, asked, threaded.subscribe_live, after=after)
        else:
            subscription = Consumer(self._calls, asked, threaded.subscribe_durable, after=after)
        self._subscriptions[topic, name] = subscription
        return subscription

    async def create_group(self, topic: str, group: str, **options: Unpack[GroupQueueOptions]) -> bool:
        """Declare a group before it has any member: what is published from now on waits for them.

        As the threaded one, with `partitions`, `where`, `limit`, `max_bytes`, `overflow` and `max_age`.
        """
        self._check_open()
        return await self._calls.run(self._threaded.create_group, topic, group, **options)

    # -- discovery and dead letters ------------------------------------------------------------------------------

    topics = awaited(ThreadedBus.topics)
    subscriptions = awaited(ThreadedBus.subscriptions)
    queues = awaited(ThreadedBus.queues)
    delayed = awaited(ThreadedBus.delayed)
    clients = awaited(ThreadedBus.clients)
    groups = awaited(ThreadedBus.groups)
    dead_letters = awaited(ThreadedBus.dead_letters)
    requeue = awaited(ThreadedBus.requeue)
    purge_dead = awaited(ThreadedBus.purge_dead)

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

        observers.append(await self._calls.run(self._threaded.watch, functools.partial(self._calls.post, tell)))
        return observers[0]


class AwaitedOptions(SubscribeOptions, frozen=True, kw_only=True, eq=False):
    """The arguments of subscribe(), for messages of zkms.aio."""

    make = Message
