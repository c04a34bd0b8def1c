"""Taking messages when it suits you: get() for one, fetch() for several, or a for loop.

python pull.py [HOST:PORT]
"""

import os
import sys

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")

with zkms.connect(HOSTS, root=ROOT) as bus, bus.subscribe("reports") as reports:
    bus.publish_many("reports", [f"report {i}" for i in range(1, 7)])  # packed into few transactions

    message = reports.get(timeout=2.0)
    print("one:", message.data if message else "nothing came")
    print("several:", [message.data for message in reports.fetch(3, timeout=2.0)])
    for message in reports:  # acked when the loop comes back for the next one
        print("in a loop:", message.data)
        if message.data == "report 6":
            break
    print("no more:", reports.get(timeout=0))
