"""Subscribes, acks nothing, and waits to be killed: HOSTS ROOT TOPIC."""

import sys
import threading

import zkms

hosts, root, topic = sys.argv[1:]
bus = zkms.connect(hosts, root, cleaner=False, session_timeout=4.0)
print(bus.subscribe(topic, ack="manual").id, flush=True)
threading.Event().wait()
