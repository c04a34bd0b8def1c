"""Who has applied it: a receipt names those that have acked, those that have not yet, and those that are gone.

python receipts.py [HOST:PORT]
"""

import os
import sys
from collections.abc import Iterable

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")


def connect(name: str) -> zkms.Bus:
    """One bus per process is enough; here one process plays three."""
    return zkms.connect(HOSTS, root=ROOT, client_id=name)


def names(subscriptions: Iterable[str]) -> str:
    """Subscriptions begin with the name of their client."""
    return ", ".join(sorted(name.split("~")[0] for name in subscriptions)) or "nobody"


with connect("writer") as writer, connect("quick") as quick, connect("slow") as slow:
    quick.subscribe("config", lambda message: print("quick applies", message.data))
    later = slow.subscribe("config", ack="manual")  # acks when it says so

    receipt = writer.publish("config", "v2").wait(timeout=1.0)
    print("acked:", names(receipt.acked), "- pending:", names(receipt.pending))

    message = later.get(timeout=2.0)
    if message is not None:
        message.ack()
    receipt.wait(timeout=2.0)
    print("acked:", names(receipt.acked), "- pending:", names(receipt.pending))

    receipt = writer.publish("config", "v3")
    later.unsubscribe()
    receipt.wait(timeout=2.0)
    print("acked:", names(receipt.acked), "- gone:", names(receipt.gone))
