"""The same load with and without invalidation: three processes with caches, one that writes; stale reads are counted.

python stale_reads.py [HOST:PORT]
"""

import multiprocessing
import os
import random
import sqlite3
import sys
import tempfile
import time
from typing import Any

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")


def read(file: str, finished: Any, ready: Any, stop: Any, results: Any) -> None:
    """Read prices through a cache, and compare each with what was known to all when the read began."""
    database, reads, stale = sqlite3.connect(file), 0, 0
    with zkms.connect(HOSTS, root=ROOT) as bus, zkms.Cache(bus, "prices") as cache:
        ready.release()
        while not stop.is_set():
            newest = finished[product := random.randrange(20)]
            price = cache.get(product, lambda key: database.execute("SELECT p FROM t WHERE id=?", [key]).fetchone()[0])
            reads, stale = reads + 1, stale + (price < newest)
            time.sleep(0.0002)
    results.put((reads, stale))


def run(invalidate: bool) -> tuple[int, ...]:
    """Change prices while others read them; how many reads there were, and how many of them were stale."""
    new = multiprocessing.get_context("spawn")
    finished, ready, stop, results = new.Array("i", 20), new.Semaphore(0), new.Event(), new.Queue()
    with tempfile.TemporaryDirectory() as directory, zkms.connect(HOSTS, root=ROOT) as bus:
        file, cache = f"{directory}/shop.sqlite", zkms.Cache(bus, "prices")
        database = sqlite3.connect(file, timeout=60, isolation_level=None)
        database.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, p INTEGER)")
        database.executemany("INSERT INTO t VALUES (?, 0)", [(product,) for product in range(20)])
        for _ in range(3):
            new.Process(target=read, args=(file, finished, ready, stop, results)).start()
            ready.acquire()
        for price in range(1, 101):
            product = random.randrange(20)
            database.execute("UPDATE t SET p = ? WHERE id = ?", [price, product])
            if not invalidate or cache.invalidate(product, wait=10.0):
                finished[product] = price
            time.sleep(0.005)
        stop.set()
        return tuple(map(sum, zip(*[results.get() for _ in range(3)], strict=True)))


if __name__ == "__main__":
    for words in ("without", "with"):
        reads, stale = run(words == "with")
        print(f"{words} invalidation: {stale} stale reads of {reads}")
