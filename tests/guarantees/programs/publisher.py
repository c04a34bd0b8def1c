"""Publishes numbered messages without pause until it is killed: publisher.py HOSTS ROOT TOPIC NAME SESSION."""

from __future__ import annotations

import itertools
import os
import sys

import zkms
import zkms.publish.budget

hosts, root, topic, name, session_timeout = sys.argv[1:]
zkms.publish.budget.MAX_PER_FRAME = 3  # several transactions in flight even for a few messages
numbers = itertools.count()
trail = os.environ.get("ZKMS_TRAIL")
with zkms.connect(
    hosts, root=root, cleaner=False, client_id=name, session_timeout=float(session_timeout), trail=trail
) as bus:
    while True:
        bus.publish(topic, [name, next(numbers), "x" * 20_000])  # so big that it is stored once, for all queues
        bus.publish_many(topic, [[name, next(numbers)] for _ in range(30)])
