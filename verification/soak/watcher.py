"""Takes samples of a scenario while it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from verification.soak.cast import Actor, Cast
from verification.soak.meters import Clock, Counter, Process, Sample, ask_server, look_at, trim
from verification.soak.verdict import FEWEST
from zkms.server.embedded import EmbeddedZooKeeper

SENDERS = ("publisher", "planner")
READERS = ("listener", "reader", "member", "planner")


class Watcher:
    """Measures the permanent processes, the server and the tree."""

    def __init__(self, cast: Cast, actors: Sequence[Actor], server: EmbeddedZooKeeper | None, hosts: str) -> None:
        self.samples: list[Sample] = []
        self.actors = list(actors)
        self._cast = cast
        self._server = server
        host, _, port = hosts.split(",")[0].split("/")[0].rpartition(":")
        self._address = host, int(port)
        self._clock = Clock()

    def sample(self, counter: Counter) -> Sample:
        """Now; kept in `samples`."""
        processes: dict[str, Process] = {}
        for actor in self.actors:
            found = look_at(actor.pid)
            if found is not None:
                processes[actor.name] = found
        pid = self._server.pids[0] if self._server is not None else None
        if pid is not None and (found := look_at(pid)) is not None:
            processes["server"] = found
        sample = Sample(
            at=round(self._clock(), 2),
            processes=processes,
            server=ask_server(*self._address),
            queued=counter.entries(),
            published=self._cast.total("published", (a for a in self.actors if a.role in SENDERS)),
            received=self._cast.total("received", (a for a in self.actors if a.role in READERS)),
            load=round(os.getloadavg()[0], 2),
        )
        self.samples.append(sample)
        if self._server is not None:
            trim(self._server.data)
        return sample

    def watch(
        self, seconds: float, every: float, counter: Counter, between: Callable[[float], None] = lambda _at: None
    ) -> list[str]:
        """Take samples for so long, and no less than can be judged; tells who died on the way.

        `between` is called about four times a second.
        """
        end = time.monotonic() + seconds
        due = time.monotonic()
        dead: dict[str, str] = {}
        while time.monotonic() < end or len(self.samples) < 3 * FEWEST:
            if time.monotonic() >= due:
                due += every
                self.sample(counter)
            between(self._clock())
            for actor in self.actors:
                if not actor.alive:
                    dead.setdefault(actor.name, f"{actor.name} died")
            time.sleep(0.25)
        return list(dead.values())
