"""Writes down what it gets, a JSON line each, until None comes: subscriber.py HOSTS ROOT TOPIC SESSION COUNTER.

The first line is the number that COUNTER, a file that the publisher keeps up to date, holds when subscribe() returns.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import zkms

hosts, root, topic, session_timeout, counter = sys.argv[1:]
done = threading.Event()


def write(kind: str, data: object) -> None:
    """Write a line and make sure that it is read."""
    print(json.dumps([kind, data]), flush=True)


def hear(message: zkms.Message) -> None:
    """Write a message down; None is the last."""
    if message.data is None:
        done.set()
    else:
        write("message", message.data)


trail = os.environ.get("ZKMS_TRAIL")
with zkms.connect(hosts, root=root, cleaner=False, session_timeout=float(session_timeout), trail=trail) as bus:
    bus.subscribe(topic, hear, on_gap=lambda gap: write("gap", gap.reason))
    write("subscribed", int.from_bytes(Path(counter).read_bytes(), "big"))
    done.wait()
