"""One of two nodes that talk to each other and record it: member.py HOSTS ROOT TRAIL NAME AHEAD.

Its machine is called NAME, and the machine's wall clock is AHEAD seconds ahead. Subscribes, publishes when it is told
to, and says when it has got what both have published.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

hosts, root, trail, name, ahead = sys.argv[1:]
clock = time.time
time.time = lambda: clock() + float(ahead)
socket.gethostname = lambda: name

import zkms  # noqa: E402 - this machine's clock is set first

EACH = 40
got = threading.Semaphore(0)
with zkms.connect(hosts, root, trail=trail, cleaner=False, client_id=name) as bus:
    bus.subscribe("users", lambda _message: got.release())
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(EACH):
        bus.publish("users", [name, number], key=str(number))
    for _ in range(2 * EACH):
        got.acquire()
    print("done", flush=True)
    sys.stdin.readline()
