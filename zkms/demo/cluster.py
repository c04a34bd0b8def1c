"""The nodes as the demo sees them: child processes that answer questions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from zkms.demo.node import Answer, Question
from zkms.errors import ZkmsError


class DemoFailed(ZkmsError):
    """Something did not happen as the demo says it does."""


class NodeProcess:
    """One node; ends with its standard input, whatever happens to us."""

    def __init__(
        self, name: str, hosts: str, database: Path, session_timeout: float, log: Path, trail: str | None
    ) -> None:
        self.name = name
        self.subscription = ""
        with log.open("w") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "zkms.demo.node", hosts, name, str(database), str(session_timeout)]
                + ([] if trail is None else [trail]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends the nodes
            )
        self._log = log

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def await_ready(self) -> None:
        """Return when it has subscribed."""
        self.subscription = self._answer().subscription

    def read(self, users: Iterable[int]) -> Answer:
        """What it knows of these users."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe, as asked for
        try:
            self._process.stdin.write(msgspec.json.encode(Question(list(users))) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        return self._answer()

    def _answer(self) -> Answer:
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        return msgspec.json.decode(line, type=Answer)

    def _failure(self) -> DemoFailed:
        said = self._log.read_text(errors="replace").strip().splitlines() or ["nothing"]
        return DemoFailed(f"{self.name} has ended by itself; its last words: {said[-1]}")

    def kill(self) -> None:
        """Kill -9, and return when it is gone."""
        self._process.kill()
        self._process.wait()

    def close(self, timeout: float = 5.0) -> None:
        """End it in good order, or else by force."""
        assert self._process.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):  # it may be dead already
            self._process.stdin.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
