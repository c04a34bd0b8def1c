"""Measures a run: processes from /proc, the server by its own counters, the tree by counting names."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from zkms.config import Config
from zkms.publish.bodies import all_queues
from zkms.server.words import ask
from zkms.tree.paths import Tree
from zkms.zookeeper.recipes import read_many
from zkms.zookeeper.session import Session

MB = 1024 * 1024
SERVER = {
    "zk_znode_count": "znodes",
    "zk_watch_count": "watches",
    "zk_ephemerals_count": "ephemerals",
    "zk_outstanding_requests": "outstanding",
    "zk_num_alive_connections": "connections",
    "zk_approximate_data_size": "data_bytes",
    "zk_packets_received": "requests",
}


class Process(msgspec.Struct, frozen=True):
    """A process at one moment."""

    rss_mb: float
    threads: int
    files: int


class Sample(msgspec.Struct, frozen=True):
    """Everything at one moment; what could not be read is not there."""

    at: float
    """Seconds since the beginning."""
    processes: dict[str, Process]
    server: dict[str, int]
    queued: int
    """Entries in all queues."""
    published: int
    """Messages that were stored since the beginning."""
    received: int
    load: float
    """The machine's load average over the last minute."""


def look_at(pid: int) -> Process | None:
    """A process as it is now; None if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names are enough
    except OSError:
        return None
    found = dict(re.findall(r"^(VmRSS|Threads):\s+(\d+)", status, re.MULTILINE))
    if "VmRSS" not in found:  # a zombie has no memory
        return None
    return Process(round(int(found["VmRSS"]) / 1024, 2), int(found["Threads"]), files)


def ask_server(host: str, port: int) -> dict[str, int]:
    """The server's own counts, by `mntr`; nothing while it does not answer."""
    try:
        answer = ask(host, port, "mntr")
    except OSError:
        return {}
    found = re.findall(r"^(zk_\w+)\t(\d+)", answer, re.MULTILINE)
    return {SERVER[name]: int(value) for name, value in found if name in SERVER}


class Counter:
    """Counts what waits in queues, with a session of its own; nothing is read but names and Stats."""

    def __init__(self, hosts: str, root: str) -> None:
        self._session = Session(Config(hosts=hosts, root=root, cleaner=False))
        self._tree = Tree(root)

    def __enter__(self) -> Counter:
        self._session.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._session.close()

    def entries(self) -> int:
        """In all queues."""
        stats = self._ask(all_queues(self._session, self._tree))
        return sum(stats.values())

    def queue(self, name: str, topic: str) -> int:
        """In one."""
        return sum(self._ask([self._tree.queue(name, topic)]).values())

    def _ask(self, paths: Iterable[str]) -> dict[str, int]:
        stats = read_many(self._session, paths, self._session.exists_async)
        return {path: stat.numChildren for path, stat in stats.items() if stat is not None}


def trim(data: Path, keep: int = 3) -> None:
    """Remove the server's old snapshots and the logs before them, as its hourly purge would do in time."""
    snapshots = sorted(data.glob("**/snapshot.*"), key=_zxid)[:-keep]
    if not snapshots:
        return
    oldest = _zxid(sorted(data.glob("**/snapshot.*"), key=_zxid)[-keep])
    logs = sorted(data.glob("**/log.*"), key=_zxid)
    before = [log for log in logs if _zxid(log) <= oldest][:-1]  # the last of these reaches into the snapshot's time
    for path in (*snapshots, *before):
        path.unlink(missing_ok=True)


def _zxid(path: Path) -> int:
    try:
        return int(path.suffix[1:], 16)
    except ValueError:
        return 0


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._began
