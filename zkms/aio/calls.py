"""Where blocking calls go: a few threads for one event loop, and the way back to it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from zkms.errors import Closed, UsedInAnotherLoop

log = logging.getLogger("zkms.aio")
P = ParamSpec("P")
T = TypeVar("T")
WORKERS = 4
"""Calls that may wait for ZooKeeper at the same time; others queue."""


class Calls:
    """Runs calls that may wait on threads, and steps on the event loop. Made in the loop that it serves."""

    def __init__(self, orphaned: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._workers = ThreadPoolExecutor(WORKERS, "zkms-aio")
        self._sender = ThreadPoolExecutor(1, "zkms-aio-send")
        """Publishing has a thread of its own: in order, and never behind a call that waits."""
        self.undoing: dict[str, Future[Any]] = {}
        """By name: what was opened for nobody, and is being closed (see opening.py)."""
        self._orphaned = orphaned
        self._lost = threading.Lock()

    def check_loop(self) -> None:
        """Raise `UsedInAnotherLoop` unless ours is the one that runs."""
        if asyncio.get_running_loop() is not self.loop:
            raise UsedInAnotherLoop(self.loop.is_closed())

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it on a worker."""
        return _submit(self._workers, call, *args, **kwargs)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it on a worker and wait. When cancelled, what has begun goes on to its end, without anyone waiting."""
        self.check_loop()
        return await asyncio.wrap_future(self.submit(call, *args, **kwargs))

    async def finished(self, call: Future[Any]) -> None:
        """Wait until it is done; the waiting can be cancelled, the call goes on."""
        done = asyncio.Event()
        call.add_done_callback(lambda _: self.post(done.set))
        await done.wait()

    def submit_send(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it on the thread for publishing, after everything submitted before."""
        return _submit(self._sender, call, *args, **kwargs)

    def post(self, step: Callable[..., None], *args: object) -> None:
        """Run a step on the loop, from any thread. If the loop was closed under us, say so and end the bus."""
        try:
            self.loop.call_soon_threadsafe(step, *args)
        except RuntimeError:
            if self._lost.acquire(blocking=False):  # the first to notice
                log.error(
                    "the event loop was closed before the bus was: use `async with`, or await bus.close(). Closing it"
                )
                self._orphaned()

    def here_or_post(self, step: Callable[[], None]) -> None:
        """Run a step at once if we are on the loop, else post it."""
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            step()
        else:
            self.post(step)

    def close(self) -> None:
        """End the threads when they have done what they were given."""
        self._lost.acquire(blocking=False)
        self._workers.shutdown(wait=False)
        self._sender.shutdown(wait=False)


def _submit(pool: ThreadPoolExecutor, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    try:
        return pool.submit(call, *args, **kwargs)
    except RuntimeError as error:  # the pool has been shut down
        raise Closed("the bus is closed") from error
