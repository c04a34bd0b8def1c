"""Reads one message of a durable subscription, and is killed: killed.py HOSTS ROOT TOPIC MOMENT."""

from __future__ import annotations

import os
import signal
import sys

import zkms

hosts, root, topic, moment = sys.argv[1:]
bus = zkms.connect(hosts, root=root, cleaner=False)
message = bus.subscribe(topic, name="antonio").get()
assert message is not None
if moment == "after the ack":
    message.ack()
os.kill(os.getpid(), signal.SIGKILL)
