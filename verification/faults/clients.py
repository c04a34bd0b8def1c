"""Clients that are killed, black-holed, slow to be reached, cut off after a commit, or have the wrong time."""

from __future__ import annotations

import threading

from verification.faults.nemesis import Nemesis
from verification.faults.outages import HOUR
from verification.faults.stage import Stage

SLOWEST = 0.08
"""Seconds that a frame is held back at the most, in each direction."""


class _Proxied(Nemesis):
    """A fault in the proxies between clients and servers, which is repeated."""

    proxied = True

    def __init__(self) -> None:
        """Make it; nothing is disturbed yet."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, stage: Stage) -> None:
        """Call `disturb` repeatedly, after the seconds that it returns."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._go_on, args=(stage,), name=self.name)
        self._thread.start()

    def end(self, stage: Stage) -> None:
        """Whole again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for proxy in stage.proxies():
            proxy.heal()

    def _go_on(self, stage: Stage) -> None:
        while not self._stop.wait(self.disturb(stage)):
            pass

    def disturb(self, stage: Stage) -> float:
        """Disturb once, and return how many seconds to wait."""
        raise NotImplementedError


class SlowNetwork(_Proxied):
    """Every frame between clients and servers is held back for a while that changes all the time."""

    name = "slow-network"
    about = f"every frame between clients and servers held back by 0 to {SLOWEST * 1000:.0f} ms each way, changing"

    def disturb(self, stage: Stage) -> float:
        """Change each client's delay."""
        for proxy in stage.proxies():
            proxy.delay(stage.chance.uniform(0.0, SLOWEST))
        return 0.02


class CutAfterCommit(_Proxied):
    """Connections break after a transaction was carried out and before its reply, or just before the transaction."""

    name = "cut-after-commit"
    about = "connections cut at the 1st to 8th transaction from now, four of five after its commit, every 150 ms"

    def disturb(self, stage: Stage) -> float:
        """Cut somebody's connection at one of the next transactions."""
        proxy = stage.chance.choice(stage.proxies())
        cut = proxy.cut_reply if stage.chance.random() < 0.8 else proxy.cut_request
        cut(stage.chance.randint(1, 8), op="multi")
        return 0.15


class BlackHole(Nemesis):
    """All packets of some clients are dropped, with open connections, for longer than their sessions."""

    name = "client-black-holed"
    about = "a consumer's and a publisher's traffic vanishes, connections open, for longer than their sessions"
    proxied = True
    longer_than_a_session = True

    def begin(self, stage: Stage) -> None:
        """Drop all packets of the victims."""
        for name in stage.choose():
            proxy = stage.ways[name].proxy
            assert proxy is not None
            proxy.black_hole()

    def end(self, stage: Stage) -> None:
        """Let it through again."""
        for proxy in stage.proxies():
            proxy.heal()


class ClientKilled(Nemesis):
    """A consumer and a publisher are killed; others replace them."""

    name = "client-killed"
    about = "SIGKILL of a consumer and of a publisher; others start in their places"

    def begin(self, stage: Stage) -> None:
        """Kill them."""
        for name in stage.choose():
            stage.kill(name)

    def end(self, stage: Stage) -> None:
        """Start others."""
        for name in sorted(stage.victims):
            stage.again(name)


class ClientClockJumped(Nemesis):
    """A consumer's wall clock, in the delayed workload a cleaner's as well, goes an hour ahead, and back."""

    name = "client-clock"
    about = "a consumer's wall clock jumps an hour ahead, and back (what time.time() returns)"
    clocked = True
    # Only the leading cleaner's clock decides when a delayed message is due.
    excuses = frozenset({"early"})

    def begin(self, stage: Stage) -> None:
        """Jump ahead: only the first consumer, because a publisher's clock decides when its messages are due."""
        self._jump(stage, HOUR)

    def end(self, stage: Stage) -> None:
        """And back."""
        self._jump(stage, 0)

    def _jump(self, stage: Stage, seconds: int) -> None:
        name = next(iter(stage.ways))
        stage.victims.add(name)
        clock = stage.ways[name].clock
        assert clock is not None
        clock.jump(seconds)
