"""Reads two messages of a durable subscription, and is killed as soon as ZooKeeper has stored its acks."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import zkms
from zkms.consume.ledger_commits import Ownership
from zkms.replay.cursor import Cursor
from zkms.trail import Trail


def die(_hold: Ownership, commit: Any, _zxid: int | None) -> None:
    """In place of telling anybody that a commit is stored."""
    if all(entry.complete for entry, _ in commit.entries):
        os.kill(os.getpid(), signal.SIGKILL)


def await_line(trail: Path, event: str) -> None:
    """Until our trail says so on disk."""
    deadline = time.monotonic() + 60
    while not any(f'"{event}"'.encode() in file.read_bytes() for file in trail.glob("reader-*")):
        if time.monotonic() > deadline:
            raise SystemExit(f"no {event!r} was written")
        time.sleep(0.01)


def main(kind: str, hosts: str, root: str, trail: str) -> None:
    """Read, by place or message by message; only what happens before "ready" is written to the trail."""
    bus = zkms.connect(hosts, root=root, cleaner=False, trail=Trail(directory=trail, flush=0.5), client_id="reader")
    Ownership._succeed = die  # type: ignore[method-assign]
    if kind == "durable":
        subscription = bus.subscribe("users", name="etl")
        await_line(Path(trail), "subscribed")
        print("ready", flush=True)
        subscription.ack(subscription.fetch(2, timeout=60))
    else:
        cursor = Cursor(bus.parts, "users", "etl")
        cursor.open()
        await_line(Path(trail), "subscribed")
        print("ready", flush=True)
        cursor.ack(cursor.advance(cursor.begin(), wait=60.0))


if __name__ == "__main__":
    main(*sys.argv[1:])
