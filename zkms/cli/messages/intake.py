"""What `zkms sub` does from its first message to its last."""

from __future__ import annotations

import sys
import time

import click

from zkms.admin.groups import Groups
from zkms.bus import Bus
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.messages.action import Action
from zkms.cli.output import clock, data_json, data_text, escape, plural, print_json_line
from zkms.consume.consumer import Consumer
from zkms.deliver.live import Subscription
from zkms.errors import LostOwnership
from zkms.message.message import Message

BATCH = 100
LOOK = 0.5
"""Seconds without a message after which we look whether anything is left, and whether we still read it."""


class Intake:
    """Takes messages until enough have come, time is over, or nothing is left."""

    def __init__(
        self,
        bus: Bus,
        source: Subscription | Consumer,
        action: Action | None,
        count: int | None,
        deadline: float | None,
        *,
        timeout: float | None,
        drain: bool,
        as_json: bool,
        max_attempts: int,
    ) -> None:
        self.got = 0
        """Messages that are done with, one way or another."""
        self.acked = 0
        self.dead = 0
        self.failures = 0
        self.drained = False
        self._bus = bus
        self._source = source
        self._action = action
        self._count = count
        self._deadline = deadline
        self._timeout = timeout or 0.0
        self._drain = drain
        self._json = as_json
        self._max_attempts = max_attempts
        self._groups = Groups(bus.parts.session, bus.parts.tree)

    def run(self) -> None:
        """Until the end; `Failure` if that came too soon."""
        self._run()
        if self.drained:
            return
        seconds = f"{self._timeout:g} s"
        if self._count is not None and self.got < self._count:
            raise Failure(
                f"{self.got or 'nothing'} of {plural(self._count, 'message')} received in {seconds}", Exit.NOT_IN_TIME
            )
        if self._drain and self._count is None:
            raise Failure(f"not drained in {seconds}", Exit.NOT_IN_TIME)
        if not self.got:
            raise Failure(f"nothing received in {seconds}", Exit.NOT_IN_TIME)

    def summary(self) -> str:
        """What came of it all."""
        return f"{plural(self.acked, 'message')} done, {self.dead:,} dead, {plural(self.failures, 'failed attempt')}."

    def _run(self) -> None:
        watchful = self._drain or isinstance(self._source, Consumer)
        while self._count is None or self.got < self._count:
            left = None if self._deadline is None else self._deadline - time.monotonic()
            if left is not None and left < 0:
                return
            wait = min(LOOK, LOOK if left is None else left) if watchful else left
            most = 1 if self._action is not None else BATCH
            messages = self._source.fetch(most if self._count is None else min(most, self._count - self.got), wait)
            if self._action is not None:
                for message in messages:
                    self._act(self._action, message)
            else:
                self._print(messages)
            if not messages and isinstance(self._source, Consumer):
                self._check_ours(self._source)
                if self._drain and not self._groups.entries(self._source.topic, self._source.id):
                    self.drained = True
                    return

    def _check_ours(self, source: Consumer) -> None:
        """A durable subscription may be taken over by another."""
        if source.kind != "durable" or source.partitions:
            return
        for group in self._bus.groups(source.topic, source.id):
            owner = group.partitions[0].owner
            if owner and owner != self._bus.client_id and any(m.client == owner for m in group.members):
                raise in_use(self._bus, source.topic, source.id, owner)

    def _print(self, messages: list[Message]) -> None:
        for message in messages:
            if self._json:
                print_json_line(as_object(message))
            else:
                _print_text(message)
        sys.stdout.flush()
        if isinstance(self._source, Consumer):
            try:
                self._source.ack(messages)
            except LostOwnership as error:
                click.echo(f"Printed, and to be delivered again: {escape(str(error))}", err=True)
        else:
            for message in messages:
                message.ack()
        self.got += len(messages)

    def _act(self, action: Action, message: Message) -> None:
        attempt = message.attempts
        outcome = action(message)
        fate = "acked" if outcome.done else "dead" if outcome.hopeless or attempt >= self._max_attempts else "nacked"
        try:
            if outcome.done:
                message.ack()
            elif outcome.hopeless:
                message.reject(outcome.said)
            else:
                message.nak(error=outcome.said)
        except LostOwnership as error:
            click.echo(f"{message.id}: {escape(str(error))}", err=True)
            return
        self.got += fate != "nacked"
        self.acked += fate == "acked"
        self.dead += fate == "dead"
        self.failures += not outcome.done
        if self._json:
            said = {"id": message.id, "topic": message.topic, "key": message.key, "attempt": attempt}
            print_json_line(said | {"outcome": fate, "reason": outcome.said})
            sys.stdout.flush()
        elif not outcome.done:
            then = "a dead letter" if fate == "dead" else "to be tried again"
            click.echo(f"{escape(message.id)}, attempt {attempt}: {escape(outcome.said)}; {then}", err=True)


def as_object(message: Message) -> dict[str, object]:
    """A message for programs."""
    return {
        "id": message.id,
        "topic": message.topic,
        "key": message.key,
        "headers": dict(message.headers),
        "producer": message.producer,
        "seq": message.seq,
        "published_at": message.published_at,
        "attempts": message.attempts,
        **data_json(message.data),
    }


def _print_text(message: Message) -> None:
    text = data_text(message.data)
    if not sys.stdout.isatty():
        click.echo(text)
        return
    key = f" [{escape(message.key)}]" if message.key is not None else ""
    click.echo(f"{click.style(clock(message.published_at) + key, dim=True)} {escape(text)}")


def in_use(bus: Bus, topic: str, name: str, owner: str) -> Failure:
    """Somebody else reads a durable subscription: who that is."""
    client = next((c for c in bus.clients() if c.client == owner), None)
    where = "" if client is None else f", process {client.pid} on {client.host} since {clock(client.started)}"
    return Failure(f"{name!r} of {topic!r} is read by {owner}{where}; --takeover takes it from there", Exit.IN_USE)
