"""A process that answers requests, or does not: `answering.py HOSTS ROOT TOPIC HOW`, where HOW is answer or silent."""

from __future__ import annotations

import sys
import time

import zkms


def main(hosts: str, root: str, topic: str, how: str) -> None:
    """Subscribe, say so, and answer until killed."""

    def handle(message: zkms.Message) -> None:
        if how == "answer":
            message.reply({"me": bus.client_id, "asked": message.data})

    bus = zkms.connect(hosts, root, cleaner=False)
    sub = bus.subscribe(topic, handle)
    print(sub.id, flush=True)
    time.sleep(300)


if __name__ == "__main__":
    main(*sys.argv[1:])
