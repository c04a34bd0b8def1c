"""The bus, which zkms.connect() returns. A façade: each method calls the room that does the work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

import msgspec

from zkms.admin.dead_letters import DEFAULT_LIMIT as MOST_LETTERS
from zkms.admin.dead_letters import DeadLetterInfo, DeadLetters
from zkms.admin.delayed import DelayedInfo, delayed_by_topic
from zkms.admin.discovery import ClientInfo, Discovery, QueueInfo, SubscriptionInfo, TopicInfo
from zkms.admin.groups import GroupInfo, Groups
from zkms.admin.observer import Observer, OnChange, observe
from zkms.checks import Codec, check_options, check_positive, check_seconds
from zkms.consume.consumer import Consumer
from zkms.consume.subscriptions import Subscriptions
from zkms.context import Context
from zkms.deliver.acks import Acks
from zkms.deliver.live import Handler, Subscription
from zkms.message.message import Message
from zkms.names import check_topic
from zkms.publish.audience import Audience
from zkms.publish.options import ManyOptions, PublishOptions, StreamOptions
from zkms.publish.pipeline import Pipeline
from zkms.publish.publisher import Publisher
from zkms.publish.receipt import Receipt
from zkms.publish.topic_publisher import TopicPublisher
from zkms.request_reply import Answers, RequestReply
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.subscribe.live_registration import LiveRegistration
from zkms.subscribe.options import DurableOptions, GroupOptions, GroupQueueOptions, LiveOptions, SubscribeOptions
from zkms.transaction import Transaction
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session

if TYPE_CHECKING:
    from types import TracebackType

    from zkms_cleaner import Cleaner

_PUBLISH_OPTIONS = frozenset(PublishOptions.__annotations__)


class Parts(msgspec.Struct, frozen=True, eq=False):
    """The objects that a bus consists of. Internal: for zkms itself, its tests and its verification."""

    context: Context
    acks: Acks
    live_registration: LiveRegistration
    durable_registration: DurableRegistration
    subscriptions: Subscriptions
    audience: Audience
    pipeline: Pipeline
    publisher: Publisher
    replies: RequestReply
    cleaner: Cleaner | None
    """Our own candidate in the cleaners' election; started if our rights permit."""

    @property
    def session(self) -> Session:
        """The connection to ZooKeeper."""
        return self.context.session

    @property
    def tree(self) -> Tree:
        """The paths below our root."""
        return self.context.tree


class Bus:
    """A connection to the topics below one root. Thread-safe."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        """Internal: the objects that it consists of."""
        self._context = context = parts.context
        self._check_open = context.check_open
        self._subscriptions = parts.subscriptions
        self._publisher = parts.publisher
        self._discovery = Discovery(context.session, context.tree)
        self._groups = Groups(context.session, context.tree)
        self._dead_letters = DeadLetters(context.session, context.tree, context.trail)

    def __repr__(self) -> str:
        config = self._context.config
        return f"<Bus {self.client_id} on {config.hosts}{config.root} ({self._context.session.state.value})>"

    @property
    def client_id(self) -> str:
        """The name of this process in ZooKeeper."""
        return self._context.client_id

    # -- life ----------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> None:
        """Finish what is in flight, unsubscribe, and end the session. Safe to call again.

        It closes in this order: caches (they stop serving, and send their invalidations), publishes in flight,
        subscriptions (no new messages, handlers finish, acks are sent, queues are removed), the producer's nodes, the
        cleaner's candidacy, the session with its ephemerals, the trail. All this has `timeout` seconds; a ZooKeeper
        that does not answer may take its request timeout in addition.
        """
        self._context.close(check_seconds("timeout", timeout))

    def __enter__(self) -> Bus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- publish -------------------------------------------------------------------------------------------------

    def publish(
        self, topic: str, data: Any, *, timeout: float | None = None, **options: Unpack[PublishOptions]
    ) -> Receipt:
        """Store a message in the queue of every subscription of the topic, or in none; return when it is stored.

        A group handles messages of one `key` in order. Messages of a higher `priority` (0 to 9) are delivered first.
        After `ttl` seconds a message is not delivered any more. An `id` that was stored within the last ten minutes
        raises `DuplicateMessage`, and nothing is stored.

        With a `delay` in seconds, or a time `at` (seconds since the epoch, or a datetime with a time zone), it waits in
        ZooKeeper and is published when it is due, to the subscriptions of that moment; if there are none, it becomes a
        dead letter. This needs a running cleaner, else it raises `NoCleaner`.

        `headers` travel with the message, and `where=` of a subscription selects by them. With `to_self=False` the live
        subscription of this bus does not get it. `codec` encodes the data, instead of the codec of the bus.

        Raises `NoSubscribers` unless `if_nobody="drop"`, `QueueFull`, `MessageTooLarge`, `InvalidMessage`, or
        `ConnectionLost`, whose `outcome_unknown` says whether the message may have been stored nevertheless.
        """
        if not options.keys() <= _PUBLISH_OPTIONS:
            check_options("publish", options, _PUBLISH_OPTIONS)
        return self._publisher.publish(topic, data, timeout=timeout, **options)

    def publish_many(
        self, topic: str, messages: Iterable[Any], *, timeout: float | None = None, **options: Unpack[ManyOptions]
    ) -> list[Receipt]:
        """Publish many messages fast: packed into frames, several in flight. Return a receipt for each, in order.

        Messages of one frame share a receipt. `key` and `id` compute a message's key and id from its data; the receipt
        of one whose id was stored before says so in `duplicate_of`. `timeout` is for each frame. If one fails, no more
        are sent; the error says in its notes how many were stored. `headers`, `priority`, `delay`, `at`, `ttl`,
        `to_self`, `if_nobody` and `codec` are for all of them, as in publish().
        """
        check_options("publish_many", options, ManyOptions.__annotations__)
        return self._publisher.publish_many(topic, messages, timeout=timeout, **options)

    def publisher(self, topic: str, **options: Unpack[StreamOptions]) -> TopicPublisher:
        """Publish a stream of messages to one topic; use it in a `with` block, or close() it.

        Its send() returns at once, and packs messages that come within `linger` seconds; `send(...).result()` waits
        until the message is stored. At most `max_in_flight` messages are in flight: beyond that, send() waits.
        `timeout` is for each frame, and for the wait for room. `to_self`, `if_nobody` and `codec` are as in publish().
        """
        check_options("publisher", options, StreamOptions.__annotations__)
        return self._publisher.stream(topic, **options)

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Ack and publish in one transaction: `with bus.transaction() as tx: tx.ack(message); tx.publish(...)`.

        At the end of the block everything is stored within `timeout` seconds, or nothing: so a message is consumed
        exactly once, even if this process dies in the middle. A block that raises stores nothing.
        """
        self._check_open()
        return Transaction(self._context, self._publisher, self._publisher.allowed(timeout))

    def request(
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
        """Send a request to every subscription of the topic, and gather the answers; one member of a group answers.

        Returns when all subscriptions have answered by message.reply(), or `timeout` seconds after the request was
        stored; `answers.missing` are those that did not. A live handler that raises answers with its error. Later
        answers are dropped. A handler of this process answers only if it runs on another thread than the caller's.

        Raises like publish(): `NoSubscribers` if the topic has no subscriptions.
        """
        self._check_open()
        timeout = check_positive("timeout", timeout)
        return self.parts.replies.ask(topic, data, timeout, key=key, headers=headers, to_self=to_self, codec=codec)

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
        """Receive what is published to the topic from now on; when this returns, nothing is missed any more.

        Alone: a live subscription, which goes with this process. `name`: a durable one, kept while nobody reads it, and
        read by one process at a time (`takeover=True` takes it from another). `group`: its members, in any number of
        processes, share the messages of its `partitions` (8); those of one key are handled in order. The topic may be a
        pattern (`users.*`, `users.>`); `where={"region": "eu"}` takes only messages with such headers.

        With `handler`, it is called for each message on a thread of the subscription's own; without, use get(), fetch()
        or iterate. A handler acks by returning. Where one raises, or a message of a group is not acked within `ttr`
        seconds (30), it is delivered again after `backoff` seconds (1), doubled each time; after `max_attempts` (3) it
        is a dead letter. Live messages are delivered once. `ack="manual"` leaves the acknowledgement to message.ack(),
        which get() and fetch() of durable subscriptions and groups do anyway; `ack="auto"` acks on delivery.

        `type` decodes into and validates against a type (msgspec Struct, dataclass, ...), `codec` replaces that of the
        bus. Up to `prefetch` messages (10,000) are read ahead. Past `limit` messages (100,000), `max_bytes` bytes or
        50,000 entries that wait (in each partition), `overflow` says what happens: "gap", live's default: publishers
        skip the queue until it is drained, and `on_gap(gap)` is called; "reject": publishers get `QueueFull`;
        "drop-oldest": those go, and `on_gap` is called. `max_age` is how many seconds a message waits at the most.

        `on_error(error, message)` hears of handlers that raised and of what could not be decoded (`message` is None
        then).
        """
        self._check_open()
        check_options("subscribe", options, SubscribeOptions.__struct_fields__)
        return self._subscriptions.subscribe(SubscribeOptions(topic=topic, handler=handler, **options))

    def create_group(self, topic: str, group: str, **options: Unpack[GroupQueueOptions]) -> bool:
        """Declare a group before it has any member: what is published from now on waits for them.

        The options are those of subscribe() that say what is stored: `partitions` (8), `where`, `limit`, `max_bytes`,
        `overflow` and `max_age`. False if it is there already; `GroupMismatch` if that one has other partitions.
        """
        self._check_open()
        return self._subscriptions.create_group(SubscribeOptions.of_group(topic, group, **options))

    # -- discovery -----------------------------------------------------------------------------------------------

    def topics(self) -> list[TopicInfo]:
        """All topics, with the number of their subscriptions."""
        return self._discovery.topics()

    def subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """The subscriptions of a topic."""
        return self._discovery.subscriptions(check_topic(topic))

    def queues(self, *, count: bool = False) -> list[QueueInfo]:
        """All queues with their number of entries; with `count` also messages by state, and the age of the oldest."""
        queues = self._discovery.queues()
        return self._groups.count(queues) if count else queues

    def delayed(self) -> list[DelayedInfo]:
        """The number of delayed messages of each topic, and when the next one is due."""
        return delayed_by_topic(self._context.session, self._context.tree)

    def clients(self) -> list[ClientInfo]:
        """The connected processes."""
        return self._discovery.clients()

    def groups(self, topic: str | None = None, name: str | None = None) -> list[GroupInfo]:
        """Durable subscriptions and groups: their members, the owners of their partitions, and their lag."""
        return self._groups.look(topic, name)

    def watch(self, callback: OnChange) -> Observer:
        """Call `callback(change)` when topics, subscriptions, members or clients are added or removed; close() it.

        The observer calls it on its own thread, one change after the other.
        """
        self._check_open()
        return observe(self._context.session, self._context.tree, callback, self._context.lifetime.before_close)

    # -- dead letters --------------------------------------------------------------------------------------------

    def dead_letters(
        self, topic: str | None = None, subscription: str | None = None, *, limit: int = MOST_LETTERS
    ) -> list[DeadLetterInfo]:
        """Messages that could not be handled, and entries of queues that are no messages; the oldest first."""
        return self._dead_letters.look(topic, subscription, limit)

    def requeue(self, letter: DeadLetterInfo) -> None:
        """Deliver a dead letter again, as the last entry of its partition and with all its attempts.

        `NotSubscribed` if its subscription does not exist any more; `NodeMissing` if another client has requeued or
        purged it.
        """
        self._dead_letters.requeue(letter)

    def purge_dead(self, *letters: DeadLetterInfo, topic: str | None = None, subscription: str | None = None) -> int:
        """Delete these dead letters, or all of a topic and a subscription; return how many they were."""
        return self._dead_letters.purge_dead(letters, topic, subscription)
