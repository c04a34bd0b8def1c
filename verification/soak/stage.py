"""The inside of a scenario's process: its orders, its counts, and its end."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

REPORT = 1.0
"""Seconds between two reports."""


class Stage:
    """What a role counts and is told. `counts` is replaced key by key, so a report is never half a number."""

    def __init__(self, name: str, pipe: Connection) -> None:
        self.name = name
        self.counts: dict[str, Any] = {"ready": False}
        self.orders: dict[str, Any] = {}
        self.stopping = threading.Event()
        self._pipe = pipe
        self._sending = threading.Lock()
        self._listener = threading.Thread(target=self._listen, name="soak-stage", daemon=True)

    def begin(self) -> None:
        """Report that it is connected and subscribed, and report regularly from now on."""
        self.counts["ready"] = True
        self._report()
        self._listener.start()

    def add(self, what: str, count: int = 1) -> None:
        """Count; by one thread for each `what`."""
        self.counts[what] = self.counts.get(what, 0) + count

    def note(self, what: str, value: float) -> None:
        """Keep the highest."""
        self.counts[what] = max(self.counts.get(what, value), value)

    def end(self) -> None:
        """The last report."""
        self.stopping.set()
        self._report()

    def _report(self) -> None:
        with self._sending:
            self._pipe.send(dict(self.counts))

    def _listen(self) -> None:
        while not self.stopping.is_set():
            try:
                if self._pipe.poll(REPORT):
                    self.orders.update(self._pipe.recv())
                    if self.orders.get("stop"):
                        self.stopping.set()
                else:
                    self._report()
            except (EOFError, OSError):
                os._exit(1)  # the director is gone


def perform(name: str, role: str, hosts: str, root: str, options: dict[str, Any], pipe: Connection) -> None:
    """Run a role until it is told to stop; what goes wrong is written to stderr and ends the process with 1."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the director, who then ends us
    logging.disable(logging.WARNING)  # a storm is no news here
    stage = Stage(name, pipe)
    play: Callable[..., None] = getattr(importlib.import_module("verification.soak.roles"), role)
    try:
        play(stage, hosts, root, **options)
        stage.end()
    except BaseException:  # noqa: BLE001 - it is told, and it ends the process
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
