"""The three lines of the README: subscribe, publish, and know that it has arrived.

python three_lines.py [HOST:PORT]
"""

import os
import sys

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")

with zkms.connect(HOSTS, root=ROOT) as bus:
    bus.subscribe("users", lambda message: print("user changed:", message.data["id"]))
    bus.publish("users", {"id": 42}).wait(timeout=2.0)
