"""The processes of a trial: started, killed and ended by name; none outlives us."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from verification.faults.journal import Record, Tail
from verification.faults.orders import Orders
from zkms.server.child import Child, last_words

ROOT = Path(__file__).parents[2]
_GOODBYE = 60.0


class Crew:
    """Processes with a journal and a log each, in one directory."""

    def __init__(self, directory: Path) -> None:
        """Make it, without processes."""
        self._directory = directory
        self._running: dict[str, Child] = {}
        self._tails: dict[str, Tail] = {}
        self.problems: list[str] = []
        """Processes that ended by themselves, or not well when they were told to."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for child in self._running.values():
            child.kill()

    def journal(self, name: str) -> Path:
        """Return the path of a process's journal."""
        return self._directory / f"{name}.journal"

    def start(self, program: str, orders: Orders, settings: Sequence[str] = ()) -> None:
        """Start a program of this package; `settings` are added to its environment, as NAME=VALUE."""
        command = [sys.executable, "-m", f"verification.faults.{program}", msgspec.json.encode(orders).decode()]
        self._tails[orders.name] = Tail(self.journal(orders.name))
        self._running[orders.name] = Child(command, log=self._log(orders.name), env=environment(settings))

    def records(self, name: str) -> list[Record]:
        """Return the records of a process so far, also of one that has ended."""
        return self._tails[name].look()

    def kill(self, name: str) -> None:
        """End a process without warning, on purpose."""
        self._running.pop(name).kill()

    def end(self, *names: str) -> None:
        """Ask processes to end, and return when they have; one that does not end well is a problem."""
        self.look()
        for name in names:
            child = self._running.pop(name, None)
            if child is not None:
                child.terminate(_GOODBYE)
                if child.returncode != 0:
                    self._complain(name, child)

    def look(self) -> None:
        """Note processes that have ended by themselves."""
        for name, child in list(self._running.items()):
            if child.returncode is not None:
                self._complain(name, self._running.pop(name))

    def _complain(self, name: str, child: Child) -> None:
        self.problems.append(f"{name} ended with {child.returncode}: {last_words(self._log(name))}")

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"


def environment(settings: Sequence[str] = ()) -> dict[str, str]:
    """Return `settings`, NAME=VALUE each, and where processes that we start find this package."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path} | dict(setting.split("=", 1) for setting in settings)
