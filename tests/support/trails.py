"""A look at what was recorded."""

from __future__ import annotations

from pathlib import Path

from zkms.trail.event import Event
from zkms.trail.export.reader import TrailFile


def read(*paths: Path) -> list[Event]:
    """All events of these files, or of the files in these directories; a bad line fails the test."""
    events: list[Event] = []
    for path in paths:
        files = sorted(path.glob("*.jsonl*")) if path.is_dir() else [path]
        for file in files:
            for event in TrailFile(file):
                assert isinstance(event, Event), event
                events.append(event)
    return events
