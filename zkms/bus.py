"""The bus: what zkms.connect() returns, and where the parts meet.

A message's life, file by file: bus -> packing (codec) -> frame -> batching, bulk or stream -> publisher (membership,
routing, limits, producer, outgoing) -> a queue znode (tree) -> reader -> inbox -> unpacking -> subscription -> message
-> acks -> receipt. With durable subscriptions and groups it is, from the inbox on: lane (gaps) -> held -> consumer ->
message -> hold, and `rota` says who reads which lane. What is for later (delay) waits in a bucket (delayed) until the
cleaners' leader moves it into the queues. A `cursor` reads a durable subscription by place, for Spark. `session` is the
one way to ZooKeeper for all of them (connection: link, flow, requests), `registrar` keeps this process and its live
subscriptions registered, `enrolment` those that stay, `purge` removes what is left behind.

Threads: the connection's (answers, events, reading the queues: never waits), zkms-session (deadlines), zkms-publisher
(recovery), zkms-registrar (expiry), zkms-cleaner and zkms-due (if it stands for election), and one zkms-deliver-TOPIC
for each subscription with a handler: user code runs there and nowhere else. With a trail, zkms-trail writes it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from zkms.admin.dead_letters import DEFAULT_LIMIT as MOST_LETTERS
from zkms.admin.dead_letters import DeadLetterInfo, DeadLetters
from zkms.admin.delayed import DelayedInfo, delayed_by_topic
from zkms.admin.discovery import ClientInfo, Discovery, QueueInfo, SubscriptionInfo, TopicInfo
from zkms.admin.groups import GroupInfo, Groups
from zkms.admin.observer import Observer, OnChange, observe
from zkms.answers import Answers
from zkms.checks import Codec, check_positive, check_seconds
from zkms.config import DEFAULT_HOSTS, Config, Trail, configure
from zkms.consume.consumer import Consumer
from zkms.deliver.acks import Acks
from zkms.deliver.live import AckMode, Handler, OnError, OnGap, Subscription
from zkms.errors import Closed, ZkmsError
from zkms.names import check_topic
from zkms.publish.audience import Audience
from zkms.publish.options import ManyOptions, PublishOptions, StreamOptions
from zkms.publish.pipeline import Pipeline
from zkms.publish.producer import Producer
from zkms.publish.publisher import Publisher
from zkms.publish.receipt import Receipt
from zkms.publish.topic_publisher import TopicPublisher
from zkms.request_reply import RequestReply
from zkms.security import Access, Auth, Sasl, Tls
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.subscribe.live_registration import LiveRegistration
from zkms.subscribe.options import (
    DEFAULT_LIMIT,
    DEFAULT_PARTITIONS,
    Overflow,
    SubscribeOptions,
    enrol,
    subscribe,
)
from zkms.trail.recorder import Recorder
from zkms.transaction import Transaction
from zkms.tree.layout import ensure_tree
from zkms.tree.paths import Tree
from zkms.tree.records import DEFAULT_BYTES
from zkms.zookeeper.session import Session, State

if TYPE_CHECKING:
    from types import TracebackType

    from zkms_cleaner import Cleaner

log = logging.getLogger("zkms")


def connect(
    hosts: str = DEFAULT_HOSTS,
    root: str = "/zkms",
    *,
    producer: str | None = None,
    cleaner: bool = True,
    auth: Auth | Sasl | Iterable[Auth | Sasl] | None = None,
    tls: Tls | None = None,
    acl: Iterable[Any] | None = None,
    access: Access | None = None,
    codec: Codec | None = None,
    trail: str | os.PathLike[str] | Trail | None = None,
    client_id: str | None = None,
    session_timeout: float = 10.0,
    connect_timeout: float = 15.0,
    request_timeout: float = 10.0,
) -> Bus:
    """Connect to ZooKeeper and return a bus; use it in a `with` block, or close() it.

    `producer` names the producer, so that its message numbers go on after a restart. `cleaner=False` keeps this process
    out of the cleaner's election. With `auth`, znodes are open to those with the same credentials only. `access` says
    who is producer, subscriber and cleaner, each with credentials of its own and no more rights than it needs; later
    clients find that in the tree. `acl` (kazoo's ACL objects) is one for all znodes instead. `trail` is a directory, or
    a `zkms.trail.Trail`, in which to record what happens to messages. A request that ZooKeeper does not answer within
    `request_timeout` raises.
    """
    config = configure(
        hosts=hosts,
        root=root,
        producer=producer,
        cleaner=cleaner,
        auth=auth,
        tls=tls,
        acl=acl,
        access=access,
        codec=codec,
        trail=trail,
        client_id=client_id,
        session_timeout=session_timeout,
        connect_timeout=connect_timeout,
        request_timeout=request_timeout,
    )
    bus = Bus(config)
    bus.open()
    return bus


class Bus:
    """A connection to the topics below one root. Thread-safe."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.client_id = config.client_id
        self.tree = Tree(config.root)
        self.session = Session(config)
        self.acks = Acks(self.session)
        self.enrolment = DurableRegistration(self.session, self.tree, config.client_id)
        self.registrar = LiveRegistration(
            self.session,
            self.tree,
            config.client_id,
            prepare=lambda: ensure_tree(self.session, self.tree),
            make_topic=self.enrolment.make_topic,
        )
        audience = Audience(self.session, self.tree)
        self._pipeline = Pipeline(
            self.session,
            self.tree,
            audience,
            Producer(self.session, self.tree, config.producer or config.client_id, config.client_id),
            own=self._own_subscription,
        )
        self.publishing = Publisher(self.session, audience, self._pipeline)
        """All ways to publish, for those that need more than publish()."""
        self.replies = RequestReply(self)
        """Questions of ours, and answers to those of others."""
        self._discovery = Discovery(self.session, self.tree)
        self._groups = Groups(self.session, self.tree)
        self._letters = DeadLetters(self.session, self.tree)
        self.trail: Recorder | None = None
        """Made when the bus is opened, if it was asked for."""
        self._recorded = (0, State.CONNECTING)
        """The session's generation and state that the trail knows."""
        self.live: dict[str, Subscription] = {}
        """By topic: one of each."""
        self.consumers: dict[tuple[str, str], Consumer] = {}
        """By topic and name: durable subscriptions and groups that this process reads."""
        self._cleaner: Cleaner | None = None
        self._before_close: list[Callable[[float], object]] = []
        self._ending = False
        self._closed = False

    def __repr__(self) -> str:
        return f"<Bus {self.client_id} on {self.config.hosts}{self.config.root} ({self.session.state.value})>"

    # -- life ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, make the tree if it is not there, and show up as a client."""
        try:
            if self.config.trail is not None:
                self.trail = Recorder(self.config.trail, self.client_id)
                self._pipeline.trail = self._letters.trail = self.trail
            self.session.start()
            ensure_tree(self.session, self.tree)
            self.session.listen(self._session_changed)
            self.registrar.start()
            self._record_session()
            if self.config.cleaner and (self.session.rights is None or self.session.rights.cleans):
                from zkms_cleaner import Cleaner

                self._cleaner = Cleaner(self.session, self.tree, self.client_id, trail=self.trail)
                self._cleaner.start()
                self._pipeline.delays.standing = True
        except BaseException:
            self.close(timeout=0.0)
            raise

    def close(self, timeout: float = 5.0) -> None:
        """Finish what is in hand, unsubscribe, and end the session. Safe to call again.

        In this order: caches (they serve nothing more, and send what waits), publishes in flight, subscriptions (no new
        messages, handlers finish, acks are sent, queues are removed), the producer's nodes, the cleaner's candidacy,
        the session with its ephemerals, the trail. What is in hand has `timeout` seconds altogether; a ZooKeeper that
        does not answer may take its request time-out besides.
        """
        timeout = check_seconds("timeout", timeout)
        if self._ending:
            return
        self._ending = True
        try:
            self.session.check_process()
        except ZkmsError:
            self._closed = True
            return  # a forked child has nothing to close: all of it is the parent's
        deadline = time.monotonic() + timeout
        for callback in [*self._before_close]:
            try:
                callback(max(0.0, deadline - time.monotonic()))
            except Exception:
                log.exception("%s raised, and the bus is closed all the same", callback)
        self._closed = True
        self.publishing.close(max(0.0, deadline - time.monotonic()))
        for subscription in self._readers():
            left = max(0.0, deadline - time.monotonic())
            if self.session.state is not State.CONNECTED:
                subscription.abandon(left)
                continue
            try:
                subscription.close(left)
            except ZkmsError as error:
                log.warning("%r is left to the cleaner: %s", subscription, error)
        if self.session.state is State.CONNECTED:
            self._pipeline.release()
        self.registrar.close()
        if self._cleaner is not None:
            self._cleaner.close()
        self.session.close()
        if self.trail is not None:
            self._record_session()
            self.trail.close()

    def before_close(self, callback: Callable[[float], object]) -> Callable[[], None]:
        """Call this with the seconds left when the bus begins to close, while messages can still be sent.

        Returns a function that takes it back.
        """
        self._before_close.append(callback)
        return lambda: self._before_close.remove(callback)

    def __enter__(self) -> Bus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record_session(self) -> None:
        if self.trail is not None and self._recorded != (now := (self.session.generation, self.session.state)):
            if now[0] > self._recorded[0] > 0:
                self.trail.note("session", state="expired")
            self.trail.note("session", state=now[1].value)
            self._recorded = now

    def _session_changed(self) -> None:
        """On the connection's thread."""
        self._record_session()
        if self.session.state is State.CONNECTED:
            for subscription in self._readers():
                subscription.reconnected()
            self.acks.flush()

    def _own_subscription(self, topic: str) -> str | None:
        mine = self.live.get(topic)
        return mine.id if mine else None

    def _readers(self) -> list[Subscription | Consumer]:
        return [*self.live.values(), *self.consumers.values()]

    def _check_open(self) -> None:
        self.session.check_process()
        if self._closed:
            raise Closed("the bus is closed")

    # -- publish -------------------------------------------------------------------------------------------------

    def publish(
        self, topic: str, data: Any, *, timeout: float | None = None, **options: Unpack[PublishOptions]
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
        return self.publishing.publish(topic, data, timeout=timeout, **options)

    def publish_many(
        self, topic: str, messages: Iterable[Any], *, timeout: float | None = None, **options: Unpack[ManyOptions]
    ) -> list[Receipt]:
        """Publish many messages the fast way: packed into frames, several in flight. One receipt a message, in order.

        Messages that travelled together share a receipt. `key` and `id` compute a message's own from its data; the
        receipt of one whose id was given before says so, `duplicate_of`. `timeout` is for each frame. If one fails, no
        more are sent; the error says in its notes how many were stored.
        """
        return self.publishing.publish_many(topic, messages, timeout=timeout, **options)

    def publisher(self, topic: str, **options: Unpack[StreamOptions]) -> TopicPublisher:
        """Publish a stream of messages to one topic; use it in a `with` block, or close() it.

        Its send() packs what comes within `linger` seconds and returns at once; `send(...).result()` waits until the
        message is stored. At most `max_in_flight` messages are on their way: past that, send() waits. `timeout` is for
        each frame, and for the wait for room.
        """
        return self.publishing.stream(topic, **options)

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Ack and publish as one: `with bus.transaction() as tx: tx.ack(message); tx.publish(...)`.

        At the end of the block all of it is stored in `timeout` seconds, or nothing: a message is then consumed exactly
        once, also if this process dies in the middle. A block that raises stores nothing.
        """
        self._check_open()
        return Transaction(self, self.publishing.allowed(timeout))

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
        return subscribe(
            self,
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
        request = SubscribeOptions(
            topic=topic,
            group=group,
            partitions=partitions,
            where=where,
            overflow=overflow,
            max_age=max_age,
            limit=limit,
            max_bytes=max_bytes,
        )
        request.check()
        return enrol(self, request)[1]

    def stopped(self, consumer: Consumer) -> None:
        """A consumer reads no more."""
        self.consumers.pop((consumer.topic, consumer.id), None)

    def unsubscribed(self, subscription: Subscription) -> None:
        """A subscription was given up: remove its registration and queue."""
        try:
            self.registrar.unsubscribe(subscription)
        finally:
            if self.trail is not None:
                self.trail.note("unsubscribed", sub=subscription.id, topic=subscription.topic, kind="live")
            self.live.pop(subscription.topic, None)

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
        return delayed_by_topic(self.session, self.tree)

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
        return observe(self.session, self.tree, callback, self.before_close)

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
