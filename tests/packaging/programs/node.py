"""A node of whichever zkms PYTHONPATH has: listens, shares work, keeps a durable subscription, and publishes when told.

node.py HOSTS ROOT NAME; a line on stdin is `publish COUNT`, `audit COUNT` (read so many durably, ack them) or `end`.
Prints a JSON line for each message: [how, publisher, number]; and ["done", command, 0] after each command.
"""

from __future__ import annotations

import json
import sys
import threading

import zkms

hosts, root, name = sys.argv[1:4]
printing = threading.Lock()


def tell(how: str, who: str, number: int) -> None:
    """One line, whole."""
    with printing:
        print(json.dumps([how, who, number]), flush=True)


with zkms.connect(hosts, root=root) as bus:
    bus.subscribe("news", lambda message: tell("news", *message.data))
    bus.subscribe("jobs", lambda message: tell("jobs", *message.data), group="workers", partitions=4)
    sent = 0
    tell("is", zkms.__file__, 0)
    tell("done", "start", 0)
    for line in sys.stdin:
        command, _, count = line.strip().partition(" ")
        if command == "end":
            break
        if command == "publish":
            for topic in ("news", "jobs"):
                bus.publish_many(
                    topic, [[name, n] for n in range(sent, sent + int(count))], key=lambda data: str(data[1] % 7)
                )
            bus.publish("news", [name, sent + int(count)], ttl=3600.0, priority=0)
            sent += int(count) + 1
        elif command == "audit":
            with bus.subscribe("news", name="audit") as sub:
                left = int(count)
                while left:
                    for message in sub.fetch(left, timeout=5.0):
                        tell("audit", *message.data)
                        message.ack()
                        left -= 1
        tell("done", command, 0)
