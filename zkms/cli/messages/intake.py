"""What `zkms sub` does from its first message to its last."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

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


@dataclass
class Intake:
    """Takes messages until enough have come, time is over, or nothing is left."""

    bus: Bus
    source: Subscription | Consumer
    action: Action | None
    count: int | None
    deadline: float | None
    timeout: float
    drain: bool
    as_json: bool
    max_attempts: int
    got: int = 0
    """Messages that are done with, one way or another."""
    acked: int = 0
    dead: int = 0
    failures: int = 0
    drained: bool = False

    def run(self) -> None:
        """Until the end; `Failure` if that came too soon."""
        self._run()
        if self.drained:
            return
        seconds = f"{self.timeout:g} s"
        if self.count is not None and self.got < self.count:
            raise Failure(
                f"{self.got or 'nothing'} of {plural(self.count, 'message')} received in {seconds}", Exit.NOT_IN_TIME
            )
        if self.drain and self.count is None:
            raise Failure(f"not drained in {seconds}", Exit.NOT_IN_TIME)
        if not self.got:
            raise Failure(f"nothing received in {seconds}", Exit.NOT_IN_TIME)

    def summary(self) -> str:
        """What came of it all."""
        return f"{plural(self.acked, 'message')} done, {self.dead:,} dead, {plural(self.failures, 'failed attempt')}."

    def _run(self) -> None:
        groups = Groups(self.bus.parts.session, self.bus.parts.tree)
        watchful = self.drain or isinstance(self.source, Consumer)
        while self.count is None or self.got < self.count:
            left = None if self.deadline is None else self.deadline - time.monotonic()
            if left is not None and left < 0:
                return
            wait = min(LOOK, LOOK if left is None else left) if watchful else left
            most = 1 if self.action is not None else BATCH
            messages = self.source.fetch(most if self.count is None else min(most, self.count - self.got), wait)
            if self.action is not None:
                for message in messages:
                    self._act(self.action, message)
            else:
                self._print(messages)
            if not messages and isinstance(self.source, Consumer):
                self._check_ours(self.source)
                if self.drain and not groups.entries(self.source.topic, self.source.id):
                    self.drained = True
                    return

    def _check_ours(self, source: Consumer) -> None:
        """A durable subscription may be taken over by another."""
        if source.kind != "durable" or source.partitions:
            return
        for group in self.bus.groups(source.topic, source.id):
            owner = group.partitions[0].owner
            if owner and owner != self.bus.client_id and any(m.client == owner for m in group.members):
                raise in_use(self.bus, source.topic, source.id, owner)

    def _print(self, messages: list[Message]) -> None:
        for message in messages:
            if self.as_json:
                print_json_line(as_object(message))
            else:
                _print_text(message)
        sys.stdout.flush()
        if isinstance(self.source, Consumer):
            try:
                self.source.ack(messages)
            except LostOwnership as error:
                click.echo(f"Printed, and to be delivered again: {escape(str(error))}", err=True)
        else:
            for message in messages:
                message.ack()
        self.got += len(messages)

    def _act(self, action: Action, message: Message) -> None:
        attempt = message.attempts
        outcome = action(message)
        fate = "acked" if outcome.done else "dead" if outcome.hopeless or attempt >= self.max_attempts else "nacked"
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
        if self.as_json:
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
