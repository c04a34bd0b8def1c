"""`python -m verification.faults.probe JSON`: bare kazoo clients write every 50 ms until SIGTERM.

Three of them, and each prefers another server: whichever one fails, somebody was connected to it.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from verification.faults.journal import Journal, now
from verification.faults.orders import Orders

EVERY = 0.05
ANSWER = 1.0


def write(orders: Orders, number: int, journal: Journal, stop: threading.Event) -> None:
    """Write at an even rate, and note each write that ZooKeeper has confirmed."""
    hosts = orders.hosts.split(",")
    turned = ",".join(hosts[number % len(hosts) :] + hosts[: number % len(hosts)])
    client = KazooClient(turned, timeout=orders.session_timeout, randomize_hosts=False)
    client.start(timeout=60)
    path = f"{orders.root}-probe-{number}"
    client.ensure_path(path)
    while not stop.is_set():
        began = time.monotonic()
        with suppress(KazooException, KazooTimeoutError):
            client.set_async(path, b"").get(timeout=ANSWER)
            journal.note(["write", f"probe-{number}", now()])
        stop.wait(max(0.0, EVERY - (time.monotonic() - began)))
    client.stop()
    client.close()


def main(orders: Orders) -> None:
    """Write until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with Journal(Path(orders.journal)) as journal:
        threads = [threading.Thread(target=write, args=(orders, number, journal, stop)) for number in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            stop.wait(0.2)
            if stop.is_set():
                for thread in threads:
                    thread.join()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Orders))
