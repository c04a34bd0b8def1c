"""The checker: processes read and write a shared SQLite file through caches; every read is compared with the writes.

    python -m verification.faults.cache.run --seconds 60 --processes 8 --keys 1000 [--cut] [--stop] [--kill-leader]
                            [--aio] [--without guard]

With `--cut`, one process is cut off from ZooKeeper for longer than its session; with `--stop`, one is stopped and
continued; with `--kill-leader`, ZooKeeper has three servers and its leader is killed. With `--aio` all of them are on
asyncio. `--without` takes a mechanism away (guard, gap, wait, trust), and the checker has to find that. Ends with 0 if
nothing wrong was read.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

import zkms
from verification.faults.cache.history import Findings, check
from verification.faults.crew import environment
from zkms.server.child import TalkingChild
from zkms.server.errors import ServerError
from zkms.server.server import Server
from zkms.testing import EmbeddedZooKeeper, Proxy


class Way(Protocol):
    """How a process reaches ZooKeeper: a server, a proxy, ..."""

    @property
    def hosts(self) -> str:
        """Where it connects."""


Workers = list[TalkingChild]
PATIENCE = 300.0
"""Seconds for a process to answer, on a busy machine with a ZooKeeper that is away for a while."""
_ready = msgspec.json.Decoder(str)
_counted = msgspec.json.Decoder(dict[str, Any])


@dataclass
class Run:
    """The settings of a run, and its results."""

    seconds: float = 5.0
    processes: int = 4
    keys: int = 30
    wait: float = 2.0
    session_timeout: float = 3.0
    max_staleness: float = 1.0
    cut: bool = False
    stop: bool = False
    kill_leader: bool = False
    aio: bool = False
    without: str | None = None
    trail: str | None = None
    findings: Findings = field(default_factory=Findings)
    counted: list[dict[str, Any]] = field(default_factory=list)

    @property
    def flushes(self) -> Counter[str]:
        """Of all processes, by reason."""
        total: Counter[str] = Counter()
        for each in self.counted:
            total.update(each["flushes"])
        return total

    def total(self, what: str) -> int:
        """Of all processes."""
        return sum(int(each[what]) for each in self.counted)

    def __str__(self) -> str:
        return (
            f"{self.processes} processes{' on asyncio' if self.aio else ''}, {self.keys:,} keys, {self.seconds:g} s: "
            f"{self.findings}; "
            f"{self.total('hits') / max(1, self.findings.reads):.1%} hits, {self.total('bypasses'):,} bypasses, "
            f"{self.total('discarded'):,} loads discarded, flushes {dict(self.flushes)}"
        )

    def on(self, zookeeper: Server, root: str, directory: Path) -> Run:
        """Run it with the requested faults."""
        with Proxy(zookeeper.hosts) as proxy:
            ways: list[Way] = [zookeeper] * self.processes
            if self.cut:
                ways[0] = proxy
            with self.working(ways, root, directory) as workers:
                self._disturb(zookeeper, proxy, workers)
                if self.cut or self.stop or self.kill_leader:
                    self.await_all(zookeeper, root)
        return self

    @contextlib.contextmanager
    def working(
        self, ways: Sequence[Way], root: str, directory: Path, settings: Callable[[int], list[str]] = lambda _number: []
    ) -> Iterator[Workers]:
        """Processes that read and write until the block ends, one for each way to ZooKeeper; then what they found.

        `settings` are added to the environment of a process, as NAME=VALUE.
        """
        database = directory / "rows.sqlite"
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, version INTEGER NOT NULL)")
            connection.executemany("INSERT INTO rows VALUES (?, 1)", [(key,) for key in range(self.keys)])
        history = directory / "history"
        history.mkdir()
        with contextlib.ExitStack() as stack:
            workers = [
                stack.enter_context(self._worker(number, way, root, database, history, settings(number)))
                for number, way in enumerate(ways)
            ]
            for worker in workers:
                worker.answer(_ready, PATIENCE)
            for worker in workers:
                worker.tell("begin")
            yield workers
            living = [worker for worker in workers if worker.returncode is None]
            for worker in living:
                worker.tell("end")
            for worker in living:
                self.counted.append(worker.answer(_counted, PATIENCE))
                worker.close(60)
                if worker.returncode != 0:
                    raise ServerError(f"{worker.name} ended with {worker.returncode}")
        self.findings = check(sorted(history.iterdir()), self.max_staleness)

    def _disturb(self, zookeeper: Server, proxy: Proxy, workers: Workers) -> None:
        """Faults begin after a quarter of the time, and end before the last one."""
        end = time.monotonic() + self.seconds
        time.sleep(self.seconds / 4)
        killed: int | None = None
        if self.cut:
            proxy.black_hole()
        if self.stop:
            workers[1].send(signal.SIGSTOP)
        if self.kill_leader and (killed := zookeeper.leader()) is not None:
            zookeeper.kill(killed)
        if self.cut or self.stop:
            time.sleep(self.session_timeout + 2.5)
        else:
            time.sleep(self.seconds / 2)
        proxy.heal()
        if self.stop:
            workers[1].send(signal.SIGCONT)
        if killed is not None:
            zookeeper.restart(killed, wait=False)
        time.sleep(max(0.0, end - time.monotonic()))

    def await_all(self, zookeeper: Way, root: str, processes: int | None = None) -> None:
        """Wait until all processes are connected again, and give them a moment to read."""
        with zkms.connect(zookeeper.hosts, root, cleaner=False, request_timeout=60.0) as bus:
            deadline = time.monotonic() + 60
            while len(bus.subscriptions("zkms.cache.rows")) < (processes or self.processes):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        time.sleep(1.0)

    @contextlib.contextmanager
    def _worker(
        self, number: int, through: Way, root: str, database: Path, history: Path, settings: list[str]
    ) -> Iterator[TalkingChild]:
        options = {
            "number": number,
            "hosts": through.hosts,
            "root": root,
            "database": str(database),
            "history": str(history),
            "keys": self.keys,
            "wait": self.wait,
            "session_timeout": self.session_timeout,
            "max_staleness": self.max_staleness,
            "without": self.without,
            "trail": self.trail,
        }
        program = "verification.faults.cache.aio_worker" if self.aio else "verification.faults.cache.worker"
        worker = TalkingChild(
            f"worker {number}",
            program,
            json.dumps(options),
            log=history.parent / f"worker-{number}.log",
            env=environment(settings),
        )
        try:
            yield worker
        finally:
            worker.kill()


def main() -> int:
    """Run it by hand, on a ZooKeeper of its own."""
    parser = argparse.ArgumentParser(prog="python -m verification.faults.cache.run")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--kill-leader", action="store_true")
    parser.add_argument("--aio", action="store_true")
    parser.add_argument("--without", choices=["guard", "gap", "wait", "trust"])
    run = Run(**vars(parser.parse_args()))
    with EmbeddedZooKeeper(3 if run.kill_leader else 1) as zookeeper, tempfile.TemporaryDirectory() as directory:
        run.on(zookeeper, "/checker", Path(directory))
    print(run)
    for line in [*run.findings.broken[:5], *run.findings.stale[:5]]:
        print(" ", line)
    return 1 if run.findings.broken or run.findings.stale else 0


if __name__ == "__main__":
    sys.exit(main())
