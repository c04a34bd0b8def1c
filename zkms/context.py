"""The objects that every room gets: config, session, tree, client id, trail and lifetime. Never the bus."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from zkms.config import Config
from zkms.errors import Closed, ZkmsError
from zkms.trail.hooks import Recorder
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session

log = logging.getLogger("zkms")


class Lifetime:
    """Whether a bus is open, and what is called when it closes."""

    def __init__(self) -> None:
        self.closed = False
        """Whether the bus takes no more calls."""
        self._ending = False
        self._before: list[Callable[[float], object]] = []
        self._steps: tuple[Callable[[float], object], ...] = ()

    def before_close(self, callback: Callable[[float], object]) -> Callable[[], None]:
        """Call `callback` with the seconds left when the bus begins to close, while messages can still be sent.

        Returns a function that removes the callback.
        """
        self._before.append(callback)
        return lambda: self._before.remove(callback)

    def on_close(self, *steps: Callable[[float], object]) -> None:
        """Set the steps of closing, in order; each is called with the seconds left."""
        self._steps = steps

    def close(self, timeout: float) -> None:
        """Close within `timeout` seconds. Does nothing when called again."""
        if self._ending:
            return
        self._ending = True
        deadline = time.monotonic() + timeout
        for callback in [*self._before]:
            try:
                callback(max(0.0, deadline - time.monotonic()))
            except Exception:
                log.exception("%s raised; the bus is closed nevertheless", callback)
        self.closed = True
        for step in self._steps:
            step(max(0.0, deadline - time.monotonic()))


class Context(msgspec.Struct, frozen=True, eq=False):
    """One connected process, as every room uses it."""

    config: Config
    session: Session
    tree: Tree
    client_id: str
    trail: Recorder
    """Records everything that happens to messages; does nothing if no trail was requested."""
    lifetime: Lifetime = msgspec.field(default_factory=Lifetime)

    def check_open(self) -> None:
        """Raise `Closed` if the bus is closed, `UsedAfterFork` in a forked child."""
        self.session.check_process()
        if self.lifetime.closed:
            raise Closed("the bus is closed")

    def close(self, timeout: float) -> None:
        """Close the bus. In a forked child this only marks it as closed: everything belongs to the parent."""
        try:
            self.session.check_process()
        except ZkmsError:
            self.lifetime.closed = True
            return
        self.lifetime.close(timeout)
