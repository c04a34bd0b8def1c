"""The composition root: the one module that knows all rooms. It builds a bus, and opens it.

A message's life, file by file: bus -> publish/publisher (codec) -> message/frame -> publish/batching, packer or
topic_publisher -> publish/pipeline (audience, limits, producer, shipment) -> a queue znode (tree) ->
deliver/reader -> deliver/inbox -> message/decode -> deliver/live -> message/message -> deliver/acks -> publish/receipt.
With durable subscriptions and groups it is, from the inbox on: consume/dispatcher (gaps) -> entry_state -> consumer ->
message -> ownership, and group_member says who reads which partition. What is for later (publish/delayed) waits in a
bucket (tree/delayed_names) until the cleaners' leader moves it into the queues. replay/cursor reads a durable
subscription by place, for Spark. zookeeper/session is the one way to ZooKeeper for all of them,
subscribe/live_registration keeps this process and its live subscriptions registered, subscribe/durable_registration
those that stay, zookeeper/deletion removes what is left behind.

Threads: the connection's (answers, events, reading the queues: never waits), zkms-session (deadlines), zkms-publisher
(recovery), zkms-registration (expiry), zkms-cleaner and zkms-due (if it stands for election), one zkms-member-TOPIC for
each durable subscription or group, and one zkms-deliver-TOPIC for each subscription with a handler: user code runs
there and nowhere else. With a trail, zkms-trail writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from zkms.bus import Bus, Parts
from zkms.config import DEFAULT_HOSTS, DEFAULT_ROOT, Config, ConnectOptions, configure
from zkms.consume.subscriptions import Subscriptions
from zkms.context import Context
from zkms.deliver.acks import Acks
from zkms.publish.audience import Audience
from zkms.publish.pipeline import Pipeline
from zkms.publish.producer import Producer
from zkms.publish.publisher import Publisher
from zkms.request_reply import RequestReply
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.subscribe.live_registration import LiveRegistration
from zkms.trail.recorder import recorder_for
from zkms.tree.layout import ensure_tree
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session, State

if TYPE_CHECKING:
    from zkms_cleaner import Cleaner


def connect(hosts: str = DEFAULT_HOSTS, root: str = DEFAULT_ROOT, **options: Unpack[ConnectOptions]) -> Bus:
    """Connect to ZooKeeper and return a bus; use it in a `with` block, or close() it.

    `producer` names the producer, so that its message numbers go on after a restart. `cleaner=False` keeps this process
    out of the cleaners' election. `client_id` names the process, `codec` is for the data of its messages.

    `tls` encrypts the connection. With `auth`, znodes are open to those with the same credentials only. `access` says
    who is producer, subscriber and cleaner, each with credentials of its own and no more rights than it needs; later
    clients find that in the tree. `acl` (kazoo's ACL objects) is one for all znodes instead. `trail` is a directory, or
    a `zkms.trail.Trail`, in which to record what happens to messages.

    In seconds: `connect_timeout` (15) is for the first connection, `session_timeout` (10) is how long ZooKeeper waits
    for a silent process, and a request that it does not answer within `request_timeout` (10) raises.
    """
    bus = build(configure(hosts, root, **options))
    open_bus(bus)
    return bus


def build(config: Config) -> Bus:
    """Put a bus together; nothing is connected yet."""
    session, tree = Session(config), Tree(config.root)
    trail = recorder_for(config.trail, config.client_id)
    context = Context(config, session, tree, config.client_id, trail)
    acks = Acks(session)
    durable_registration = DurableRegistration(session, tree, config.client_id, trail)
    live_registration = LiveRegistration(
        session,
        tree,
        config.client_id,
        prepare=lambda: ensure_tree(session, tree),
        make_topic=durable_registration.make_topic,
    )
    cleaner = _candidate(context) if config.cleaner else None
    subscriptions = Subscriptions(context, acks, live_registration, durable_registration)
    audience = Audience(session, tree)
    producer = Producer(session, tree, config.producer or config.client_id, config.client_id)
    pipeline = Pipeline(session, tree, audience, producer, own=subscriptions.own_id)
    pipeline.trail = trail
    publisher = Publisher(context, audience, pipeline)
    replies = RequestReply(context, subscriptions.subscribe, publisher)
    subscriptions.replies = replies
    bus = Bus(
        Parts(
            context,
            acks,
            live_registration,
            durable_registration,
            subscriptions,
            audience,
            pipeline,
            publisher,
            replies,
            cleaner,
        )
    )

    def release_producer(_seconds: float) -> None:
        if session.state is State.CONNECTED:
            pipeline.release()

    def end_session(_seconds: float) -> None:
        live_registration.close()
        if cleaner is not None:
            cleaner.close()
        session.close()
        trail.session(session.generation, session.state.value)
        trail.close()

    context.lifetime.on_close(publisher.close, subscriptions.close, release_producer, end_session)
    return bus


def _candidate(context: Context) -> Cleaner:
    """Our candidate for the cleaners' lead. Imported here: a process that only imports zkms needs none."""
    from zkms_cleaner import Cleaner

    return Cleaner(context.session, context.tree, context.client_id, trail=context.trail)


def open_bus(bus: Bus) -> None:
    """Connect, make the tree if it is not there, show up as a client, and stand for the cleaners' election."""
    parts = bus.parts
    session, trail = parts.context.session, parts.context.trail

    def changed() -> None:
        """On the connection's thread."""
        trail.session(session.generation, session.state.value)
        if session.state is State.CONNECTED:
            parts.subscriptions.reconnected()
            parts.acks.flush()

    try:
        session.start()
        ensure_tree(session, parts.context.tree)
        session.listen(changed)
        parts.live_registration.start()
        trail.session(session.generation, session.state.value)
        if parts.cleaner is not None and (session.rights is None or session.rights.cleans):
            parts.cleaner.start()
            parts.pipeline.delays.standing = True
    except BaseException:
        bus.close(timeout=0.0)
        raise
