"""A wall clock that jumps, for one process: libfaketime, told by a file what to add. The monotonic clock runs on."""

from __future__ import annotations

from pathlib import Path

from zkms.testing.errors import ServerError

PACKAGE = "libfaketime"
_NAME = "libfaketimeMT.so.1"
_PLACES = ("/usr/lib/*/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime", "/usr/lib/faketime")


def library() -> Path | None:
    """Where libfaketime is, if it is installed."""
    return next((path for place in _PLACES for path in Path("/").glob(f"{place[1:]}/{_NAME}")), None)


class Clock:
    """The clock of a process that was started with `settings`."""

    def __init__(self, path: Path) -> None:
        """Make the file that tells the time."""
        self._path = path
        self.jump(0)

    def settings(self) -> list[str]:
        """Environment of the process, as NAME=VALUE."""
        found = library()
        if found is None:
            raise ServerError(f"a clock that jumps needs the distribution's package {PACKAGE}: install it")
        return [
            f"LD_PRELOAD={found}",
            f"FAKETIME_TIMESTAMP_FILE={self._path}",
            "FAKETIME_CACHE_DURATION=1",  # seconds until a process has noticed
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "FAKETIME_DISABLE_SHM=1",
            "FAKETIME_FORCE_MONOTONIC_FIX=0",  # with it, waits on the monotonic clock never end: Java does not start
        ]

    def wrap(self, command: list[str | Path]) -> list[str | Path]:
        """A command line, for a process with this clock."""
        return ["/usr/bin/env", *self.settings(), *command]

    def jump(self, seconds: float) -> None:
        """Be so far ahead of the true time, in a second at the latest."""
        whole = self._path.with_suffix(".new")
        whole.write_text(f"{seconds:+.0f}\n")
        whole.replace(self._path)
