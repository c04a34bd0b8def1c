"""The scheduler: tasks run one at a time, in an order that the seed determines; time advances only when all wait.

A task is a greenlet: it runs until it waits, or until it takes or releases a lock and the seed chooses another task.
Timed calls (the network, faults) run between tasks. All random choices come from `random`, so the same seed gives the
same world.
"""

from __future__ import annotations

import heapq
import logging
import random
from collections.abc import Callable
from typing import Any

import greenlet

EPOCH = 1_700_000_000.0
"""The wall-clock time at which a world begins."""
START = 1_000.0
SWITCH = 0.15
"""The probability of a switch to another task, where that could make a difference."""


class Stuck(Exception):
    """Too many steps: some task loops for ever."""


class Process:
    """The tasks of one simulated program, which stop, resume and die together."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.stopped = False
        self.skew = 0.0
        """Seconds by which its wall clock is ahead."""
        self.held: list[Task] = []
        """Its runnable tasks, while it is stopped."""
        self.ended: list[Callable[[], None]] = []
        """Called when it is killed: its connections break."""

    def spawn(self, name: str, target: Callable[[], None]) -> Task:
        """Start a task in it."""
        task = Task(self, name, target)
        self.world.tasks.append(task)
        self.world.wake(task)
        return task

    def stop(self) -> None:
        """Stop it, like SIGSTOP."""
        self.stopped = True

    def resume(self) -> None:
        """Resume it, like SIGCONT."""
        self.stopped = False
        held, self.held = self.held, []
        self.world.ready += held

    def kill(self) -> None:
        """Kill it, like SIGKILL: its tasks never run again. Does nothing if it is dead."""
        if not self.alive:
            return
        self.alive = False
        self.held.clear()
        for call in self.ended:
            call()


class Task:
    """One thread of a process."""

    def __init__(self, process: Process, name: str, target: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.target = target
        self.finished = False
        self.joining: list[Task] = []
        self.scheduled = False
        self.number = process.world.number()
        self.token = 0
        """Grows with each wait, so that the timeout of an earlier wait is recognised."""
        self.timed_out = False
        self.greenlet = greenlet.greenlet(self._run, parent=process.world.main)

    def _run(self) -> None:
        try:
            self.target()
        except greenlet.GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001 - it ends only this task; the world records it
            if not self.process.world.over:
                self.process.world.failures.append((self, error))
        finally:
            self.finished = True
            for task in self.joining:
                self.process.world.wake(task)


class World:
    """The state of one schedule."""

    def __init__(self, seed: int, *, most_steps: int = 2_000_000) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = START
        self.ready: list[Task] = []
        self.current: Task | None = None
        self.steps = 0
        self.tasks: list[Task] = []
        self.failures: list[tuple[Task, BaseException]] = []
        self.tokens = random.Random(f"tokens {seed}")
        """A separate source for random names, so that one name more does not change the schedule."""
        self._most_steps = most_steps
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.main = greenlet.getcurrent()
        self.over = False
        self.ensemble: Any = None
        """The ZooKeeper of this world."""

    def number(self) -> int:
        """Return a number that is unique in this world."""
        self._count += 1
        return self._count

    # -- between tasks -------------------------------------------------------------------------------------------

    def call_at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Call this at a time; calls of the same time run in the order of their registration."""
        heapq.heappush(self._timers, (when, self.number(), call, args))

    def call_in(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        """Call this after so many seconds."""
        self.call_at(self.now + seconds, call, *args)

    def wake(self, task: Task) -> None:
        """Make a waiting task runnable; does nothing if it is."""
        if task.scheduled or task.finished or self.over or not task.process.alive:
            return
        task.scheduled = True
        if task.process.stopped:
            task.process.held.append(task)
        else:
            self.ready.append(task)

    def run(self, done: Callable[[], bool], until: float) -> bool:
        """Run until `done` or until that time; return whether it is done."""
        while not done():
            if self.ready:
                self._run_one()
            elif self._timers and self._timers[0][0] <= until:
                when, _, call, args = heapq.heappop(self._timers)
                self.now = max(self.now, when)
                call(*args)
            else:
                self.now = until
                return False
            self.steps += 1
            if self.steps > self._most_steps:
                raise Stuck(f"{self.steps:,} steps, at {self.now - START:.3f} s")
        return True

    def _run_one(self) -> None:
        ready = self.ready
        place = int(self.random.random() * len(ready)) if len(ready) > 1 else 0
        task = ready[place]
        ready[place] = ready[-1]
        ready.pop()
        task.scheduled = False
        if task.process.stopped:
            task.scheduled = True
            task.process.held.append(task)
            return
        if not task.process.alive or task.finished:
            return
        self.current = task
        task.greenlet.switch()
        self.current = None

    def end(self) -> None:
        """End all tasks; errors that they raise are ignored."""
        self.over = True
        self.ready.clear()
        self._timers.clear()
        logging.disable()
        try:
            for task in self.tasks:
                if task.greenlet and not task.greenlet.dead:
                    task.greenlet.throw(greenlet.GreenletExit)
        finally:
            logging.disable(logging.NOTSET)
        self.tasks.clear()

    # -- for tasks -----------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Let others run until this task is woken, or for so many seconds; False at the timeout."""
        if self.over:
            raise greenlet.GreenletExit
        task = self.current
        if task is None:
            raise RuntimeError("only a task can wait")
        task.token += 1
        task.timed_out = False
        if timeout is not None:
            self.call_in(max(0.0, timeout), self._time_out, task, task.token)
        self.main.switch()
        if self.over:
            raise greenlet.GreenletExit
        task.token += 1
        return not task.timed_out

    def _time_out(self, task: Task, token: int) -> None:
        if task.token == token and not task.scheduled:
            task.timed_out = True
            self.wake(task)

    def pause(self) -> None:
        """Switch to another task with probability `SWITCH`."""
        task = self.current
        if task is not None and self.ready and not self.over and self.random.random() < SWITCH:
            self.wake(task)
            self.wait()

    def wall(self) -> float:
        """Return the wall clock of the running process."""
        skew = 0.0 if self.current is None else self.current.process.skew
        return EPOCH + self.now - START + skew


_world: World | None = None


def enter(world: World | None) -> None:
    """Make this the world of the primitives."""
    global _world
    _world = world


def here() -> World:
    """Return the current world."""
    if _world is None:
        raise RuntimeError("there is no world")
    return _world


def task() -> Task | None:
    """Return the running task; None between tasks, and outside of any world."""
    return None if _world is None else _world.current


def running() -> Task:
    """Return the running task, which must exist."""
    found = task()
    if found is None:
        raise RuntimeError("only a task can do this")
    return found
