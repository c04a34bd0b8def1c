"""zkms for asyncio: the same bus, with `await` in front of what waits.

    import zkms

    async with zkms.aio.connect("127.0.0.1:2181") as bus:
        async with bus.subscribe("users") as users:
            await bus.publish("users", {"id": 42})
            async for message in users:
                print("drop", message.data)

It stands on the threaded bus, and adds no thread for a message or a subscription. What would wait runs on a few threads
(`calls`); publishes that are awaited at the same time share transactions (`outbox`); messages are taken from the inbox
on the event loop, which is woken once for many of them (`feeds`). Handlers run on the event loop.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from zkms.aio.bus import Bus
from zkms.aio.connecting import connect
from zkms.aio.consumer import Consumer
from zkms.aio.message import Message
from zkms.aio.publisher import Sent, TopicPublisher
from zkms.aio.receipt import Receipt
from zkms.aio.subscription import Subscription
from zkms.aio.transaction import Transaction

if _TYPE_CHECKING:
    from zkms.aio.cache import Cache

__all__ = [
    "Bus",
    "Cache",
    "Consumer",
    "Message",
    "Receipt",
    "Sent",
    "Subscription",
    "TopicPublisher",
    "Transaction",
    "connect",
]


def __getattr__(name: str) -> object:
    """Import the cache when it is first used: not all have cachetools."""
    if name == "Cache":
        return _import_module("zkms.aio.cache").Cache
    raise AttributeError(f"module 'zkms.aio' has no attribute {name!r}")
