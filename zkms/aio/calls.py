"""Where blocking calls go: a few threads for one event loop, and the way back to it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from types import CoroutineType, TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from zkms.errors import Closed, InvalidArgument, UsedInAnotherLoop

log = logging.getLogger("zkms.aio")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
WORKERS = 4
"""Calls that may wait for ZooKeeper at the same time; others queue."""
SLICE = 0.005
"""Seconds after which the loop is given to others, however much is there to be done."""


class Calls:
    """Runs calls that may wait on threads, and steps on the event loop. Made in the loop that it serves."""

    def __init__(self, orphaned: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._workers = ThreadPoolExecutor(WORKERS, "zkms-aio")
        self._sender = ThreadPoolExecutor(1, "zkms-aio-send")
        """Publishing has a thread of its own: in order, and never behind a call that waits."""
        self.undoing: dict[str, Future[Any]] = {}
        """By name: what was opened for nobody, and is being closed (see `OpenedOnce`)."""
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


class Twin(Generic[S]):
    """Stands on a threaded object: `awaited` methods run on a worker, `passed_on` ones do not wait."""

    __slots__ = ("_calls", "_threaded")

    def __init__(self, calls: Calls, threaded: S) -> None:
        self._calls = calls
        self._threaded = threaded


def awaited(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Twin[S], P], Coroutine[Any, Any, T]]:
    """The threaded object's method, with its signature and docstring, run on a worker."""

    @functools.wraps(method)
    async def call(twin: Twin[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await twin._calls.run(method, twin._threaded, *args, **kwargs)

    return call


def passed_on(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Twin[S], P], T]:
    """The threaded object's method, with its signature and docstring."""

    @functools.wraps(method)
    def call(twin: Twin[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(twin._threaded, *args, **kwargs)

    return call


class OpenedOnce(Generic[S]):
    """Opened on a worker by `await` or by `async with`, once; `undo` closes what was opened for nobody."""

    def __init__(
        self, calls: Calls, name: str, make: Callable[[], S], undo: Callable[[S], object], *, again: str
    ) -> None:
        """`name` tells those apart that are not to be opened before another one is undone; `again` is advice."""
        self._calls = calls
        self._opens = name
        self._make = make
        self._undo = undo
        self._again = again
        self._begun = False
        self._threaded: S | None = None
        self._lock = threading.Lock()
        self._made: list[S] = []
        self._abandoned = False

    def __await__(self) -> Generator[Any, None, Self]:
        """Open it: when that returns, it can be used."""
        return self._opened().__await__()

    async def __aenter__(self) -> Self:
        return self if self._threaded is not None else await self._opened()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """For each kind."""
        raise NotImplementedError

    async def _opened(self) -> Self:
        """Open it, after one of the same name is undone. When cancelled, it is undone in the background."""
        if self._begun:
            raise InvalidArgument(self._again)
        self._begun = True
        calls = self._calls
        calls.check_loop()
        while (undoing := calls.undoing.get(self._opens)) is not None:
            await calls.finished(undoing)
            if calls.undoing.get(self._opens) is undoing:
                del calls.undoing[self._opens]
        job = calls.submit(self._open)
        try:
            await calls.finished(job)
        except asyncio.CancelledError:
            with self._lock:
                self._abandoned = True
                made = self._made.copy()
            with contextlib.suppress(Closed):  # with the bus: then it is undone
                calls.undoing[self._opens] = calls.submit(self._undo, made[0]) if made else job
            raise
        self._threaded = job.result()
        return self

    def _open(self) -> S:
        made = self._make()
        with self._lock:
            self._made.append(made)
            abandoned = self._abandoned
        if abandoned:
            self._undo(made)
        return made


def must_pass(error: BaseException) -> bool:
    """Whether what a user's callback raised is for the event loop, and not an error to be told: we are cancelled."""
    if isinstance(error, asyncio.CancelledError):  # or only something that the callback awaited
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit)


async def returned(result: Any) -> Any:
    """What a callback returned, awaited if it can be."""
    if result is not None and (result.__class__ is CoroutineType or inspect.isawaitable(result)):
        return await result
    return result
