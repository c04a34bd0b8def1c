"""Many delayed messages while leaders are killed, and what came of it: early, lost, twice, and how late.

`python -m tests.support.delayed_load HOSTS [MESSAGES [SPAN]]` runs it at full size and prints the figures.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

import zkms
from zkms.testing.roots import delete_root, new_root

PROGRAM = Path(__file__).with_name("programs") / "leader.py"
TOPIC = "reminders"
CATCH_UP = 3.0
"""Seconds that a new leader has for what became due while there was none."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of all messages; lateness in seconds."""

    messages: int
    early: int
    lost: int
    twice: int
    calm: list[float]
    """Lateness of those that were due while there was a leader, sorted."""
    shaken: list[float]
    """Lateness of those that were due while there was none, sorted."""
    after: list[float]
    """Lateness of those that were due while a new leader worked off what the dead one had left, sorted."""

    def __str__(self) -> str:
        parts = [
            f"{name}: {len(late):,} messages, p50 {at(late, 0.5) * 1000:.0f} ms, p99 {at(late, 0.99) * 1000:.0f} ms, "
            f"max {late[-1] * 1000:.0f} ms"
            for name, late in (
                ("with a leader", self.calm),
                ("without", self.shaken),
                ("while a new one catches up", self.after),
            )
            if late
        ]
        return f"{self.messages:,} messages: {self.early} early, {self.lost} lost, {self.twice} twice; " + "; ".join(
            parts
        )


def at(values: list[float], share: float) -> float:
    """A percentile of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


class Leader:
    """A process that stands for election, and can be killed."""

    def __init__(self, hosts: str, root: str, session_timeout: float, trail: Path | None = None) -> None:
        """Start it, and return when it stands or leads."""
        command = [sys.executable, str(PROGRAM), hosts, root, str(session_timeout)]
        command += [] if trail is None else [str(trail)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.leads = threading.Event()
        self.since = 0.0
        self._connected = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._connected.wait(60)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._connected.set()
            if line.strip() == "leads":
                self.since = time.time()
                self.leads.set()

    def kill(self) -> float:
        """End it without a goodbye, and return when that was."""
        self._process.kill()
        self._process.wait()
        return time.time()


def run(
    hosts: str,
    root: str,
    messages: int,
    span: float,
    *,
    session_timeout: float = 4.0,
    seed: int = 1,
    trail: Path | None = None,
) -> Outcome:
    """Delay messages by 0 to `span` seconds, and kill the leader twice meanwhile."""
    got: dict[int, list[float]] = {}
    lock = threading.Lock()

    def hear(message: zkms.Message) -> None:
        with lock:
            got.setdefault(message.data, []).append(time.time())

    leaders: list[Leader] = []
    chance = random.Random(seed)
    due: dict[int, float] = {}
    unled: list[tuple[float, float]] = []
    plain = {"cleaner": False, "trail": trail}
    with zkms.connect(hosts, root, **plain) as bus, zkms.connect(hosts, root, **plain) as listener:
        try:
            leaders.append(Leader(hosts, root, session_timeout, trail))
            assert leaders[0].leads.wait(60)
            leaders += [Leader(hosts, root, session_timeout, trail) for _ in range(2)]
            listener.subscribe(TOPIC, hear, name="all", limit=max(100_000, messages))
            began = time.monotonic()
            killer = threading.Thread(target=_kill, args=(leaders, unled, span, began))
            killer.start()
            for n in range(messages):
                receipt = bus.publish(TOPIC, n, delay=chance.uniform(0, span))
                assert receipt.due is not None
                due[n] = receipt.due
            killer.join()
            deadline = time.monotonic() + span + 60
            while len(got) < messages and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(1.0)  # for what might come twice
            assert bus.delayed() == [] or len(got) < messages
        finally:
            for leader in leaders:
                leader.kill()
    late = {n: times[0] - due[n] for n, times in got.items()}
    shaken = {n for n in late if any(begin - 0.5 <= due[n] <= end + 0.5 for begin, end in unled)}
    after = {n for n in late if n not in shaken and any(end <= due[n] <= end + CATCH_UP for _, end in unled)}
    return Outcome(
        messages,
        early=sum(seconds < -0.001 for seconds in late.values()),
        lost=messages - len(got),
        twice=sum(len(times) > 1 for times in got.values()),
        calm=sorted(seconds for n, seconds in late.items() if n not in shaken | after),
        shaken=sorted(late[n] for n in shaken),
        after=sorted(late[n] for n in after),
    )


def _kill(leaders: list[Leader], unled: list[tuple[float, float]], span: float, began: float) -> None:
    """Kill who leads, twice, and note from when to when nobody led."""
    current, *others = leaders
    for share in (0.1, 0.7):
        time.sleep(max(0.0, began + share * span - time.monotonic()))
        died = current.kill()
        while not any(leader.leads.is_set() for leader in others):
            time.sleep(0.02)
        current = next(leader for leader in others if leader.leads.is_set())
        others.remove(current)
        unled.append((died, current.since))


def main(hosts: str, messages: str = "10000", span: str = "30") -> None:
    """Print what came of it."""
    root = new_root()
    try:
        print(run(hosts, root, int(messages), float(span), session_timeout=10.0))
    finally:
        delete_root(hosts, root)


if __name__ == "__main__":
    main(*sys.argv[1:])
