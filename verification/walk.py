"""`python -m verification.walk`: prints the files that a message's path crosses, in order, thread by thread.

It publishes to one live subscription, and to one group that acks, on an embedded ZooKeeper (or on `--hosts`), and
prints for each step how many files of zkms were entered and how often a call led from one file into another. Everything
was done once before, so that what is only done the first time is not counted. `--files` lists the files of each walk.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import zkms
from zkms.server.embedded import EmbeddedZooKeeper

HOME = str(Path(zkms.__file__).parent) + "/"
TOPIC = "walk"
ROUNDS = 5
"""Rounds that are measured; the shortest counts, as the others may have met a sweep or a reconnect."""

Walk = list[str]
"""The files that were entered, one for each time that a call led from one file into another."""


class Walker:
    """Notes on every thread that began since it was installed which files calls lead to."""

    def __init__(self) -> None:
        self.walks: dict[str, Walk] | None = None
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def _event(self, frame: FrameType, event: str, _argument: Any) -> None:
        walks = self.walks
        if walks is None or event != "call" or not frame.f_code.co_filename.startswith(HOME):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(HOME):
            caller = caller.f_back
        if caller is None or caller.f_code.co_filename != frame.f_code.co_filename:
            name = threading.current_thread().name
            walks.setdefault(name, []).append(frame.f_code.co_filename.removeprefix(HOME))

    @contextlib.contextmanager
    def noting(self) -> Iterator[dict[str, Walk]]:
        """What is called in the block, by thread."""
        walks: dict[str, Walk] = {}
        self.walks = walks
        try:
            yield walks
        finally:
            self.walks = None


def shortest(
    walker: Walker, step: Callable[[], object], before: Callable[[], object] = lambda: None
) -> dict[str, Walk]:
    """The walk with the fewest crossings on our own thread."""
    found = []
    for _ in range(ROUNDS + 1):
        before()
        with walker.noting() as walks:
            step()
        found.append(walks)
    return min(found[1:], key=lambda walks: len(walks.get("MainThread", ())) or sum(map(len, walks.values())))


def report(what: str, walks: dict[str, Walk], *, files: bool) -> None:
    """Print one line for each thread."""
    for thread, walk in sorted(walks.items(), key=lambda item: item[0] != "MainThread"):
        print(f"{what:<24} {thread:<28} {len(set(walk)):>3} files {len(walk):>4} crossings")
        if files:
            print("    " + " > ".join(walk))


def measure(hosts: str, *, files: bool) -> None:
    """Walk the three ways."""
    walker = Walker()
    heard = threading.Event()
    with (
        zkms.connect(hosts, "/walk", cleaner=False) as bus,
        zkms.connect(hosts, "/walk", cleaner=False) as reader,
    ):
        reader.subscribe(TOPIC, lambda _message: heard.set())
        report("publish", shortest(walker, lambda: bus.publish(TOPIC, {"n": 1})), files=files)

        def deliver() -> None:
            heard.clear()
            bus.publish(TOPIC, {"n": 1})
            heard.wait(10)
            time.sleep(0.1)  # for the ack

        walks = shortest(walker, deliver)
        walks.pop("MainThread", None)
        report("publish + live delivery", walks, files=files)

        consumer = reader.subscribe(f"{TOPIC}.group", group="walkers", partitions=1)

        def publish() -> None:
            bus.publish(f"{TOPIC}.group", {"n": 1}, key="k")
            time.sleep(0.3)  # it is to lie ready

        def consume() -> None:
            message = consumer.get(timeout=10)
            assert message is not None
            message.ack()

        report("group: get() and ack()", shortest(walker, consume, before=publish), files=files)


def main() -> None:
    """Parse, walk, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--hosts", help="a ZooKeeper; else an embedded one is started")
    parser.add_argument("--files", action="store_true", help="list the files, in the order of the calls")
    options = parser.parse_args()
    if options.hosts:
        measure(options.hosts, files=options.files)
        return
    with EmbeddedZooKeeper() as server:
        measure(server.hosts, files=options.files)


if __name__ == "__main__":
    main()
