"""Every error that zkms raises, and the one place where kazoo's become ours.

ZkmsError
├── InvalidArgument (ValueError)   what the caller gave cannot work; nothing was sent
│   ├── InvalidTopic
│   └── InvalidMessage             data that no codec can encode
├── MessageTooLarge                a message that does not fit into one transaction
├── NoSubscribers                  nobody would receive it; nothing was stored
├── AlreadySubscribed / NotSubscribed
├── SubscriptionInUse              another process reads this durable subscription
├── GroupMismatch                  a subscription of that name is there, with other properties
├── NoCleaner                      nobody would move a delayed message when it is due; nothing was stored
├── QueueFull                      a subscription that rejects what has no room; nothing was stored anywhere
├── DuplicateMessage               a message of this id was stored before
├── AlreadyAcked
├── LostOwnership                  another process has taken over what the message was read from
├── CannotDecode                   a queue entry that is not ours, damaged, or of another type
├── Timeout (TimeoutError)         not done in time
├── Closed                         the bus or subscription was closed
├── UsedAfterFork                  a bus crossed a fork(); connect in the child
├── UsedInAnotherLoop              an asyncio bus left its event loop; connect in the running one
├── ProducerFenced                 another process took over this producer name
├── NewerLayout                    the tree was written by a newer zkms
└── StoreError                     ZooKeeper said no, or nothing
    ├── ConnectionLost             no answer: `outcome_unknown` says whether it may have been carried out
    │   └── SessionExpired
    ├── Unauthorised
    ├── NodeMissing / NodeExists / BadVersion / NotEmpty
    ├── QuotaExceeded
    ├── Unsupported                this server is too old for the request
    └── TransactionFailed          `.index` and `.cause`: which operation failed and why
"""

from __future__ import annotations

from typing import Any

from kazoo import exceptions as kz
from kazoo.handlers.threading import KazooTimeoutError


class ZkmsError(Exception):
    """Everything that zkms raises on purpose."""


class InvalidArgument(ZkmsError, ValueError):
    """What the caller gave cannot work; nothing was sent."""


class InvalidTopic(InvalidArgument):
    """A topic name that cannot be a znode name."""

    def __init__(self, topic: object, reason: str) -> None:
        super().__init__(f"invalid topic {topic!r:.80}: {reason}")
        self.topic = topic
        self.reason = reason


class InvalidMessage(InvalidArgument):
    """Data, key or headers that cannot be encoded."""


class MessageTooLarge(ZkmsError):
    """A message, or its copies in one transaction, over ZooKeeper's limit; nothing was sent."""

    def __init__(self, topic: str, size: int, limit: int, subscriptions: int) -> None:
        super().__init__(
            f"a message of {size:,} bytes to {subscriptions} subscription(s) of {topic!r} does not fit into one "
            f"transaction: at most {limit:,} bytes; send a reference to the data instead"
        )
        self.topic = topic
        self.size = size
        self.limit = limit
        self.subscriptions = subscriptions


class NoSubscribers(ZkmsError):
    """Nobody subscribes to the topic, so nothing was stored."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"nobody subscribes to {topic!r}; pass if_nobody='drop' if that is fine")
        self.topic = topic


class AlreadySubscribed(ZkmsError):
    """This bus has that subscription already."""

    def __init__(self, topic: str, name: str | None = None) -> None:
        what = f"{topic!r}" if name is None else f"{topic!r} as {name!r}"
        end = "unsubscribe" if name is None else "close"
        super().__init__(f"this bus subscribes to {what} already; use that subscription, or {end}() it first")
        self.topic = topic
        self.name = name


class NotSubscribed(ZkmsError):
    """The subscription has been given up."""

    def __init__(self, topic: str, why: str | None = None) -> None:
        super().__init__(f"not subscribed to {topic!r} any more" if why is None else f"{topic!r}: {why}")
        self.topic = topic


class AlreadyAcked(ZkmsError):
    """The message was acknowledged before."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"message {message_id} is acknowledged already")
        self.message_id = message_id


class LostOwnership(ZkmsError):
    """The message is not ours any more: it was, or will be, given to somebody else, and must not be acked here.

    `outcome_unknown`: our ack was on its way when the connection broke, and may have been stored before that.
    """

    def __init__(self, message_id: str, reason: str, *, outcome_unknown: bool = False) -> None:
        again = "whoever reads it now gets it again"
        then = "whether it was acked before that cannot be told" if outcome_unknown else again
        super().__init__(f"message {message_id} is not ours any more: {reason}; {then}")
        self.message_id = message_id
        self.reason = reason
        self.outcome_unknown = outcome_unknown


class SubscriptionInUse(ZkmsError):
    """A durable subscription is read by one process at a time, and another one has it."""

    def __init__(self, topic: str, name: str, owner: str) -> None:
        super().__init__(
            f"{name!r} of {topic!r} is being read by client {owner!r}; wait until that one closes, or pass "
            f"takeover=True"
        )
        self.topic = topic
        self.name = name
        self.owner = owner


class GroupMismatch(ZkmsError):
    """A durable subscription or group of that name is there already, with other properties."""

    def __init__(self, topic: str, name: str, difference: str) -> None:
        super().__init__(
            f"{name!r} of {topic!r} is there already, {difference}; use it as it is, take another name, or remove it"
        )
        self.topic = topic
        self.name = name


class QueueFull(ZkmsError):
    """A subscription has no room and rejects what is published; nothing was stored anywhere."""

    def __init__(self, topic: str, subscription: str, what: str) -> None:
        super().__init__(
            f"{subscription!r} of {topic!r} has {what} waiting and takes no more; nothing was stored: publish again "
            f"when its readers have caught up"
        )
        self.topic = topic
        self.subscription = subscription


class NoCleaner(ZkmsError):
    """A delayed message is moved by the leader of the cleaners, and there is none; nothing was stored."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"a delayed message to {topic!r} would wait for ever: nobody stands for the cleaners' election; connect "
            f"somewhere with cleaner=True, which is the default, or run zkms-cleaner"
        )
        self.topic = topic


class DuplicateMessage(ZkmsError):
    """A message of this id was stored before, so this one was stored nowhere."""

    def __init__(self, topic: str, message_id: str, original: str) -> None:
        super().__init__(f"{message_id!r} was published to {topic!r} before, as {original}; nothing was stored")
        self.topic = topic
        self.message_id = message_id
        self.original = original


class CannotDecode(ZkmsError):
    """A queue entry or message that cannot be read; it is set aside, the rest flows on."""

    def __init__(self, reason: str, *, path: str | None = None, raw: bytes = b"") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path
        self.raw = raw


class Timeout(ZkmsError, TimeoutError):
    """It was not done in time."""


class Closed(ZkmsError):
    """The bus or subscription is closed."""


class UsedAfterFork(ZkmsError):
    """A bus was made before fork() and used in the child."""

    def __init__(self) -> None:
        super().__init__("this bus belongs to the parent process: call zkms.connect() after fork()")


class UsedInAnotherLoop(ZkmsError):
    """A bus of zkms.aio was opened in one event loop and used in another, or after its loop was closed."""

    def __init__(self, closed: bool) -> None:
        fate = "which is closed" if closed else "which is not the running one"
        super().__init__(f"this bus belongs to an event loop {fate}: call zkms.aio.connect() in the running one")


class ProducerFenced(ZkmsError):
    """Another process took over this producer name."""

    def __init__(self, producer: str, owner: str) -> None:
        super().__init__(f"producer {producer!r} is now used by client {owner!r}; one process at a time may use a name")
        self.producer = producer
        self.owner = owner


class NewerLayout(ZkmsError):
    """The tree was written by a newer zkms."""

    def __init__(self, root: str, found: object, known: int) -> None:
        super().__init__(f"{root} has layout {found!r}, this zkms knows {known}: upgrade zkms, or use another root")


class StoreError(ZkmsError):
    """ZooKeeper refused a request, or did not answer it."""

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class ConnectionLost(StoreError):
    """No answer; `outcome_unknown` tells whether the request may have been carried out."""

    def __init__(self, message: str, *, path: str | None = None, outcome_unknown: bool = True) -> None:
        super().__init__(message, path=path)
        self.outcome_unknown = outcome_unknown


class SessionExpired(ConnectionLost):
    """ZooKeeper gave this session up; a new one is made by itself."""


class Unauthorised(StoreError):
    """The credentials do not allow this."""


class NodeMissing(StoreError):
    """The znode does not exist."""


class NodeExists(StoreError):
    """The znode exists already."""


class BadVersion(StoreError):
    """The znode changed since it was read."""


class NotEmpty(StoreError):
    """The znode has children."""


class QuotaExceeded(StoreError):
    """A quota set on the path by the ZooKeeper administrator."""


class Unsupported(StoreError):
    """This ZooKeeper is too old for the request."""


class TransactionFailed(StoreError):
    """Nothing of the transaction was done: `operations[index]` failed with `cause`."""

    def __init__(self, index: int, cause: StoreError, operation: Any) -> None:
        super().__init__(f"transaction refused at operation {index} ({operation}): {cause}")
        self.index = index
        self.cause = cause
        self.operation = operation


_SIMPLE: dict[type[BaseException], tuple[type[StoreError], str]] = {
    kz.NoNodeError: (NodeMissing, "no such znode"),
    kz.NodeExistsError: (NodeExists, "znode exists already"),
    kz.BadVersionError: (BadVersion, "znode changed meanwhile"),
    kz.NotEmptyError: (NotEmpty, "znode has children"),
    kz.NoAuthError: (Unauthorised, "not allowed by the znode's ACL: check the credentials given as auth="),
    kz.AuthFailedError: (Unauthorised, "ZooKeeper did not accept the credentials"),
    kz.SASLException: (Unauthorised, "SASL authentication failed"),
    kz.SessionClosedRequireSaslError: (Unauthorised, "this ZooKeeper serves nobody without credentials: give auth="),
    kz.UnimplementedError: (Unsupported, "this ZooKeeper does not know the request"),
    kz.QuotaExceededError: (
        QuotaExceeded,
        "a quota of ZooKeeper is used up, so nothing was stored: see 'zkms quota', and what waits in 'zkms queues'",
    ),
    kz.SessionExpiredError: (SessionExpired, "session expired"),
    kz.ConnectionClosedError: (SessionExpired, "connection closed"),
    kz.ConnectionLoss: (ConnectionLost, "connection lost before the answer"),
    kz.ConnectionDropped: (ConnectionLost, "connection dropped"),
    kz.SessionMovedError: (ConnectionLost, "session moved to another server"),
    kz.OperationTimeoutError: (ConnectionLost, "ZooKeeper timed out"),
    kz.RequestTimeoutError: (ConnectionLost, "ZooKeeper timed out"),
    kz.ThrottledOpError: (ConnectionLost, "ZooKeeper is overloaded and threw the request away"),
    kz.UnknownSessionError: (SessionExpired, "ZooKeeper does not know the session"),
    KazooTimeoutError: (ConnectionLost, "no answer in time"),
}


def translate(error: BaseException, path: str | None = None) -> ZkmsError:
    """What an exception of kazoo's is to our callers; ours pass through."""
    if isinstance(error, ZkmsError):
        return error
    for kind in type(error).__mro__:
        known = _SIMPLE.get(kind)
        if known is not None:
            return known[0](known[1], path=path)
    return StoreError(f"{type(error).__name__}: {error}", path=path)
