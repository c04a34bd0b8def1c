"""A subscriber for tests: notes what it hears, in order."""

from __future__ import annotations

import threading
from typing import Any

from zkms import Bus, Gap, Message, Subscription


class Listener:
    """Handler, on_gap and on_error in one; `events` has everything in the order it came."""

    def __init__(self) -> None:
        self.events: list[Message | Gap | Exception] = []
        self.go = threading.Event()
        """The handler returns only while this is set."""
        self.go.set()

    def subscribe(self, bus: Bus, topic: str, **options: Any) -> Subscription:
        """Push everything of a topic here."""
        return bus.subscribe(topic, self.hear, on_gap=self.events.append, on_error=self.fail, **options)

    def pull(self, bus: Bus, topic: str, **options: Any) -> Subscription:
        """Note gaps and errors here; messages are for whoever calls get()."""
        return bus.subscribe(topic, on_gap=self.events.append, on_error=self.fail, **options)

    def hear(self, message: Message) -> None:
        """Note the message, and hang as long as told."""
        self.events.append(message)
        assert self.go.wait(60), "nobody let the handler go on"

    def fail(self, error: Exception, message: Message | None) -> None:
        """Note the error."""
        self.events.append(error)

    @property
    def messages(self) -> list[Message]:
        """The messages heard."""
        return [event for event in self.events if isinstance(event, Message)]

    @property
    def data(self) -> list[Any]:
        """Their data."""
        return [message.data for message in self.messages]

    @property
    def gaps(self) -> list[Gap]:
        """The gaps announced."""
        return [event for event in self.events if isinstance(event, Gap)]

    @property
    def errors(self) -> list[Exception]:
        """The errors reported."""
        return [event for event in self.events if isinstance(event, Exception)]
