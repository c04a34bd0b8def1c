"""`python -m verification.faults.cache.worker JSON`: reads and writes rows of a shared SQLite file through a cache.

Says "ready" when its cache is trusted, begins at the first line of its input, ends at the second, and then says what
its cache has counted. `without` takes a mechanism of the cache away, so that the checker can be seen to notice.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import zkms
from verification.faults import clocks
from verification.faults.cache.history import NEVER, History, Write
from zkms.cache import Cache
from zkms.cache.pulse import Pulse
from zkms.cache.store import CacheStore
from zkms.cache.tickets import Tickets


def take_away(what: str | None) -> None:
    """Break the cache on purpose."""
    if what == "guard":
        Tickets.valid = lambda *_args: True  # type: ignore[method-assign]
    elif what == "gap":
        CacheStore.flush = lambda *_args: None  # type: ignore[method-assign]
    elif what == "trust":
        prove = Pulse._prove
        Pulse._prove = lambda self, sent, generation: prove(self, sent + 1e6, generation)  # type: ignore[method-assign]


class Worker:
    """A few threads that read and write."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.stop = threading.Event()
        self.bus = zkms.connect(
            options["hosts"],
            options["root"],
            cleaner=False,
            session_timeout=options["session_timeout"],
            connect_timeout=60.0,  # also where a machine is busy with starting many of us
            request_timeout=60.0,
            trail=options["trail"],
        )
        self.cache = Cache(self.bus, "rows", max_staleness=options["max_staleness"])
        self._local = threading.local()

    @property
    def database(self) -> sqlite3.Connection:
        """A connection of this thread's own."""
        if not hasattr(self._local, "database"):
            self._local.database = sqlite3.connect(self.options["database"], timeout=60, isolation_level=None)
        database: sqlite3.Connection = self._local.database
        return database

    def load(self, key: int) -> int:
        """Read the row; sometimes slowly, as databases and networks do."""
        (version,) = self.database.execute("SELECT version FROM rows WHERE id = ?", [key]).fetchone()
        # Without the check against late loads there must be some, also on a busy machine.
        chance, longest = (0.7, 0.3) if self.options["without"] == "guard" else (0.3, 0.01)
        if random.random() < chance:
            time.sleep(random.uniform(0.0, longest))
        return int(version)

    def change(self, key: int) -> Write:
        """Write the row, and invalidate it."""
        cache, allowed = self.cache, self.options["wait"]
        begun = time.monotonic()
        (version,) = self.database.execute(
            "UPDATE rows SET version = version + 1 WHERE id = ? RETURNING version", [key]
        ).fetchone()
        if self.options["without"] == "wait":
            cache.invalidate(key)
            done = time.monotonic()
            return Write(version, begun, done, done)
        if random.random() < 0.5:
            outcome = cache.invalidate(key, wait=allowed)
            assert outcome is not None
            done = time.monotonic()
            return Write(version, begun, done if outcome.sent else NEVER, done if outcome else NEVER)
        deadline = time.monotonic() + allowed
        try:
            receipt = cache.send([key]).result(allowed)
        except TimeoutError:
            return Write(version, begun, NEVER, NEVER)
        sent = time.monotonic()
        outcome = cache.await_receipt(receipt, deadline)
        return Write(version, begun, sent, time.monotonic() if outcome else NEVER)

    def run(self, number: int, writes: float) -> None:
        """One thread's work, until it is told to stop."""
        history = History(Path(self.options["history"]) / f"{self.options['number']}-{number}")
        keys = self.options["keys"]
        while not self.stop.is_set():
            key = min(random.randrange(keys), random.randrange(keys))
            if random.random() < writes:
                history.write(key, self.change(key))
            else:
                begun = time.monotonic()
                history.read(key, self.cache.get(key, self.load), begun)
                if random.random() < 0.1:
                    time.sleep(0.001)  # or the reads would leave no time for other threads
        history.close()


def main() -> None:
    """Work until the checker ends it."""
    clocks.inject()
    options = json.loads(sys.argv[1])
    take_away(options["without"])
    worker = Worker(options)
    while not worker.cache.trusted:
        time.sleep(0.01)
    print('"ready"', flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=worker.run, args=(number, share)) for number, share in enumerate((0.0, 0.1))]
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    worker.stop.set()
    for thread in threads:
        thread.join(60)
    stats = worker.cache.stats
    counted = {"hits": stats.hits, "bypasses": stats.bypasses, "discarded": stats.discarded, "flushes": stats.flushes}
    print(json.dumps(counted), flush=True)
    worker.bus.close()


if __name__ == "__main__":
    main()
