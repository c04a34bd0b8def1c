"""A member that acks what it gets and dies in the N-th message: crashing.py HOSTS ROOT TOPIC N."""

from __future__ import annotations

import os
import sys

import zkms

hosts, root, topic, deadly = sys.argv[1:]
with zkms.connect(hosts, root=root, cleaner=False, session_timeout=2.0) as bus:
    subscription = bus.subscribe(topic, group="workers", partitions=2)
    print("ready", flush=True)
    for number in range(1, int(deadly) + 1):
        message = subscription.get()
        assert message is not None
        print(f"{message.key}:{message.data[1]}", flush=True)
        if number == int(deadly):
            os._exit(1)
        message.ack()
