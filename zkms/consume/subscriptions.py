"""What one process subscribes to: live subscriptions, durable ones, and groups that it is a member of."""

from __future__ import annotations

import logging
import time

from zkms.checks import check_codec
from zkms.consume.consumer import Consumer
from zkms.consume.retry_policy import RetryPolicy
from zkms.context import Context
from zkms.deliver.acks import Acks
from zkms.deliver.live import Subscription
from zkms.errors import AlreadySubscribed, ZkmsError
from zkms.message.message import Replier
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.subscribe.live_registration import LiveRegistration
from zkms.subscribe.options import DEFAULT_TTR, SubscribeOptions
from zkms.zookeeper.session import State

log = logging.getLogger("zkms.consume")


class Subscriptions:
    """Makes subscriptions and knows those that are open. Thread-safe."""

    def __init__(
        self,
        context: Context,
        acks: Acks,
        live_registration: LiveRegistration,
        durable_registration: DurableRegistration,
    ) -> None:
        self.live: dict[str, Subscription] = {}
        """By topic: one of each."""
        self.consumers: dict[tuple[str, str], Consumer] = {}
        """By topic and name: durable subscriptions and groups that this process reads."""
        self.replies: Replier | None = None
        """Where messages that are requests are answered; set when the bus is put together."""
        self._context = context
        self._acks = acks
        self._live_registration = live_registration
        self._durable_registration = durable_registration

    def own_id(self, topic: str) -> str | None:
        """The id of the live subscription of a topic, if there is one."""
        subscription = self.live.get(topic)
        return subscription.id if subscription is not None else None

    def subscribe(self, options: SubscribeOptions) -> Subscription | Consumer:
        """Make the subscription, and begin to read."""
        return self.subscribe_live(options) if options.kind == "live" else self.subscribe_durable(options)

    def subscribe_live(self, options: SubscribeOptions) -> Subscription:
        """Make a live subscription, and begin to read."""
        options.check()
        topic = options.topic
        if topic in self.live:
            raise AlreadySubscribed(topic)
        subscription = Subscription(
            self._context,
            self._acks,
            self._live_registration,
            self._unsubscribed,
            topic,
            options.handler,
            id=self._live_registration.new_id(),
            registration=options.registration(self._context.client_id, 1, self._context.session.rights),
            prefetch=options.prefetch,
            ack=options.ack or "auto",
            type=options.type,
            codec=check_codec(options.codec) or self._context.config.codec,
            on_gap=options.on_gap,
            on_error=options.on_error,
            make=options.make,
            replies=self.replies,
        )
        if self.live.setdefault(topic, subscription) is not subscription:
            raise AlreadySubscribed(topic)
        try:
            self._live_registration.subscribe(subscription)
        except BaseException:
            del self.live[topic]
            raise
        self._context.trail.note("subscribed", sub=subscription.id, topic=topic, kind="live")
        subscription.start()
        return subscription

    def subscribe_durable(self, options: SubscribeOptions) -> Consumer:
        """Make a durable subscription or become a member of a group, and begin to read."""
        options.check()
        topic, name = options.topic, options.name or options.group or ""
        if (topic, name) in self.consumers:
            raise AlreadySubscribed(topic, name)
        registration, created = self._durable_registration.subscribe(options)
        consumer = Consumer(
            self._context,
            self._live_registration,
            self._durable_registration,
            self._ended,
            topic,
            options.handler,
            name=name,
            registration=registration,
            created=created,
            policy=RetryPolicy(
                registration.kind,
                options.max_attempts,
                options.backoff,
                (options.ttr or DEFAULT_TTR) if registration.kind == "group" else None,
            ),
            prefetch=options.prefetch,
            ack=options.ack,
            type=options.type,
            codec=check_codec(options.codec) or self._context.config.codec,
            on_gap=options.on_gap,
            on_error=options.on_error,
            make=options.make,
            replies=self.replies,
        )
        if self.consumers.setdefault((topic, name), consumer) is not consumer:
            raise AlreadySubscribed(topic, name)
        try:
            consumer.start(takeover=options.takeover)
        except BaseException:
            del self.consumers[topic, name]
            raise
        return consumer

    def create_group(self, options: SubscribeOptions) -> bool:
        """Register a group that nobody reads yet; False if it is there already."""
        options.check()
        return self._durable_registration.subscribe(options)[1]

    def _unsubscribed(self, subscription: Subscription) -> None:
        """A live subscription was given up: remove its registration and queue."""
        try:
            self._live_registration.unsubscribe(subscription)
        finally:
            self._context.trail.note("unsubscribed", sub=subscription.id, topic=subscription.topic, kind="live")
            self.live.pop(subscription.topic, None)

    def _ended(self, consumer: Consumer) -> None:
        """A consumer reads no more."""
        self.consumers.pop((consumer.topic, consumer.id), None)

    # -- with the session ----------------------------------------------------------------------------------------

    def _open(self) -> list[Subscription | Consumer]:
        return [*self.live.values(), *self.consumers.values()]

    def reconnected(self) -> None:
        """On the connection's thread: the connection is a new one."""
        for subscription in self._open():
            subscription.reconnected()

    def close(self, timeout: float) -> None:
        """No new messages, handlers finish, acks are sent, queues of live subscriptions are removed."""
        deadline = time.monotonic() + timeout
        for subscription in self._open():
            left = max(0.0, deadline - time.monotonic())
            if self._context.session.state is not State.CONNECTED:
                subscription.abandon(left)
                continue
            try:
                subscription.close(left)
            except ZkmsError as error:
                log.warning("%r is left to the cleaner: %s", subscription, error)
