"""zkms: notifications between the nodes of a service, on the ZooKeeper it already runs.

    import zkms

    with zkms.connect("127.0.0.1:2181") as bus:
        sub = bus.subscribe("users", lambda message: print("drop", message.data))
        bus.publish("users", {"id": 42}).wait(2.0)

`zkms/connect.py` lists the files in the order of a message's life; `zkms.aio` is the same for asyncio.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from zkms.admin.dead_letters import DeadLetterInfo
from zkms.admin.delayed import DelayedInfo
from zkms.admin.discovery import ClientInfo, QueueInfo, SubscriptionInfo, TopicInfo
from zkms.admin.groups import GroupInfo, MemberInfo, PartitionInfo
from zkms.admin.observer import Change, Observer
from zkms.bus import Bus
from zkms.checks import Codec
from zkms.connect import connect
from zkms.consume.consumer import Consumer
from zkms.deliver.inbox import Gap
from zkms.deliver.live import Subscription
from zkms.errors import (
    AlreadyAcked,
    AlreadySubscribed,
    BadVersion,
    CannotDecode,
    Closed,
    ConnectionLost,
    DuplicateMessage,
    GroupMismatch,
    InvalidArgument,
    InvalidMessage,
    InvalidTopic,
    LostOwnership,
    MessageTooLarge,
    NewerLayout,
    NoCleaner,
    NodeExists,
    NodeMissing,
    NoSubscribers,
    NotEmpty,
    NotSubscribed,
    ProducerFenced,
    QueueFull,
    QuotaExceeded,
    SessionExpired,
    StoreError,
    SubscriptionInUse,
    Timeout,
    TransactionFailed,
    Unauthorised,
    Unsupported,
    UsedAfterFork,
    UsedInAnotherLoop,
    ZkmsError,
)
from zkms.message.message import Message
from zkms.publish.receipt import Receipt
from zkms.publish.topic_publisher import Sent, TopicPublisher
from zkms.request_reply import Answer, Answers
from zkms.security import Access, Sasl, Tls, identity
from zkms.transaction import Transaction
from zkms.version import __version__

if _TYPE_CHECKING:
    from zkms import aio as aio
    from zkms.cache import Cache

__all__ = [
    "Access",
    "AlreadyAcked",
    "AlreadySubscribed",
    "Answer",
    "Answers",
    "BadVersion",
    "Bus",
    "Cache",
    "CannotDecode",
    "Change",
    "ClientInfo",
    "Closed",
    "Codec",
    "ConnectionLost",
    "Consumer",
    "DeadLetterInfo",
    "DelayedInfo",
    "DuplicateMessage",
    "Gap",
    "GroupInfo",
    "GroupMismatch",
    "InvalidArgument",
    "InvalidMessage",
    "InvalidTopic",
    "LostOwnership",
    "MemberInfo",
    "Message",
    "MessageTooLarge",
    "NewerLayout",
    "NoCleaner",
    "NoSubscribers",
    "NodeExists",
    "NodeMissing",
    "NotEmpty",
    "NotSubscribed",
    "Observer",
    "PartitionInfo",
    "ProducerFenced",
    "QueueFull",
    "QueueInfo",
    "QuotaExceeded",
    "Receipt",
    "Sasl",
    "Sent",
    "SessionExpired",
    "StoreError",
    "Subscription",
    "SubscriptionInUse",
    "SubscriptionInfo",
    "Timeout",
    "Tls",
    "TopicInfo",
    "TopicPublisher",
    "Transaction",
    "TransactionFailed",
    "Unauthorised",
    "Unsupported",
    "UsedAfterFork",
    "UsedInAnotherLoop",
    "ZkmsError",
    "__version__",
    "aio",
    "connect",
    "identity",
]


def __getattr__(name: str) -> _Any:
    """Import zkms.aio and zkms.Cache when they are first used: not all need asyncio, nor have all cachetools."""
    if name == "aio":
        return _import_module("zkms.aio")
    if name == "Cache":
        return _import_module("zkms.cache").Cache
    raise AttributeError(f"module 'zkms' has no attribute {name!r}")
