"""The bus: what zkms.connect() returns. A façade: each method hands over to the room that does the work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, overload

from zkms.admin.dead_letters import DEFAULT_LIMIT as MOST_LETTERS
from zkms.admin.dead_letters import DeadLetterInfo, DeadLetters
from zkms.admin.delayed import DelayedInfo, delayed_by_topic
from zkms.admin.discovery import ClientInfo, Discovery, QueueInfo, SubscriptionInfo, TopicInfo
from zkms.admin.groups import GroupInfo, Groups
from zkms.admin.observer import Observer, OnChange, observe
from zkms.checks import Codec, check_codec, check_positive, check_seconds
from zkms.consume.consumer import Consumer
from zkms.consume.subscriptions import Subscriptions
from zkms.context import Context
from zkms.deliver.acks import Acks
from zkms.deliver.live import AckMode, Handler, OnError, OnGap, Subscription
from zkms.errors import (
    DuplicateMessage,
    InvalidArgument,
    ZkmsError,
)
from zkms.message.encode import pack
from zkms.message.frame import Packed
from zkms.names import check_topic
from zkms.publish.audience import Audience
from zkms.publish.batching import Batching
from zkms.publish.budget import frame_budget
from zkms.publish.delayed import FRAME_BYTES, FRAME_MESSAGES, due_at
from zkms.publish.many import publish_all, result
from zkms.publish.pipeline import Pipeline
from zkms.publish.receipt import Receipt
from zkms.publish.shipment import IfNobody, Shipment
from zkms.publish.topic_publisher import TopicPublisher
from zkms.request_reply import Answers, RequestReply
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.subscribe.live_registration import LiveRegistration
from zkms.subscribe.options import (
    DEFAULT_LIMIT,
    DEFAULT_PARTITIONS,
    Overflow,
    SubscribeOptions,
    check_target,
)
from zkms.transaction import Transaction
from zkms.tree.paths import Tree
from zkms.tree.records import DEFAULT_BYTES
from zkms.zookeeper.session import Session

if TYPE_CHECKING:
    from types import TracebackType

    from zkms_cleaner import Cleaner

log = logging.getLogger("zkms")


class _Options(TypedDict):
    without: str | None
    drop: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """What a bus is made of. Internal: for zkms itself, its tests and its verification."""

    context: Context
    acks: Acks
    live_registration: LiveRegistration
    durable_registration: DurableRegistration
    subscriptions: Subscriptions
    audience: Audience
    pipeline: Pipeline
    cleaner: Cleaner | None
    """Our own candidate for the cleaners' lead; started if our rights permit."""

    @property
    def session(self) -> Session:
        """The one way to ZooKeeper."""
        return self.context.session

    @property
    def tree(self) -> Tree:
        """The paths below our root."""
        return self.context.tree


class Bus:
    """A connection to the topics below one root. Thread-safe."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        """Internal."""
        self._context = context = parts.context
        self._check_open = context.check_open
        self._subscriptions = parts.subscriptions
        self._membership = parts.audience
        self._publisher = parts.pipeline
        self._batching = Batching(parts.pipeline)
        self._streams: set[TopicPublisher] = set()
        self.replies = RequestReply(
            context, parts.subscriptions.subscribe, packed=self.packed, send=self._send, publish=self.publish
        )
        """Internal: questions of ours, and answers to those of others."""
        parts.subscriptions.replies = self.replies
        self._discovery = Discovery(context.session, context.tree)
        self._groups = Groups(context.session, context.tree)
        self._letters = DeadLetters(context.session, context.tree, context.trail)

    def __repr__(self) -> str:
        config = self._context.config
        return f"<Bus {self.client_id} on {config.hosts}{config.root} ({self._context.session.state.value})>"

    @property
    def client_id(self) -> str:
        """The name that this process has in ZooKeeper."""
        return self._context.client_id

    # -- life ----------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> None:
        """Finish what is in hand, unsubscribe, and end the session. Safe to call again.

        In this order: caches (they serve nothing more, and send what waits), publishes in flight, subscriptions (no new
        messages, handlers finish, acks are sent, queues are removed), the producer's nodes, the cleaner's candidacy,
        the session with its ephemerals, the trail. What is in hand has `timeout` seconds altogether; a ZooKeeper that
        does not answer may take its request time-out besides.
        """
        self._context.close(check_seconds("timeout", timeout))

    def close_publishers(self, timeout: float) -> None:
        """Internal: send what publishers still have, or give it up after so many seconds."""
        deadline = time.monotonic() + timeout
        for stream in list(self._streams):
            try:
                stream.close(max(0.0, deadline - time.monotonic()))
            except ZkmsError as error:
                log.warning("%s", error)
        self._publisher.close(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Bus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- publish -------------------------------------------------------------------------------------------------

    def publish(
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

        Messages of one `key` are handled in order by a group. Those of a higher `priority` (0 to 9) come first. After
        `ttl` seconds it is not delivered any more. An `id` that was given before, within ten minutes, makes it a
        `DuplicateMessage`, stored nowhere.

        With a `delay` in seconds, or `at` a moment (seconds since the epoch, or a datetime with a time zone), it waits
        in ZooKeeper and is published then: to those who subscribe then, or else it is a dead letter. Somebody has to
        stand for the cleaners' election, or this is `NoCleaner`.

        Raises `NoSubscribers` unless `if_nobody="drop"`, `QueueFull`, `MessageTooLarge`, `InvalidMessage`, or
        `ConnectionLost`, whose `outcome_unknown` says whether it may have been stored all the same.
        """
        due = due_at(delay, at, ttl, to_self=to_self)
        packed = self.packed(topic, data, key, headers, id, codec, priority=priority, ttl=ttl)
        deadline = time.monotonic() + self._allowed(timeout)
        options = self.options(topic, to_self, if_nobody)
        if due is None:
            _, most = self._frame_budget(topic, deadline)
            future, place = self._batching.send(topic, packed, most=most, deadline=deadline, **options)
        else:
            future, place = self._send(topic, [packed], to_self, if_nobody, deadline, due), 0
        receipt = result(future, deadline).at(place)
        if id is not None and receipt.duplicate_of is not None:
            raise DuplicateMessage(topic, id, receipt.duplicate_of)
        return receipt

    def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
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

        Messages that travelled together share a receipt. `key` and `id` compute a message's own from its data; the
        receipt of one whose id was given before says so, `duplicate_of`. `timeout` is for each frame. If one fails, no
        more are sent; the error says in its notes how many were stored.
        """
        due = due_at(delay, at, ttl, to_self=to_self)
        self._check_open()
        self.options(check_target(topic), to_self, if_nobody)
        codec = check_codec(codec) or self._context.config.codec

        def packed(data: Any) -> Packed:
            own_key, own_id = key(data) if key else None, id(data) if id else None
            return pack(data, own_key, headers, own_id, codec, priority=priority, ttl=ttl)

        return publish_all(
            messages,
            packed,
            self._allowed(timeout),
            budget=lambda deadline: self._frame_budget(topic, deadline, due),
            send=lambda packed, deadline: self._send(topic, packed, to_self, if_nobody, deadline, due),
        )

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
        """Publish a stream of messages to one topic; use it in a `with` block, or close() it.

        Its send() packs what comes within `linger` seconds and returns at once; `send(...).result()` waits until the
        message is stored. At most `max_in_flight` messages are on their way: past that, send() waits. `timeout` is for
        each frame, and for the wait for room.
        """
        self._check_open()
        check_target(topic)
        linger = check_seconds("linger", linger)
        if linger < 0:
            raise InvalidArgument(f"linger must not be negative, but is {linger:g}")
        if not isinstance(max_in_flight, int) or isinstance(max_in_flight, bool) or max_in_flight < 1:
            raise InvalidArgument(f"max_in_flight must be a whole number of at least 1, not {max_in_flight!r:.60}")
        self.options(topic, to_self, if_nobody)
        check_codec(codec)
        stream = TopicPublisher(
            topic,
            pack=lambda data, key, headers, given: self.packed(topic, data, key, headers, given, codec),
            budget=lambda deadline: self._frame_budget(topic, deadline),
            send=lambda packed, deadline: self._send(topic, packed, to_self, if_nobody, deadline),
            ended=self._streams.discard,
            linger=linger,
            max_in_flight=max_in_flight,
            timeout=self._allowed(timeout),
        )
        self._streams.add(stream)
        return stream

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Ack and publish as one: `with bus.transaction() as tx: tx.ack(message); tx.publish(...)`.

        At the end of the block all of it is stored in `timeout` seconds, or nothing: a message is then consumed exactly
        once, also if this process dies in the middle. A block that raises stores nothing.
        """
        self._check_open()
        return Transaction(
            self._context, self._allowed(timeout), packed=self.packed, options=self.options, ship=self.ship
        )

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
        """Ask every subscription of the topic, and gather the answers: of every live node, of one member of a group.

        Returns when all that were asked have answered by message.reply(), or `timeout` seconds after the request was
        stored; `answers.missing` are those that did not. A live handler that raises answers with its error. What comes
        later is dropped; to ask oneself, have a handler on another thread than the one that asks.

        Raises as publish() does: `NoSubscribers` if there is nobody to ask.
        """
        self._check_open()
        timeout = check_positive("timeout", timeout)
        return self.replies.ask(topic, data, timeout, key=key, headers=headers, to_self=to_self, codec=codec)

    def ship(self, shipment: Shipment) -> None:
        """Send a transaction."""
        self._check_open()
        self._publisher.ship(shipment)

    def _allowed(self, timeout: float | None) -> float:
        return self._context.config.request_timeout if timeout is None else check_seconds("timeout", timeout)

    def _frame_budget(self, topic: str, deadline: float, due: float | None = None) -> tuple[int, int]:
        if due is not None:
            return FRAME_BYTES, FRAME_MESSAGES
        return frame_budget(self._membership, topic, deadline, self._context.session.overhead)

    def _send(
        self,
        topic: str,
        packed: list[Packed],
        to_self: bool,
        if_nobody: IfNobody,
        deadline: float,
        due: float | None = None,
    ) -> Future[Receipt]:
        options = self.options(topic, to_self, if_nobody)
        return self._publisher.send(topic, packed, deadline=deadline, due=due, **options)

    def options(self, topic: str, to_self: bool, if_nobody: IfNobody) -> _Options:
        """Who is to get a message, checked."""
        if if_nobody not in ("raise", "drop"):
            raise InvalidArgument(f"if_nobody is 'raise' or 'drop', not {if_nobody!r}")
        mine = None if to_self else self._subscriptions.live.get(topic)
        return {"without": mine.id if mine else None, "drop": if_nobody == "drop"}

    def packed(
        self,
        topic: str,
        data: Any,
        key: str | None,
        headers: Mapping[str, str] | None,
        id: str | None,
        codec: Codec | None,
        *,
        priority: int = 0,
        ttl: float | None = None,
    ) -> Packed:
        """A message as it travels, checked."""
        self._check_open()
        check_target(topic)
        return pack(
            data, key, headers, id, check_codec(codec) or self._context.config.codec, priority=priority, ttl=ttl
        )  # fmt: skip

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
        """Receive what is published to the topic from now on; when this returns, nothing is missed any more.

        Alone: a live subscription, which goes with this process. `name`: a durable one, kept while nobody reads it, and
        read by one process at a time (`takeover=True` takes it from another). `group`: its members, in any number of
        processes, share the messages; those of one key are handled in order. The topic may be a pattern (`users.*`,
        `users.>`); `where={"region": "eu"}` takes only messages with such headers.

        With `handler`, it is called for each message on a thread of the subscription's own; without, use get(), fetch()
        or iterate. A handler acks by returning. Where one raises, or a message of a group is not acked within `ttr`
        seconds (30), it is delivered again after `backoff` seconds, doubled each time; after `max_attempts` it is a
        dead letter. Live messages are delivered once.

        `type` decodes into and validates against a type (msgspec Struct, dataclass, ...). Past `limit` messages,
        `max_bytes` bytes or 50,000 entries that wait (in each partition), `overflow` says what happens: "gap", live's
        default: publishers skip the queue until it is drained, and `on_gap(gap)` is called; "reject": publishers get
        `QueueFull`; "drop-oldest": those go, and `on_gap` is called. `max_age` is how many seconds a message waits at
        the most.
        `on_error(error, message)` hears of handlers that raised and of what could not be decoded (`message` is None
        then). `ack="manual"` leaves the acknowledgement to message.ack(), which get() and fetch() of durable
        subscriptions and groups do anyway; `ack="auto"` acks on hand-over.
        """
        self._check_open()
        return self._subscriptions.subscribe(
            SubscribeOptions(
                topic=topic,
                handler=handler,
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
                on_gap=on_gap,
                on_error=on_error,
            ),
        )

    def create_group(
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
        options = SubscribeOptions(
            topic=topic,
            group=group,
            partitions=partitions,
            where=where,
            overflow=overflow,
            max_age=max_age,
            limit=limit,
            max_bytes=max_bytes,
        )
        return self._subscriptions.create_group(options)

    # -- discovery -----------------------------------------------------------------------------------------------

    def topics(self) -> list[TopicInfo]:
        """All topics, with how many subscribe to each."""
        return self._discovery.topics()

    def subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """Who subscribes to a topic."""
        return self._discovery.subscriptions(check_topic(topic))

    def queues(self, *, count: bool = False) -> list[QueueInfo]:
        """All queues, with how many entries wait in each; with `count` also messages by state, and the oldest's age."""
        queues = self._discovery.queues()
        return self._groups.count(queues) if count else queues

    def delayed(self) -> list[DelayedInfo]:
        """How many messages of which topics wait to become due, and when the next one is."""
        return delayed_by_topic(self._context.session, self._context.tree)

    def clients(self) -> list[ClientInfo]:
        """The processes that are connected."""
        return self._discovery.clients()

    def groups(self, topic: str | None = None, name: str | None = None) -> list[GroupInfo]:
        """Durable subscriptions and groups: members, who reads which partition, how much waits and for how long."""
        return self._groups.look(topic, name)

    def watch(self, callback: OnChange) -> Observer:
        """Call `callback(change)` when topics, subscriptions, members or clients come and go from now on; close() it.

        It is called on a thread of the observer's own, one change after the other.
        """
        self._check_open()
        return observe(self._context.session, self._context.tree, callback, self._context.lifetime.before_close)

    # -- dead letters --------------------------------------------------------------------------------------------

    def dead_letters(
        self, topic: str | None = None, subscription: str | None = None, *, limit: int = MOST_LETTERS
    ) -> list[DeadLetterInfo]:
        """What readers could not do with, and what was found in queues and is no message; the oldest first."""
        return self._letters.look(topic, subscription, limit)

    def requeue(self, letter: DeadLetterInfo) -> None:
        """Deliver a dead letter again, as the last of its partition, with all its attempts before it.

        `NotSubscribed` if its subscription is no more; `NodeMissing` if somebody else has requeued or purged it.
        """
        self._letters.requeue(letter)

    def purge_dead(self, *letters: DeadLetterInfo, topic: str | None = None, subscription: str | None = None) -> int:
        """Remove these letters for good, or all of a topic and a subscription; how many that were."""
        return self._letters.purge_dead(letters, topic, subscription)
