"""A child process that cannot outlive us, not even when we are killed with -9.

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
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

from zkms.server.errors import ServerError

_PR_SET_PDEATHSIG = 1
_DIE_WITH_PARENT = f"""
import ctypes, os, sys
if ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG) failed")
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent died before its child began")
os.execv(sys.argv[2], sys.argv[2:])
"""


class Child:
    """One running command whose output goes to the end of a log file."""

    def __init__(self, command: Sequence[str | Path], *, log: Path) -> None:
        """Start the command; ServerError if that cannot be done."""
        self._command = [str(part) for part in command]
        self._log = log
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
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Out of the terminal's reach: on Ctrl-C we close our clients first and the server last.
                    start_new_session=True,
                )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

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
