"""The demo's steps. Each checks what it says: a claim that does not hold is `DemoFailed`."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
from zkms_cleaner import Cleaner

import zkms
from zkms.demo.cluster import DemoFailed, NodeProcess
from zkms.demo.database import USERS, Database
from zkms.demo.node import TOPIC
from zkms.publish.receipt import Receipt
from zkms.server.embedded import EmbeddedZooKeeper

NAMES = ("node-a", "node-b", "node-c")
VICTIM = 1
SESSION_TIMEOUT = 4.0
GRACE = 1.0
INTERVAL = 0.5
STREAM = 200
AFTER_KILL = 200
FLUSHED = 1.0
"""Seconds after which what has happened is in a node's trail."""
PATIENCE = 20.0
"""Seconds until something that has to happen counts as not happening."""
STOPPED = 5.0
"""Seconds for a node to end in good order."""

Say = Callable[[str], None]


class DemoSummary(msgspec.Struct, kw_only=True):
    """What was shown, in numbers."""

    nodes: int
    messages: int
    deliveries: int
    median_ms: float
    p99_ms: float
    stale_reads: int
    killed: str
    queued: int
    purged: int
    purged_after_s: float
    survivors_gaps: int
    seconds: float


class Story:
    """One run, from an empty machine to the summary."""

    def __init__(self, title: Say, say: Say, trail: str | None = None) -> None:
        self._title = title
        self._trail = trail
        self._say = say
        self._began = time.monotonic()
        self._random = random.Random(7)  # noqa: S311 - which user changes next is no secret
        self._published = 0
        self._waits: list[float] = []
        self._stale = 0
        self._stack = ExitStack()

    def run(self) -> DemoSummary:
        """Tell all of it; children and files are gone afterwards, also after an error or Ctrl-C."""
        with self._stack:
            self._set_up()
            self._invalidate_once()
            self._stream()
            queued, killed_at, receipt = self._kill()
            after = self._await_purge(queued, killed_at, receipt)
            gaps = self._check_survivors()
        return DemoSummary(
            nodes=len(NAMES),
            messages=self._published,
            deliveries=(self._published - AFTER_KILL) * len(self._nodes) + AFTER_KILL * len(self._survivors),
            median_ms=round(statistics.median(self._waits) * 1000, 2),
            p99_ms=round(statistics.quantiles(self._waits, n=100)[98] * 1000, 2),
            stale_reads=self._stale,
            killed=self._nodes[VICTIM].name,
            queued=queued,
            purged=queued,
            purged_after_s=round(after, 1),
            survivors_gaps=gaps,
            seconds=round(time.monotonic() - self._began, 1),
        )

    # -- the steps -----------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        self._title("A ZooKeeper, a database, three cache nodes and a cleaner start on this machine")
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="zkms-demo-")))
        server = self._stack.enter_context(EmbeddedZooKeeper())
        self._say(f"ZooKeeper listens on {server.hosts}")
        self._database = Database(folder / "users.db")
        self._stack.callback(self._database.close)
        self._database.create()
        self._nodes: list[NodeProcess] = []
        for name in NAMES:
            node = NodeProcess(
                name, server.hosts, folder / "users.db", SESSION_TIMEOUT, folder / f"{name}.log", self._trail
            )
            self._stack.callback(node.close, STOPPED)
            self._nodes.append(node)
        for node in self._nodes:
            node.await_ready()
            self._say(f"{node.name} is process {node.pid}, with a cache of its own, subscribed to {TOPIC!r}")
        self._bus = self._stack.enter_context(
            zkms.connect(server.hosts, client_id="writer", cleaner=False, trail=self._trail)
        )
        session, tree = self._bus.parts.session, self._bus.parts.tree
        cleaner = Cleaner(session, tree, "cleaner", interval=INTERVAL, grace=GRACE, trail=self._bus.parts.context.trail)
        cleaner.start()
        self._stack.callback(cleaner.close)
        self._say(f"the cleaner looks every {INTERVAL:g} s for what dead nodes have left behind")

    def _invalidate_once(self) -> None:
        self._title("Why: a cache that nobody tells is wrong")
        user = 7
        for node in self._nodes:
            node.read(USERS)
        self._say(f"every node has read all {len(USERS)} users, and keeps them in memory")
        old, new = self._database.name(user), "Ada"
        self._database.rename(user, new)
        stale = [node.read([user]).names[0] == old for node in self._nodes]
        self._claim(all(stale), "the caches did not hold the old name")
        self._say(f"user {user} becomes {new!r} in the database: {sum(stale)} of {len(stale)} nodes still say {old!r}")
        receipt = self._publish(user).wait(PATIENCE)
        self._claim(len(receipt.acked) == len(self._nodes), f"not everybody has acked: {receipt!r}")
        fresh = [node.read([user]).names[0] == new for node in self._nodes]
        self._claim(all(fresh), "a node still has the old name after it has acked")
        self._say(f"the writer publishes {user} to {TOPIC!r}; its receipt says who has dropped it: all three")
        self._say(f"asked again: {sum(fresh)} of {len(fresh)} nodes say {new!r}")

    def _stream(self) -> None:
        self._title(f"{STREAM} changes, each waited for until no node can serve the old value")
        for i in range(STREAM):
            user = self._random.choice(USERS)
            self._database.rename(user, name := f"user {user}, change {i}")
            began = time.monotonic()
            receipt = self._publish(user).wait(PATIENCE)
            self._waits.append(time.monotonic() - began)
            self._claim(len(receipt.acked) == len(self._nodes), f"not everybody has acked: {receipt!r}")
            self._stale += sum(node.read([user]).names[0] != name for node in self._nodes)
        self._claim(self._stale == 0, f"{self._stale} reads were stale")
        reads = STREAM * len(self._nodes)
        self._say(f"{reads:,} reads straight after a receipt, on every node after every change: 0 stale")
        median = statistics.median(self._waits) * 1000
        self._say(f"median time from publish() until all nodes had dropped the user: {median:.1f} ms")

    def _kill(self) -> tuple[int, float, Receipt]:
        victim = self._nodes[VICTIM]
        self._title(f"{victim.name} is killed with kill -9, and {AFTER_KILL} more changes are published")
        if self._trail is not None:
            time.sleep(FLUSHED)  # or the last lines of its trail would die with it
        victim.kill()
        killed_at = time.monotonic()
        receipts = []
        for i in range(AFTER_KILL):
            user = self._random.choice(USERS)
            self._database.rename(user, f"user {user}, change {STREAM + i}")
            receipts.append(self._publish(user))
        sent = sum(victim.subscription in receipt.pending for receipt in receipts)  # all, unless its session has ended
        self._await(lambda: all(self._waiting(node) == 0 for node in self._survivors), "survivors to catch up")
        queued = self._waiting(victim)
        self._claim(0 < queued == sent, f"{queued} entries wait for {victim.name}, not {sent}")
        self._say(f"{queued} messages wait in {victim.name}'s queue, none in the others': they have taken theirs")
        return queued, killed_at, receipts[0]

    def _await_purge(self, queued: int, killed_at: float, receipt: Receipt) -> float:
        victim = self._nodes[VICTIM]
        self._title("ZooKeeper notices, and the cleaner purges what nobody will ever read")
        topic = self._bus.subscriptions
        self._await(lambda: len(topic(TOPIC)) == len(self._survivors), f"{victim.name}'s session to end")
        ended = time.monotonic() - killed_at
        self._say(
            f"after {ended:.1f} s ZooKeeper ends its session (time-out {SESSION_TIMEOUT:g} s): nobody sends to it"
        )
        self._await(lambda: self._waiting(victim) < 0, f"{victim.name}'s queue to be purged")
        after = time.monotonic() - killed_at
        self._say(f"after {after:.1f} s the cleaner has purged its queue, {queued} entries (grace {GRACE:g} s)")
        gone = receipt.wait(PATIENCE).gone
        self._claim(len(receipt.acked) == len(self._survivors), f"the survivors have not acked: {receipt!r}")
        self._claim(victim.subscription in gone, f"the receipt does not know that {victim.name} is gone: {receipt!r}")
        names = " and ".join(node.name for node in self._survivors)
        self._say(f"the receipt of the first of them: acked by {names}; {victim.name}: {gone[victim.subscription]!r}")
        return after

    def _check_survivors(self) -> int:
        self._title("The others have noticed nothing")
        truth = [self._database.name(user) for user in USERS]
        gaps = 0
        for node in self._survivors:
            answer = node.read(USERS)
            gaps += answer.gaps
            self._claim(answer.names == truth, f"{node.name} does not agree with the database")
            self._claim(answer.heard == self._published, f"{node.name} heard {answer.heard} of {self._published}")
            self._say(f"{node.name} has heard all {answer.heard} messages, and agrees with the database on every user")
        self._claim(gaps == 0, f"{gaps} gaps were announced")
        return gaps

    # -- tools ---------------------------------------------------------------------------------------------------

    @property
    def _survivors(self) -> list[NodeProcess]:
        return [node for i, node in enumerate(self._nodes) if i != VICTIM]

    def _publish(self, user: int) -> Receipt:
        self._published += 1
        return self._bus.publish(TOPIC, user, key=str(user))

    def _waiting(self, node: NodeProcess) -> int:
        """Entries in a node's queue, -1 if there is none."""
        return next((q.entries for q in self._bus.queues() if q.subscription == node.subscription), -1)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self._claim(time.monotonic() < deadline, f"waited {PATIENCE:g} s in vain for {what}")
            time.sleep(0.02)

    def _claim(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise DemoFailed(f"the demo does not hold what it says: {otherwise}")
