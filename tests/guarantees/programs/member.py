"""A member of a group that writes down what it handles and acks: member.py HOSTS ROOT FILE HOW ATTEMPTS [TRAIL].

HOW is how it takes messages: `handler`, which acks by returning; `manual`, a handler that acks by itself; `fetch`.
A line is `h|a|r KEY NUMBER SECONDS`: handled; acked, written when the ack had returned; refused.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import zkms

hosts, root, file, how, attempts, *trail = sys.argv[1:]
options = {"group": "workers", "partitions": 8, "max_attempts": int(attempts), "backoff": 0.1}
done = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: done.set())
patient = {"session_timeout": 4.0, "connect_timeout": 60.0, "request_timeout": 60.0, "trail": next(iter(trail), None)}

with Path(file).open("a", buffering=1) as out, zkms.connect(hosts, root=root, cleaner=False, **patient) as bus:

    def note(kind: str, messages: Iterable[zkms.Message]) -> None:
        """Write a line for each message, all of them at once."""
        now = time.time()
        out.write("".join(f"{kind} {message.key} {message.data} {now}\n" for message in messages))

    def handle(message: zkms.Message) -> None:
        note("h", [message])

    def handle_and_ack(message: zkms.Message) -> None:
        note("h", [message])
        try:
            message.ack()
            note("a", [message])
        except (zkms.LostOwnership, zkms.ConnectionLost):
            note("r", [message])

    if how == "handler":
        bus.subscribe("jobs", handle, **options)
        done.wait()
    elif how == "manual":
        bus.subscribe("jobs", handle_and_ack, ack="manual", **options)
        done.wait()
    else:
        subscription = bus.subscribe("jobs", **options)
        while not done.is_set():
            batch = subscription.fetch(20, timeout=0.2)
            note("h", batch)
            try:
                subscription.ack(batch)
                note("a", batch)
            except (zkms.LostOwnership, zkms.ConnectionLost):
                note("r", batch)
