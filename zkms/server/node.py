"""One server of an embedded ZooKeeper: what stays the same over its restarts, and its process while there is one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from zkms.server.child import Child
from zkms.server.errors import ServerError

_STOP_TIMEOUT = 5.0

# The first words of a Java stack trace, as printed by the JVM, by a logger, or for a cause.
_EXCEPTION = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ )?((?:[\w$]+\.)+\w+(?:Exception|Error)\b.*)", re.MULTILINE
)


class PortTakenError(ServerError):
    """A server could not bind one of its ports: others may do."""


@dataclass
class Node:
    """A server that can be started and stopped again and again on one port and one directory."""

    port: int
    log: Path
    command: list[str | Path]
    log_kept: bool
    child: Child | None = None
    log_offset: int = 0

    def start(self) -> None:
        """Start the process, without waiting for it to serve."""
        try:
            self.log.touch()
            self.log_offset = self.log.stat().st_size
        except OSError as error:
            raise ServerError(f"cannot write to the log file {self.log}: {error.strerror}") from error
        self.child = Child(self.command, log=self.log)

    def stop(self) -> None:
        """End the process if there is one, and return when it is gone."""
        if self.child is not None:
            self.child.terminate(_STOP_TIMEOUT)
            self.child = None

    def check(self) -> None:
        """Raise what the server said last if it has died."""
        code = None if self.child is None else self.child.returncode
        if code is None:
            return
        with self.log.open("rb") as log:
            log.seek(self.log_offset)
            said = reason(log.read().decode("utf-8", errors="replace"))
        kind = PortTakenError if "BindException" in said else ServerError
        how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"
        where = f" (log: {self.log})" if self.log_kept else ""
        raise kind(f"ZooKeeper on port {self.port} {how}: {said}{where}")


def reason(log: str) -> str:
    """Return the line of a dead server's output that says why: the last exception, else the first line."""
    if exceptions := _EXCEPTION.findall(log):
        return str(exceptions[-1]).strip()
    # A JVM that cannot start names the cause first and its despair after it.
    return next((line.strip() for line in log.splitlines() if line.strip()), "it said nothing")
