"""What the tests of the integrations share: processes that do as they are told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zkms.integrations import close
from zkms.server.server import Server
from zkms.testing.roots import delete_root, new_root

HERE = Path(__file__).parent


class Process:
    """A program of `programs/` on a ZooKeeper; its methods are called by name, as if they were here."""

    def __init__(self, program: str, *arguments: str) -> None:
        command = [sys.executable, str(HERE / "programs" / f"{program}.py"), *arguments]
        self._running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            assert self._running.stdin is not None
            assert self._running.stdout is not None
            self._running.stdin.write(json.dumps([name, args, kwargs]) + "\n")
            self._running.stdin.flush()
            line = self._running.stdout.readline()
            assert line, f"the program has ended: {self._running.wait(10)}"
            answer = json.loads(line)
            assert "error" not in answer, answer["error"]
            return answer["result"]

        return call

    def end(self) -> int:
        """Let it come to its end; its exit code."""
        assert self._running.stdin is not None
        self._running.stdin.close()
        try:
            return self._running.wait(30)
        finally:
            self._running.kill()
            self._running.wait()
            if self._running.stdout is not None:
                self._running.stdout.close()


def pair(zookeeper: Server, program: str, *how: str) -> Iterator[tuple[Process, Process]]:
    """Start two, wait until they can keep values, and end them."""
    root = new_root()
    both = [Process(program, zookeeper.hosts, root, *how), Process(program, zookeeper.hosts, root)]
    try:
        for each in both:
            each.ready()
        yield both[0], both[1]
    finally:
        codes = [each.end() for each in both]
        delete_root(zookeeper.hosts, root)
    assert codes == [0, 0]


@pytest.fixture
def opened() -> Iterator[None]:
    """What the integrations open in the test's own process is closed afterwards."""
    yield
    close()
