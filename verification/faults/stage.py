"""The environment of a trial: the servers, how each process reaches them, and the victims of the fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from verification.faults.clocks import Clock
from verification.faults.ensemble import Ensemble
from zkms.testing import Proxy


@dataclass
class Way:
    """How one process reaches ZooKeeper, and what it is started with."""

    hosts: str
    settings: list[str] = field(default_factory=list)
    """Environment, as NAME=VALUE."""
    proxy: Proxy | None = None
    clock: Clock | None = None


@dataclass
class Stage:
    """What a nemesis can act on."""

    ensemble: Ensemble
    directory: Path
    chance: random.Random
    proxied: bool = False
    clocked: bool = False
    ways: dict[str, Way] = field(default_factory=dict)
    """By the name of the process, consumers first."""
    victims: set[str] = field(default_factory=set)
    """Processes that are themselves disturbed: their pauses are not ZooKeeper's."""
    kill: Callable[[str], None] = lambda _name: None
    """Ends a process without warning."""
    again: Callable[[str], None] = lambda _name: None
    """Starts another one in place of a process that was killed."""
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def way(self, name: str) -> Way:
        """The way of a process: through a proxy, or with a clock, of its own where the nemesis needs that."""
        if name not in self.ways:
            way = Way(self.ensemble.server.hosts)
            if self.proxied:
                way.proxy = self._stack.enter_context(Proxy(way.hosts))
                way.hosts = way.proxy.hosts
            if self.clocked:
                way.clock = Clock(self.directory / f"{name}.clock")
                way.settings += way.clock.injected()
            self.ways[name] = way
        return self.ways[name]

    def proxies(self) -> list[Proxy]:
        """Those of all processes."""
        return [way.proxy for way in self.ways.values() if way.proxy is not None]

    def choose(self) -> list[str]:
        """One process of each role, as victims: the first consumer and the first publisher, or a cache's process."""
        chosen = [name for name in self.ways if name.endswith("-0")]
        self.victims.update(chosen)
        return chosen
