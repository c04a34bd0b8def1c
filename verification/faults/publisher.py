"""`python -m verification.faults.publisher JSON`: publishes numbered messages until SIGTERM and notes every answer.

A message is [WHO, NUMBER]. Most are published one by one, some as a batch. One that may have been stored is not
published again: the next number is.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from pathlib import Path

import msgspec

import zkms
from verification.faults import clocks
from verification.faults.journal import Journal, Record, now
from verification.faults.orders import KEYS, TOPIC, Orders

BATCH = 5
LONGEST_DELAY = 2.0


class Publisher:
    """One process's bus and its numbers."""

    def __init__(self, orders: Orders, bus: zkms.Bus, journal: Journal) -> None:
        """Begin with number 0."""
        self._orders = orders
        self._bus = bus
        self._journal = journal
        self._chance = random.Random(orders.seed)
        self._next = 0

    def publish(self, count: int) -> None:
        """Publish so many messages at once, and write down how that ended."""
        numbers = range(self._next, self._next + count)
        self._next += count
        self._note("begun", numbers)
        try:
            due = self._send(numbers)
        except zkms.ConnectionLost as error:
            self._note("unknown" if error.outcome_unknown else "refused", numbers, str(error))
        except zkms.Timeout as error:
            self._note("unknown", numbers, str(error))
        except (zkms.NoSubscribers, zkms.NoCleaner, zkms.QueueFull) as error:
            self._note("refused", numbers, str(error))
        else:
            self._note("stored", numbers, due)

    def _send(self, numbers: range) -> float | None:
        who, patience = self._orders.name, self._orders.patience
        messages = [[who, number] for number in numbers]
        delay = self._chance.uniform(0.0, LONGEST_DELAY) if self._orders.workload == "delayed" else None
        if len(messages) == 1:
            return self._bus.publish(TOPIC, messages[0], key=key_of(messages[0]), delay=delay, timeout=patience).due
        return self._bus.publish_many(TOPIC, messages, key=key_of, delay=delay, timeout=patience)[0].due

    def _note(self, kind: str, numbers: range, *more: object) -> None:
        records: list[Record] = [[kind, self._orders.name, number, now(), *more] for number in numbers]
        self._journal.note(*records)


def key_of(message: list[object]) -> str:
    """The key of a message: a few for each publisher."""
    who, number = message
    assert isinstance(number, int)
    return f"{who}-{number % KEYS}"


def main(orders: Orders) -> None:
    """Publish at an even rate until SIGTERM."""
    clocks.inject()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with Journal(Path(orders.journal)) as journal, zkms.connect(orders.hosts, **orders.connection()) as bus:
        publisher = Publisher(orders, bus, journal)
        turn = 0
        while not stop.wait(1 / orders.rate):
            turn += 1
            publisher.publish(BATCH if turn % BATCH == 0 else 1)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Orders))
