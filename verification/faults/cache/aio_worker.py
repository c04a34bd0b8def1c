"""One process of the checker on asyncio: as worker.py, with tasks in place of threads and zkms.aio in place of zkms."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import zkms.aio
from verification.faults.cache.history import NEVER, History, Write
from verification.faults.cache.worker import take_away

READERS, WRITERS = 4, 4


class Worker:
    """A few tasks that read and write."""

    def __init__(self, options: dict[str, Any], cache: zkms.aio.Cache) -> None:
        self.options = options
        self.cache = cache
        self.stop = asyncio.Event()
        self.database = sqlite3.connect(options["database"], timeout=60, isolation_level=None)

    async def load(self, key: int) -> int:
        """Read the row; sometimes slowly, as databases and networks do."""
        (version,) = self.database.execute("SELECT version FROM rows WHERE id = ?", [key]).fetchone()
        chance, longest = (0.7, 0.3) if self.options["without"] == "guard" else (0.3, 0.01)
        if random.random() < chance:
            await asyncio.sleep(random.uniform(0.0, longest))
        return int(version)

    async def change(self, key: int) -> Write:
        """Write the row, and invalidate it."""
        begun = time.monotonic()
        (version,) = self.database.execute(
            "UPDATE rows SET version = version + 1 WHERE id = ? RETURNING version", [key]
        ).fetchone()
        if self.options["without"] == "wait":
            await self.cache.invalidate(key)
            done = time.monotonic()
            return Write(version, begun, done, done)
        outcome = await self.cache.invalidate(key, wait=self.options["wait"])
        assert outcome is not None
        done = time.monotonic()
        return Write(version, begun, done if outcome.sent else NEVER, done if outcome else NEVER)

    async def read(self, key: int) -> int:
        """Read through the cache; sometimes the first caller is cancelled, which must not affect the next one."""
        if random.random() < 0.02:
            first = asyncio.create_task(self.cache.get(key, self.load))
            await asyncio.sleep(0)
            first.cancel()
        value: int = await self.cache.get(key, self.load)
        return value

    async def run(self, number: int, writes: float) -> None:
        """One task's work, until it is told to stop."""
        history = History(Path(self.options["history"]) / f"{self.options['number']}-{number}")
        keys = self.options["keys"]
        while not self.stop.is_set():
            key = min(random.randrange(keys), random.randrange(keys))
            if random.random() < writes:
                history.write(key, await self.change(key))
            else:
                begun = time.monotonic()
                history.read(key, await self.read(key), begun)
                if random.random() < 0.1:
                    await asyncio.sleep(0.001)  # hits never wait, and the loop is for all
        history.close()


async def main() -> None:
    """Work until the checker ends it."""
    options = json.loads(sys.argv[1])
    take_away(options["without"])
    timeout = options["session_timeout"]
    async with (
        zkms.aio.connect(options["hosts"], options["root"], cleaner=False, session_timeout=timeout) as bus,
        zkms.aio.Cache(bus, "rows", max_staleness=options["max_staleness"]) as cache,
    ):
        while not cache.trusted:
            await asyncio.sleep(0.01)
        print('"ready"', flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        worker = Worker(options, cache)
        shares = [0.0] * READERS + [0.1] * WRITERS
        async with asyncio.TaskGroup() as tasks:
            for number, share in enumerate(shares):
                tasks.create_task(worker.run(number, share))
            await asyncio.to_thread(sys.stdin.readline)
            worker.stop.set()
        stats = cache.stats
        counted = {
            "hits": stats.hits, "bypasses": stats.bypasses, "discarded": stats.discarded, "flushes": stats.flushes
        }  # fmt: skip
        print(json.dumps(counted), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
