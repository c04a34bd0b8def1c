"""Child processes that cannot outlive us, not even when we are killed with -9: silent ones, and ones that are asked.

Linux sends a signal of the child's choice (PR_SET_PDEATHSIG) when its parent goes. "Parent" there means the *thread*
that forked it, so each child gets a thread of ours that starts it, waits for it and does nothing else. The child asks
for the signal itself, in a few lines of Python that then become the command: code between fork and exec in a process
with threads (`preexec_fn`) may deadlock, and a guardian's pipe would be held open by anything that forks from us.
On other systems kill -9 leaves the child behind; every other way to end does not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import msgspec

from zkms.errors import ZkmsError
from zkms.server.errors import ServerError

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_DIE_WITH_PARENT = f"""
import ctypes, os, sys
if ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG) failed")
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent died before its child began")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Child:
    """One running command whose output goes to the end of a log file."""

    _stdin: int = subprocess.DEVNULL
    _stdout: int | None = None

    def __init__(self, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start the command, with `env` added to our environment; ServerError if that cannot be done."""
        self._command = [str(part) for part in command]
        self._log = log
        self._env = None if env is None else os.environ | dict(env)
        started: Future[subprocess.Popen[bytes]] = Future()
        # A daemon thread: it must live as long as the child, and must not keep us alive.
        self._thread = Thread(target=self._run, args=(started,), name=f"child {log.name}", daemon=True)
        self._thread.start()
        try:
            self._process = started.result()
        except OSError as error:
            raise ServerError(f"cannot run {self._command[0]} with its output in {log}: {error.strerror}") from error

    def _run(self, started: Future[subprocess.Popen[bytes]]) -> None:
        command = self._command
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
        try:
            with self._log.open("ab") as output:
                process = subprocess.Popen(  # noqa: S603
                    command,
                    stdin=self._stdin,
                    stdout=output if self._stdout is None else self._stdout,
                    stderr=output,
                    env=self._env,
                    # Out of the terminal's reach: on Ctrl-C we close our clients first and the server last.
                    start_new_session=True,
                )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        self._listen(process)
        process.wait()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """On the child's thread: take what it says; here all of it goes to the log."""

    @property
    def pid(self) -> int:
        """The process id, which is the command's own."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while it runs (a stopped process runs)."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the child has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, and return when it is gone."""
        self._process.kill()
        self._process.wait()

    def terminate(self, timeout: float) -> None:
        """Ask it to end, kill it if it has not after `timeout` seconds, and return when it is gone."""
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # a stopped process would not hear the question
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()


class TalkingChild(Child):
    """A module of ours as a child process that is told things and answers: JSON, one object a line, each way.

    Its stderr goes to a log file. The child should end with its standard input.
    """

    _stdin = _stdout = subprocess.PIPE

    def __init__(
        self,
        name: str,
        module: str,
        *arguments: str,
        log: Path,
        env: Mapping[str, str] | None = None,
        error: type[ZkmsError] = ServerError,
    ) -> None:
        """Start `python -m module arguments`; an `error` with its name says what goes wrong with it later."""
        self.name = name
        self._error = error
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        super().__init__([sys.executable, "-m", module, *arguments], log=log, env=env)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101 - a pipe, as asked for
        with process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put(b"")

    def tell(self, order: Any) -> None:
        """Send an order, and do not wait."""
        assert self._process.stdin is not None  # noqa: S101
        try:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self, decoder: msgspec.json.Decoder[T], timeout: float) -> T:
        """Wait for its answer to the oldest order that it has not answered."""
        try:
            line = self._answers.get(timeout=timeout)
        except Empty:
            raise self._error(f"{self.name} did not answer within {timeout:g} s") from None
        if not line:
            raise self._ended()
        return decoder.decode(line)

    def _ended(self) -> ZkmsError:
        return self._error(f"{self.name} has ended by itself; its last words: {last_words(self._log)}")

    def close(self, timeout: float) -> None:
        """End its input, kill it if it has not ended after `timeout` seconds, and return when it is gone."""
        self._close_input()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kill it if it has not ended, and return when it is gone."""
        super().kill()
        self._close_input()

    def _close_input(self) -> None:
        assert self._process.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):  # it may be dead already
            self._process.stdin.close()


def last_words(log: Path) -> str:
    """Return the last line of a child's log, or "nothing"."""
    return (log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
