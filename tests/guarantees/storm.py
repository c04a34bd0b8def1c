"""A group in a storm: members are killed, paused, added and removed every second, and ZooKeeper is restarted.

    python -m tests.guarantees.storm --messages 100000 --seed 1

prints what happened and whether the guarantees held. The test-suite runs a small one.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import zkms
from zkms.server.server import Server
from zkms.testing import EmbeddedZooKeeper
from zkms.tree.records import Ledger, decode

MEMBER = Path(__file__).parent / "programs" / "member.py"
WAYS = ("handler", "manual", "fetch")
PRODUCERS = 10
KEYS = 50
BATCH = 50


class Verdict(NamedTuple):
    """What the members wrote down, and what is left in ZooKeeper."""

    missing: int
    """Messages that nobody has handled."""
    out_of_order: int
    """Messages that were first handled before an earlier one of their key."""
    acked_twice: int
    """Messages whose ack was stored more than once."""
    left: int
    """Entries still in queues, and entries that a ledger still knows."""
    dead: int
    repeated: int
    """Handlings of a message beyond the first: allowed, at least once is what is promised."""
    refused: int
    """Acks that were refused, for the partition was another's."""

    @property
    def holds(self) -> bool:
        """Whether every guarantee held."""
        return not (self.missing or self.out_of_order or self.acked_twice or self.left or self.dead)


class Storm:
    """One run."""

    def __init__(
        self,
        server: Server,
        root: str,
        directory: Path,
        messages: int,
        seed: int,
        attempts: int = 3,
        trail: Path | None = None,
    ) -> None:
        self._server = server
        self._root = root
        self._directory = directory
        self._messages = messages
        self._attempts = attempts
        self._trail = trail
        """Where all of them record what happens, if that is wanted."""
        self._chance = random.Random(seed)
        self._members: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.done: Counter[str] = Counter()
        """What was done to members and to ZooKeeper."""
        self._failed: list[BaseException] = []

    def run(self, members: int, seconds: float, restarts: int, pause: float = 5.0) -> Verdict:
        """Blow for so many seconds at least, and as long as anything is published; then let it settle, and judge."""
        with self._connect() as bus:
            bus.create_group("jobs", "workers", partitions=8)
            try:
                for _ in range(members):
                    self._add()
                publishing = [
                    threading.Thread(target=self._publish, args=(name, seconds)) for name in range(PRODUCERS)
                ]  # fmt: skip
                for thread in publishing:
                    thread.start()
                self._blow(members, seconds, restarts, pause, publishing)
                for thread in publishing:
                    thread.join()
                if self._failed:
                    raise self._failed[0]
                self._settle(bus)
            finally:
                for member in self._members:
                    member.kill()
                    member.wait()
            return self._judge(bus)

    def _connect(self) -> zkms.Bus:
        options = {"cleaner": False, "request_timeout": 120.0, "trail": self._trail}
        return zkms.connect(self._server.hosts, root=self._root, **options)

    def _add(self) -> None:
        how = WAYS[self._started % len(WAYS)]
        file = self._directory / f"member-{self._started}"
        self._started += 1
        command = [sys.executable, MEMBER, self._server.hosts, self._root, file, how, str(self._attempts)]
        command += [] if self._trail is None else [self._trail]
        self._members.append(subprocess.Popen(command))

    def _publish(self, name: int, seconds: float) -> None:
        """Our share of the messages, spread over the time; the keys of one producer are its own."""
        share = self._messages // PRODUCERS
        numbers = range(0, share, BATCH)
        try:
            with self._connect() as bus:
                for start in numbers:
                    batch = list(range(start, min(start + BATCH, share)))
                    each = KEYS // PRODUCERS
                    bus.publish_many("jobs", batch, key=lambda n: f"{name}-{n % each}", timeout=120)
                    time.sleep(seconds / len(numbers) * 0.7)
        except BaseException as error:
            self._failed.append(error)
            raise

    def _blow(
        self, members: int, seconds: float, restarts: int, pause: float, publishing: list[threading.Thread]
    ) -> None:
        began = time.monotonic()
        due = [began + seconds * (i + 1) / (restarts + 1) for i in range(restarts)]
        while time.monotonic() < began + seconds or any(thread.is_alive() for thread in publishing):
            time.sleep(1.0)
            if due and time.monotonic() >= due[0]:
                due.pop(0)
                self._server.kill(0)
                self._server.restart(0)
                self.done["ZooKeeper restarted"] += 1
                continue
            victim = self._chance.choice(self._members)
            what = self._chance.choice(("killed", "paused", "added", "removed"))
            if what == "killed":
                victim.kill()
                self._members.remove(victim)
                self._add()
            elif what == "paused":
                victim.send_signal(signal.SIGSTOP)
                time.sleep(self._chance.choice((0.5, pause)))
                victim.send_signal(signal.SIGCONT)
            elif what == "added" and len(self._members) <= members:
                self._add()
            elif what == "removed" and len(self._members) > max(2, members - 2):
                victim.terminate()
                self._members.remove(victim)
            else:
                continue
            self.done[what] += 1

    def _settle(self, bus: zkms.Bus) -> None:
        if not self._members:
            self._add()
        deadline = time.monotonic() + 120
        while sum(queue.entries for queue in bus.queues()) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _judge(self, bus: zkms.Bus) -> Verdict:
        lines = [
            line.split()
            for file in self._directory.iterdir()
            for line in file.read_text().splitlines(keepends=True)
            if line.endswith("\n")  # the last one of a member that was killed may not be whole
        ]
        handled = sorted((float(at), key, int(number)) for kind, key, number, at in lines if kind == "h")
        first: dict[str, list[int]] = defaultdict(list)
        seen: set[tuple[str, int]] = set()
        for _, key, number in handled:
            if (key, number) not in seen:
                seen.add((key, number))
                first[key].append(number)
        acked = Counter((key, number) for kind, key, number, _ in lines if kind == "a")
        return Verdict(
            missing=self._messages - len(seen),
            out_of_order=sum(
                number < max(numbers[:place], default=-1)
                for numbers in first.values()
                for place, number in enumerate(numbers)
                if number < numbers[place - 1] and place
            ),
            acked_twice=sum(count > 1 for count in acked.values()),
            left=sum(queue.entries for queue in bus.queues()) + sum(len(ledger.parts) for ledger in ledgers(bus)),
            dead=letters(bus),
            repeated=len(handled) - len(seen),
            refused=sum(kind == "r" for kind, *_ in lines),
        )


def ledgers(bus: zkms.Bus) -> list[Ledger]:
    """What the group knows of its partitions."""
    parent = bus.parts.tree.ledgers("workers", "jobs")
    return [
        decode(bus.parts.session.get(f"{parent}/{name}")[0], Ledger) for name in bus.parts.session.children(parent)[0]
    ]


def letters(bus: zkms.Bus) -> int:
    """How many dead letters there are."""
    try:
        return len(bus.parts.session.children(bus.parts.tree.dead_queue("workers", "jobs"))[0])
    except zkms.NodeMissing:
        return 0


def main() -> None:
    """Run one storm, and say how it went."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--restarts", type=int, default=2)
    arguments = parser.parse_args()
    with EmbeddedZooKeeper() as server, tempfile.TemporaryDirectory() as directory:
        storm = Storm(server, "/zkms", Path(directory), arguments.messages, arguments.seed)
        began = time.monotonic()
        verdict = storm.run(arguments.members, arguments.seconds, arguments.restarts)
        print(
            f"{arguments.messages} messages, seed {arguments.seed}, {time.monotonic() - began:.0f} s:", dict(storm.done)
        )
        print(verdict)
        print("every guarantee held" if verdict.holds else "A GUARANTEE WAS BROKEN")
        sys.exit(not verdict.holds)


if __name__ == "__main__":
    main()
