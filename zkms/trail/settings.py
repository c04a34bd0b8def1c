"""Where a trail goes, and how much of it there may be."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from zkms.errors import InvalidArgument

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Trail:
    """What connect(trail=...) takes where a directory alone is not enough."""

    directory: str | os.PathLike[str]
    flush: float = 0.2
    """Seconds between two writes: what a kill loses at the most."""
    file_bytes: int = 16 * MEBIBYTE
    file_seconds: float = 60.0
    """A file is finished, and can be exported, when it is so large or so old."""
    total_bytes: int = 1024 * MEBIBYTE
    """What all files in the directory may take: past it the oldest finished ones are removed."""
    queue: int = 50_000
    """Lines that may wait to be written: past it they are lost, and counted."""
    path: Path = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.directory, (str, os.PathLike)) or not os.fspath(self.directory):
            raise InvalidArgument(f"trail: give a directory, not {self.directory!r:.80}")
        object.__setattr__(self, "path", Path(self.directory))
        for what in ("flush", "file_bytes", "file_seconds", "total_bytes", "queue"):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise InvalidArgument(f"trail: {what} must be a number above 0, not {value!r:.60}")


def as_trail(given: str | os.PathLike[str] | Trail | None) -> Trail | None:
    """What a user gave as trail=, or `InvalidArgument`."""
    if given is None or isinstance(given, Trail):
        return given
    return Trail(directory=given)
