"""`python -m verification.faults.consumer JSON`: records its deliveries and stored acks, until SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import zkms
from verification.faults import clocks
from verification.faults.journal import Journal, Record, now
from verification.faults.orders import TOPIC, Orders

FETCHED = 20
REFUSED = (zkms.LostOwnership, zkms.ConnectionLost, zkms.Timeout, zkms.AlreadyAcked)
"""Errors of an ack that are expected under faults: the message is delivered again, or was acked."""


class Consumer:
    """One process's subscription."""

    def __init__(self, orders: Orders, bus: zkms.Bus, journal: Journal) -> None:
        """Subscribe."""
        self._orders = orders
        self._bus = bus
        self._journal = journal

    def run(self, stop: threading.Event) -> None:
        """Consume as the orders say, until told to stop."""
        how, options = self._orders.how, self._options()
        if how == "fetch":
            subscription = self._bus.subscribe(TOPIC, **options)
            self._ready()
            while not stop.is_set():
                self._fetch(subscription)
            return
        handler = self._handle if how == "handler" else self._handle_and_ack
        self._bus.subscribe(TOPIC, handler, ack="manual" if how == "manual" else None, **options)
        self._ready()
        stop.wait()

    def _options(self) -> dict[str, Any]:
        if self._orders.workload == "live":
            return {"on_gap": lambda gap: self._journal.note(["gap", now(), gap.reason])}
        patient = {"max_attempts": None, "backoff": 0.1}
        if self._orders.workload == "group":
            return {"group": self._orders.subscription, "partitions": 8, **patient}
        return {"name": self._orders.subscription, "takeover": True, **patient}

    def _ready(self) -> None:
        self._journal.note(["ready", now()])

    def _handle(self, message: zkms.Message) -> None:
        self._note("got", [message], time.time())

    def _handle_and_ack(self, message: zkms.Message) -> None:
        self._note("got", [message], time.time())
        try:
            message.ack()
        except REFUSED as error:
            self._note("lost", [message], f"{type(error).__name__}: {error}")
        else:
            self._note("acked", [message])

    def _fetch(self, subscription: Any) -> None:
        batch = subscription.fetch(FETCHED, timeout=0.2)
        self._note("got", batch, time.time())
        try:
            subscription.ack(batch)
        except REFUSED as error:
            self._note("lost", batch, f"{type(error).__name__}: {error}")
        else:
            self._note("acked", batch)

    def _note(self, kind: str, messages: Sequence[zkms.Message], *more: object) -> None:
        records: list[Record] = [[kind, *message.data, now(), *more] for message in messages]
        self._journal.note(*records)


def main(orders: Orders) -> None:
    """Consume until SIGTERM."""
    clocks.inject()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with Journal(Path(orders.journal)) as journal, zkms.connect(orders.hosts, **orders.connection()) as bus:
        Consumer(orders, bus, journal).run(stop)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Orders))
