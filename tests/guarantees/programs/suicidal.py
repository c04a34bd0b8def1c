"""A member that dies of the message "deadly", whenever it gets it: suicidal.py HOSTS ROOT TOPIC HOW.

It prints what it has handled. HOW is `handler` or `get`.
"""

from __future__ import annotations

import os
import sys
import threading

import zkms

hosts, root, topic, how = sys.argv[1:]
bus = zkms.connect(hosts, root=root, cleaner=False, session_timeout=2.0)


def handle(message: zkms.Message) -> None:
    """Die of it, or print it."""
    if message.data == "deadly":
        os._exit(9)
    print(message.data, flush=True)


if how == "handler":
    bus.subscribe(topic, handle, group="workers", partitions=1)
    threading.Event().wait()
else:
    subscription = bus.subscribe(topic, group="workers", partitions=1)
    while True:
        message = subscription.get()
        assert message is not None
        handle(message)
        message.ack()
