"""Reads a durable subscription until it is killed: reader.py HOSTS ROOT TOPIC FILE.

A line of FILE is `got N` or `acked N`, the latter written when the ack had returned.
"""

from __future__ import annotations

import sys
from pathlib import Path

import zkms

hosts, root, topic, file = sys.argv[1:]
bus = zkms.connect(hosts, root=root, cleaner=False)
subscription = bus.subscribe(topic, name="audit", takeover=True, max_attempts=None)
with Path(file).open("a", buffering=1) as out:
    while True:
        batch = subscription.fetch(3, timeout=1.0)
        for message in batch:
            out.write(f"got {message.data}\n")
            message.ack()
            out.write(f"acked {message.data}\n")
