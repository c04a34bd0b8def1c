"""A member that gets a message, waits for a line, and then tries to ack: zombie.py HOSTS ROOT TOPIC."""

from __future__ import annotations

import sys

import zkms

hosts, root, topic = sys.argv[1:]
bus = zkms.connect(hosts, root=root, cleaner=False, session_timeout=2.0, request_timeout=30.0)
message = bus.subscribe(topic, group="workers", partitions=1).get()
assert message is not None
print(f"got {message.data}", flush=True)
sys.stdin.readline()
try:
    message.ack()
    print("acked", flush=True)
except zkms.ZkmsError as error:
    print(type(error).__name__, flush=True)
