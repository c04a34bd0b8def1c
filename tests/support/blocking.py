"""zkms.aio behind the interface of the threaded bus, so that one test can run on both.

An event loop runs on a thread; every call waits for its coroutine there. Handlers and callbacks of tests may block, so
each subscription runs its own on a thread, and awaits it: to zkms.aio they are asynchronous ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import zkms.aio
from zkms import Message
from zkms.consume.entry_state import EntryState

LONGEST = 60.0
"""Seconds that a call may take: a test that hangs should say where."""


class EventLoop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="event-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Wait for a coroutine; not on the loop itself."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LONGEST)

    def close(self) -> None:
        """Let what is left end, then the loop."""

        async def cancel() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


async def finished(awaitable: Any) -> Any:
    """Anything that can be awaited, as a coroutine."""
    return await awaitable


async def in_a_thread(iterator: Iterator[Any]) -> AsyncIterator[Any]:
    """What an iterator gives that may block."""
    end = object()
    while (item := await asyncio.to_thread(next, iterator, end)) is not end:
        yield item


class BlockingReceipt:
    """A receipt to wait for in a thread."""

    def __init__(self, loop: EventLoop, receipt: zkms.aio.Receipt) -> None:
        self._loop = loop
        self._receipt = receipt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._receipt, name)

    def __repr__(self) -> str:
        return repr(self._receipt)

    def wait(self, timeout: float | None = None) -> BlockingReceipt:
        """Wait, and return itself."""
        self._loop.run(self._receipt.wait(timeout))
        return self


class BlockingSubscription:
    """A subscription to pull from in a thread."""

    def __init__(self, loop: EventLoop, subscription: Any) -> None:
        self._loop = loop
        self._subscription = subscription
        loop.run(finished(subscription))

    def __getattr__(self, name: str) -> Any:
        mine = self.__dict__["_subscription"]
        return getattr(mine, name) if hasattr(mine, name) else getattr(mine._source, name)

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message."""
        return self._loop.run(self._subscription.get(timeout))

    def fetch(self, count: int, timeout: float | None = None) -> list[Message]:
        """Some messages."""
        return self._loop.run(self._subscription.fetch(count, timeout))

    def unsubscribe(self, timeout: float = 5.0) -> None:
        """Give it up."""
        self._loop.run(self._subscription.unsubscribe(timeout))

    close = unsubscribe

    def __enter__(self) -> BlockingSubscription:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.unsubscribe()

    def __iter__(self) -> Iterator[Message]:
        iterator = aiter(self._subscription)
        while True:
            try:
                message = self._loop.run(finished(anext(iterator)))
            except StopAsyncIteration:
                return
            yield message


class BlockingMessage:
    """A message to ack in a thread."""

    def __init__(self, loop: EventLoop, message: zkms.aio.Message) -> None:
        self._loop = loop
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_message"], name)

    def __repr__(self) -> str:
        return repr(self._message)

    def ack(self) -> None:
        """Done with."""
        self._loop.run(finished(self._message.ack()))

    def nak(self, delay: float | None = None) -> None:
        """Not done."""
        self._loop.run(finished(self._message.nak(delay)))

    def touch(self) -> None:
        """More time."""
        self._loop.run(finished(self._message.touch()))

    def reply(self, data: Any = None, **options: Any) -> None:
        """Answer."""
        self._loop.run(finished(self._message.reply(data, **options)))

    def reject(self, reason: str) -> None:
        """Never."""
        self._loop.run(finished(self._message.reject(reason)))


class BlockingConsumer(BlockingSubscription):
    """A durable subscription, or a member of a group, to pull from in a thread."""

    def get(self, timeout: float | None = None) -> Any:
        """The next message."""
        message = super().get(timeout)
        return None if message is None else BlockingMessage(self._loop, message)

    def fetch(self, count: int, timeout: float | None = None) -> Any:
        """Some messages."""
        return [BlockingMessage(self._loop, message) for message in super().fetch(count, timeout)]

    def ack(self, messages: Any) -> None:
        """Ack many."""
        self._loop.run(finished(self._subscription.ack([message._message for message in messages])))

    def close(self, timeout: float = 5.0) -> None:
        """Keep the place."""
        self._loop.run(self._subscription.close(timeout))

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        for message in super().__iter__():
            yield BlockingMessage(self._loop, message)


class BlockingSent:
    """One message of a stream."""

    def __init__(self, loop: EventLoop, sent: zkms.aio.Sent) -> None:
        self._loop = loop
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_sent"]._threaded, name)

    def result(self, timeout: float | None = None) -> BlockingReceipt:
        """Wait for its receipt."""
        return BlockingReceipt(self._loop, self._loop.run(self._sent.result(timeout)))


class BlockingPublisher:
    """A stream to send to from threads."""

    def __init__(self, loop: EventLoop, publisher: zkms.aio.TopicPublisher) -> None:
        self._loop = loop
        self._publisher = publisher

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_publisher"]._threaded, name)

    def send(self, data: Any, **options: Any) -> BlockingSent:
        """Send a message."""
        return BlockingSent(self._loop, self._loop.run(self._publisher.send(data, **options)))

    def flush(self, timeout: float | None = None) -> None:
        """Wait for what was sent."""
        self._loop.run(self._publisher.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Close it."""
        self._loop.run(self._publisher.close(timeout))

    def __enter__(self) -> BlockingPublisher:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class BlockingBus:
    """A bus to use in threads; what is not here is found on the threaded bus below."""

    def __init__(self, loop: EventLoop, **options: Any) -> None:
        self._loop = loop
        self._bus: zkms.aio.Bus = loop.run(finished(zkms.aio.connect(**options)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_bus"].threaded, name)

    def __enter__(self) -> BlockingBus:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self, timeout: float = 5.0) -> None:
        """Close it; the loop is somebody else's."""
        self._loop.run(self._bus.close(timeout))

    def publish(self, topic: str, data: Any, **options: Any) -> BlockingReceipt:
        """Publish one message."""
        return BlockingReceipt(self._loop, self._loop.run(self._bus.publish(topic, data, **options)))

    def publish_many(self, topic: str, messages: Any, **options: Any) -> list[BlockingReceipt]:
        """Publish several, of a generator's asynchronously; receipts that are shared stay so."""
        messages = in_a_thread(messages) if isinstance(messages, Iterator) else messages
        receipts = self._loop.run(self._bus.publish_many(topic, messages, **options))
        shared = {id(receipt): BlockingReceipt(self._loop, receipt) for receipt in receipts}
        return [shared[id(receipt)] for receipt in receipts]

    def request(self, topic: str, data: Any, timeout: float = 5.0, **options: Any) -> Any:
        """Ask."""
        return self._loop.run(self._bus.request(topic, data, timeout, **options))

    def publisher(self, topic: str, **options: Any) -> BlockingPublisher:
        """Publish a stream."""

        async def opened() -> zkms.aio.TopicPublisher:
            return await self._bus.publisher(topic, **options)

        return BlockingPublisher(self._loop, self._loop.run(opened()))

    def subscribe(self, topic: str, handler: Any = None, **options: Any) -> BlockingSubscription:
        """Subscribe; handler and callbacks run on a thread."""
        pool = ThreadPoolExecutor(1, f"handler-of-{topic}")

        def asynchronous(callback: Any) -> Any:
            if not callable(callback):
                return callback

            async def call(*args: object) -> None:
                await self._loop.loop.run_in_executor(pool, callback, *map(self._blocking, args))

            return call

        callbacks = {name: asynchronous(options.pop(name)) for name in ("on_gap", "on_error") if name in options}

        async def subscribe() -> zkms.aio.Subscription | zkms.aio.Consumer:
            return await self._bus.subscribe(topic, asynchronous(handler), **callbacks, **options)

        subscription = self._loop.run(subscribe())
        if isinstance(subscription, zkms.aio.Consumer):
            return BlockingConsumer(self._loop, subscription)
        return BlockingSubscription(self._loop, subscription)

    def _blocking(self, argument: object) -> object:
        """A message that a thread gets, so that its acks wait there; those of live ones do not wait."""
        held = isinstance(argument, zkms.aio.Message) and isinstance(argument.entry, EntryState)
        return BlockingMessage(self._loop, argument) if held else argument

    def create_group(self, topic: str, group: str, **options: Any) -> Any:
        """Declare a group."""
        return self._loop.run(self._bus.create_group(topic, group, **options))

    def _call(self, method: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> Any:
        return self._loop.run(method(*args))

    def topics(self) -> Any:
        """All topics."""
        return self._call(self._bus.topics)

    def subscriptions(self, topic: str) -> Any:
        """Who subscribes."""
        return self._call(self._bus.subscriptions, topic)

    def queues(self) -> Any:
        """All queues."""
        return self._call(self._bus.queues)

    def clients(self) -> Any:
        """All clients."""
        return self._call(self._bus.clients)


class BlockingCache:
    """A cache to use in threads; loaders run on a thread each. What is not here is found on the threaded cache."""

    def __init__(self, loop: EventLoop, bus: BlockingBus, name: str, *, loader: Any = None, **options: Any) -> None:
        self._loop = loop

        async def opened() -> zkms.aio.Cache:
            return await zkms.aio.Cache(bus._bus, name, loader=in_thread(loader), **options)

        self._own: zkms.aio.Cache = loop.run(opened())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_own"].threaded, name)

    def __contains__(self, key: Any) -> bool:
        return key in self._own

    def __len__(self) -> int:
        return len(self._own)

    def __getitem__(self, key: Any) -> Any:
        missing = object()
        value = self.get(key, default=missing)
        if value is missing:
            raise KeyError(key)
        return value

    def get(self, key: Any, loader: Any = None, **options: Any) -> Any:
        """The value, loaded on a thread if need be."""
        return self._loop.run(self._own.get(key, in_thread(loader), **options))

    def put(self, key: Any, value: Any, **options: Any) -> Any:
        """Keep it here, drop it elsewhere."""
        return self._loop.run(self._own.put(key, value, **options))

    def invalidate(self, key: Any, wait: float | None = None) -> Any:
        """Drop a key."""
        return self._loop.run(self._own.invalidate(key, wait))

    def invalidate_many(self, keys: Any, wait: float | None = None) -> Any:
        """Drop some keys."""
        return self._loop.run(self._own.invalidate_many(keys, wait))

    def invalidate_tag(self, tag: Any, wait: float | None = None) -> Any:
        """Drop what has a tag."""
        return self._loop.run(self._own.invalidate_tag(tag, wait))

    def clear(self, everywhere: bool = True, wait: float | None = None) -> Any:
        """Drop everything."""
        return self._loop.run(self._own.clear(everywhere, wait))

    def close(self, timeout: float = 5.0) -> None:
        """Close it."""
        self._loop.run(self._own.close(timeout))


def in_thread(loader: Any) -> Any:
    """A loader that may block, as one that is awaited."""
    return partial(asyncio.to_thread, loader) if callable(loader) else loader
