"""`zkms` as a process, told by the environment where to connect, as a user's shell would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMMAND = [sys.executable, "-m", "zkms"]
Done = subprocess.CompletedProcess[str]
Quick = Callable[..., Done]


class Cli:
    """`zkms`, told by the environment where to connect, as a user's shell would."""

    def __init__(self, **environ: str) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")}
        self.environ = inherited | environ

    def __call__(self, *args: str, stdin: str = "", **environ: str) -> Done:
        """Run a command to its end."""
        return subprocess.run(
            [*COMMAND, *args], env=self.environ | environ, input=stdin, capture_output=True, text=True, timeout=90
        )

    @contextmanager
    def running(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on until the block ends."""
        with subprocess.Popen(
            [*COMMAND, *args],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def subscriber(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        """`zkms sub` that has subscribed."""
        with self.running("sub", *args) as process:
            assert process.stderr is not None
            first = process.stderr.readline()
            assert first.startswith("Subscribed to"), first + process.stderr.read()
            yield process
