"""zkms: notifications between the nodes of a service, on the ZooKeeper it already runs.

    import zkms

    with zkms.connect("127.0.0.1:2181") as bus:
        sub = bus.subscribe("users", lambda message: print("drop", message.data))
        bus.publish("users", {"id": 42}).wait(2.0)

`zkms.bus` lists the files in the order of a message's life; `zkms.aio` is the same for asyncio.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from zkms.bus import Bus, connect
from zkms.codec import Codec
from zkms.config import Sasl, Tls
from zkms.discovery import ClientInfo, QueueInfo, SubscriptionInfo, TopicInfo
from zkms.errors import (
    AlreadyAcked,
    AlreadySubscribed,
    BadVersion,
    CannotDecode,
    Closed,
    ConnectionLost,
    InvalidArgument,
    InvalidMessage,
    InvalidTopic,
    MessageTooLarge,
    NewerLayout,
    NodeExists,
    NodeMissing,
    NoSubscribers,
    NotEmpty,
    NotSubscribed,
    ProducerFenced,
    QuotaExceeded,
    SessionExpired,
    StoreError,
    Timeout,
    TransactionFailed,
    Unauthorised,
    Unsupported,
    UsedAfterFork,
    UsedInAnotherLoop,
    ZkmsError,
)
from zkms.inbox import Gap
from zkms.message import Message
from zkms.receipt import Receipt
from zkms.stream import Sent, TopicPublisher
from zkms.subscription import Subscription
from zkms.version import __version__

if _TYPE_CHECKING:
    from zkms import aio as aio

__all__ = [
    "AlreadyAcked",
    "AlreadySubscribed",
    "BadVersion",
    "Bus",
    "CannotDecode",
    "ClientInfo",
    "Closed",
    "Codec",
    "ConnectionLost",
    "Gap",
    "InvalidArgument",
    "InvalidMessage",
    "InvalidTopic",
    "Message",
    "MessageTooLarge",
    "NewerLayout",
    "NoSubscribers",
    "NodeExists",
    "NodeMissing",
    "NotEmpty",
    "NotSubscribed",
    "ProducerFenced",
    "QueueInfo",
    "QuotaExceeded",
    "Receipt",
    "Sasl",
    "Sent",
    "SessionExpired",
    "StoreError",
    "Subscription",
    "SubscriptionInfo",
    "Timeout",
    "Tls",
    "TopicInfo",
    "TopicPublisher",
    "TransactionFailed",
    "Unauthorised",
    "Unsupported",
    "UsedAfterFork",
    "UsedInAnotherLoop",
    "ZkmsError",
    "__version__",
    "aio",
    "connect",
]


def __getattr__(name: str) -> object:
    """Import zkms.aio when it is first used: asyncio is large, and most programs that use threads do without."""
    if name == "aio":
        return _import_module("zkms.aio")
    raise AttributeError(f"module 'zkms' has no attribute {name!r}")
