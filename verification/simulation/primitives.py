"""Replaces Python's threading, time, secrets and concurrent.futures in a simulated world.

Only what zkms uses is here: anything else fails at import. Waiting tasks get a lock in no particular order, as with the
real ones.
"""

from __future__ import annotations

import concurrent.futures
import secrets as real_secrets
import time as real_time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from verification.simulation.clockwork import Task, here, running, task

TIMEOUT_MAX = 1e9


class RLock:
    """A lock that its owner may take again."""

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As threading's."""
        me = task() or _NOBODY
        if here().over:
            return True
        if isinstance(me, Task):
            here().pause()
        if self._owner is me and self._may_nest():
            self._depth += 1
            return True
        if self._abandoned():
            self._owner, self._waiting = None, []
        deadline = None if timeout < 0 else here().now + timeout
        while self._owner is not None:
            if not blocking or not isinstance(me, Task):
                return False
            left = None if deadline is None else deadline - here().now
            if left is not None and left <= 0:
                return False
            self._waiting.append(me)
            here().wait(left)
            if me in self._waiting:
                self._waiting.remove(me)
        self._owner, self._depth = me, 1
        return True

    def _may_nest(self) -> bool:
        return True

    def _abandoned(self) -> bool:
        """Whether its owner is a dead process, or one of an earlier world: real processes share no locks."""
        owner = self._owner
        return isinstance(owner, Task) and (not owner.process.alive or owner.process.world is not here())

    def release(self) -> None:
        """As threading's."""
        if here().over:
            return
        if self._owner is None:
            raise RuntimeError("release unlocked lock")
        self._depth -= 1
        if self._depth:
            return
        self._owner = None
        if self._waiting:
            waiting = self._waiting
            here().wake(waiting.pop(int(here().random.random() * len(waiting))))

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._owner is not None

    def give_up(self) -> int:
        """Release it however often it was taken; returns how often."""
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def take_back(self, depth: int) -> None:
        """Undo `give_up`."""
        self.acquire()
        self._depth = depth

    def mine(self) -> bool:
        """Whether the running task has it."""
        return self._owner is (task() or _NOBODY)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class Lock(RLock):
    """A lock that its owner must not take again: it would wait for ever, as with the real one."""

    def _may_nest(self) -> bool:
        return False


class _Nobody:
    """The owner of a lock that is taken between tasks, by the simulation itself."""


_NOBODY = _Nobody()


class Condition:
    """As threading's."""

    def __init__(self, lock: RLock | None = None) -> None:
        self._lock = lock or RLock()
        self.acquire = self._lock.acquire
        self.release = self._lock.release
        self._waiters: list[Task] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """As threading's."""
        if not self._lock.mine() and not here().over:
            raise RuntimeError("cannot wait on un-acquired lock")
        me = running()
        self._waiters.append(me)
        depth = self._lock.give_up()
        try:
            deadline = None if timeout is None else here().now + timeout
            while me in self._waiters:  # it may be woken for another reason
                left = None if deadline is None else deadline - here().now
                if left is not None and left <= 0:
                    self._waiters.remove(me)
                    return False
                here().wait(left)
            return True
        finally:
            if not here().over:
                self._lock.take_back(depth)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """As threading's."""
        deadline = None if timeout is None else here().now + timeout
        while not (result := predicate()):
            left = None if deadline is None else deadline - here().now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        """As threading's."""
        if not self._lock.mine() and not here().over:
            raise RuntimeError("cannot notify on un-acquired lock")
        for _ in range(min(n, len(self._waiters))):
            here().wake(self._waiters.pop(0))

    def notify_all(self) -> None:
        """As threading's."""
        self.notify(len(self._waiters))


class Event:
    """As threading's."""

    def __init__(self) -> None:
        self._set = False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        """As threading's."""
        return self._set

    def set(self) -> None:
        """As threading's."""
        self._set = True
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            here().wake(each)

    def clear(self) -> None:
        """As threading's."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """As threading's."""
        deadline = None if timeout is None else here().now + timeout
        while not self._set:
            left = None if deadline is None else deadline - here().now
            if left is not None and left <= 0:
                return False
            me = running()
            self._waiters.append(me)
            here().wait(left)
            if me in self._waiters:
                self._waiters.remove(me)
        return True


class Thread:
    """A task of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = daemon
        self._target = target
        self._args = args
        self._kwargs = kwargs or {}
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        """As threading's."""
        return None if self._task is None else self._task.number

    def start(self) -> None:
        """As threading's."""
        parent = task()
        if parent is None or self._task is not None:
            raise RuntimeError("threads are started by tasks, and once")
        self._task = parent.process.spawn(self.name, self.run)
        _threads[self._task] = self

    def run(self) -> None:
        """As threading's."""
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def is_alive(self) -> bool:
        """As threading's."""
        return self._task is not None and not self._task.finished

    def join(self, timeout: float | None = None) -> None:
        """As threading's."""
        me, other = task(), self._task
        if other is None or me is None:
            raise RuntimeError("cannot join thread before it is started")
        deadline = None if timeout is None else here().now + timeout
        while not other.finished:
            left = None if deadline is None else deadline - here().now
            if left is not None and left <= 0:
                return
            other.joining.append(me)
            here().wait(left)


class Timer(Thread):
    """As threading's."""

    def __init__(
        self,
        interval: float,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(target=function, name="timer", args=args, kwargs=kwargs, daemon=True)
        self.interval = interval
        self.finished = Event()

    def cancel(self) -> None:
        """As threading's."""
        self.finished.set()

    def run(self) -> None:
        """As threading's."""
        if not self.finished.wait(self.interval):
            super().run()
        self.finished.set()


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """Like that of concurrent.futures, but its waiters wait in the simulation."""

    def __init__(self) -> None:
        self._condition = Condition()  # type: ignore[assignment]
        self._state = "PENDING"
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []


_threads: dict[Task, Thread] = {}


def current_thread() -> Thread:
    """As threading's; a task that no Thread started gets one."""
    me = task()
    if me is None:
        return _OUTSIDE
    found = _threads.get(me)
    if found is None:
        found = _threads[me] = Thread(name=me.name)
        found._task = me
    return found


_OUTSIDE = Thread(name="simulation")


def get_ident() -> int:
    """As threading's."""
    me = task()
    return 0 if me is None else me.number


def sleep(seconds: float) -> None:
    """As time's."""
    until = here().now + seconds
    while here().now < until:
        here().wait(until - here().now)


def monotonic() -> float:
    """As time's."""
    return here().now


def wall() -> float:
    """As time's time()."""
    return here().wall()


def forget() -> None:
    """Forget the threads of a world that has ended."""
    _threads.clear()


class Local:
    """As threading's local."""

    def __init__(self) -> None:
        object.__setattr__(self, "_of", {})

    def _mine(self) -> dict[str, Any]:
        of: dict[object, dict[str, Any]] = object.__getattribute__(self, "_of")
        return of.setdefault(task(), {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._mine()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._mine()[name] = value


def _module(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


def _clock_gettime(_clock: int) -> float:
    return here().now


threading_module = _module(
    "threading",
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    Timer=Timer,
    local=Local,
    current_thread=current_thread,
    get_ident=get_ident,
    TIMEOUT_MAX=TIMEOUT_MAX,
)
time_module = _module(
    "time",
    time=wall,
    monotonic=monotonic,
    perf_counter=monotonic,
    sleep=sleep,
    clock_gettime=_clock_gettime,
    CLOCK_BOOTTIME=7,
    time_ns=lambda: int(wall() * 1e9),
    monotonic_ns=lambda: int(monotonic() * 1e9),
    strftime=real_time.strftime,
    gmtime=real_time.gmtime,
    localtime=real_time.localtime,
)
secrets_module = _module(
    "secrets",
    token_hex=lambda size=32: here().tokens.randbytes(size).hex(),
    token_bytes=lambda size=32: here().tokens.randbytes(size),
    randbits=lambda bits: here().tokens.getrandbits(bits),
    compare_digest=real_secrets.compare_digest,
)
futures_module = _module("concurrent.futures", **{**vars(concurrent.futures), "Future": Future})
futures_module.ThreadPoolExecutor = concurrent.futures.ThreadPoolExecutor  # type: ignore[attr-defined]  # loaded lazily
