"""Starts, controls and kills the processes of a scenario, and collects their reports.

They are forked from one small process that has zkms imported already, so that 200 of them start in seconds. A process
whose director is gone notices at its next report, and ends.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from verification.soak.stage import perform
from zkms.errors import ZkmsError

STARTED = 180.0
"""Seconds for all to connect, on a busy machine."""
STOPPED = 30.0


class SoakFailed(ZkmsError):
    """A scenario could not be carried out; the message says where and why."""


class Actor:
    """One process."""

    def __init__(self, name: str, role: str, context: Any, hosts: str, root: str, options: dict[str, Any]) -> None:
        self.name = name
        self.role = role
        self.counts: dict[str, Any] = {}
        """Its last report."""
        self.pipe, other = context.Pipe()
        self._process = context.Process(
            target=perform, args=(name, role, hosts, root, options, other), name=name, daemon=True
        )
        self._process.start()
        other.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self._process.pid)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return bool(self._process.is_alive())

    def tell(self, **orders: Any) -> None:
        """Send orders without waiting; does nothing if the process is gone."""
        try:
            self.pipe.send(orders)
        except OSError:
            return

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()

    def join(self, timeout: float) -> bool:
        """Wait until it is gone; whether it is."""
        self._process.join(timeout)
        return not self._process.is_alive()


class Cast:
    """All processes of a scenario, and what they tell. Use it in a `with` block."""

    def __init__(self, hosts: str, root: str) -> None:
        self._hosts = hosts
        self._root = root
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["verification.soak.roles"])
        self._actors: dict[Connection, Actor] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._listener = threading.Thread(target=self._listen, name="soak-listener", daemon=True)

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        for actor in self.actors:
            actor.kill()
        for actor in self.actors:
            actor.join(STOPPED)
        self._ended = True
        self._listener.join()

    @property
    def actors(self) -> list[Actor]:
        """Return the processes whose reports are read."""
        with self._lock:
            return list(self._actors.values())

    def start(self, name: str, role: str, **options: Any) -> Actor:
        """Start one; `ready` waits until it is connected."""
        actor = Actor(name, role, self._context, self._hosts, self._root, options)
        with self._lock:
            self._actors[actor.pipe] = actor
        return actor

    def ready(self, actors: Iterable[Actor], timeout: float = STARTED) -> None:
        """Return when all of them have told something; `SoakFailed` if one ends before."""
        deadline = time.monotonic() + timeout
        waiting = list(actors)
        while waiting := [actor for actor in waiting if not actor.counts]:
            for actor in waiting:
                if not actor.alive and not actor.counts:
                    raise SoakFailed(f"{actor.name} ended before it began: see what it wrote to stderr")
            if time.monotonic() > deadline:
                names = ", ".join(actor.name for actor in waiting[:5])
                raise SoakFailed(f"not ready after {timeout:g} s: {names}; is the machine overloaded?")
            time.sleep(0.05)

    def stop(self, actors: Iterable[Actor], timeout: float = STOPPED) -> None:
        """Let them finish and say their last counts; `SoakFailed` if one does not end."""
        ending = list(actors)
        for actor in ending:
            actor.tell(stop=True)
        deadline = time.monotonic() + timeout
        for actor in ending:
            if not actor.join(max(0.0, deadline - time.monotonic())):
                raise SoakFailed(f"{actor.name} did not end within {timeout:g} s")
        while set(ending) & set(self.actors) and time.monotonic() < deadline:
            time.sleep(0.01)  # until what they told last is read

    def total(self, what: str, actors: Iterable[Actor]) -> int:
        """A count, summed up."""
        return sum(int(actor.counts.get(what, 0)) for actor in actors)

    def _listen(self) -> None:
        while not self._ended:
            with self._lock:
                pipes = list(self._actors)
            if not pipes:
                time.sleep(0.05)
                continue
            for pipe in wait(pipes, timeout=0.2):
                assert isinstance(pipe, Connection)
                with self._lock:
                    actor = self._actors[pipe]
                try:
                    actor.counts = pipe.recv()
                except (EOFError, OSError):
                    with self._lock:
                        del self._actors[pipe]
                    pipe.close()
