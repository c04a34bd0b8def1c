"""What can go wrong is told: a handler that raises, and messages that may have been missed.

    python gaps.py [HOST:PORT]

A slow subscriber with a limit of 10 is sent 30: its queue collapses into one gap event instead of filling ZooKeeper.
"""

import os
import sys
import threading

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")

cache = {"1": "one", "2": "two"}
go_on, told = threading.Event(), threading.Event()


def handle(message: zkms.Message) -> None:
    """Returning is the ack; what it raises goes to on_error, and the next message comes all the same."""
    go_on.wait()
    if message.data == "?":
        raise ValueError("no such key")
    cache.pop(message.data, None)


def missed(gap: zkms.Gap) -> None:
    """Forget everything: we do not know what we have missed."""
    print("gap:", gap.reason)
    cache.clear()
    told.set()


with zkms.connect(HOSTS, root=ROOT) as bus:
    bus.subscribe("cache", handle, limit=10, on_gap=missed, on_error=lambda error, _message: print("error:", error))
    bus.publish("cache", "?")
    for _ in range(30):
        bus.publish("cache", "1")
    go_on.set()
    told.wait(timeout=10)
    print("cache:", cache)
    receipt = bus.publish("cache", "2").wait(timeout=2.0)
    print("goes on:", len(receipt.acked), "acked")
