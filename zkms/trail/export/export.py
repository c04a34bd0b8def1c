"""Brings finished files of trails into Parquet: each exactly once, whatever happens in between.

    TO/date=2026-11-16/hour=09/SOURCE-RUN.parquet   rows of one file and one hour; COLUMNS says what they are
    TO/_exported/SOURCE-RUN.json                    that file is done: written last
    TO/_quarantine/SOURCE-RUN.jsonl                 its lines that are no events, each with the reason

What a file becomes has names that depend on the file alone, and appears by a rename. So an export that is killed leaves
what the next one writes again, under the same names; a file with its mark in _exported is not touched any more. `run`
is random for each process: two nodes of one name do not meet. Bad lines are lost lines to whoever reads the export, so
they become `lost` rows, and a file without its last line gets a `closed` row that says "unclean".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from zkms.errors import ZkmsError
from zkms.trail import line_count
from zkms.trail.event import COLUMNS, FROM_OPENED, OPEN_SUFFIX, SUFFIX, Event
from zkms.trail.export.columns import directory, table
from zkms.trail.export.reader import Bad, NewerTrail, TrailFile, is_time
from zkms.trail.export.target import ExportTarget, PartFiles
from zkms.trail.store import is_open, line_count_of

log = logging.getLogger("zkms.trail")
BATCH = 50_000
_ORIGIN = ("source", *FROM_OPENED)
_TOGETHER = {name: place for place, name in reversed([*enumerate((*_ORIGIN, *Event.__struct_fields__))])}
_as_row = itemgetter(*(_TOGETHER[name] for name in COLUMNS))
"""From a file's origin and an event's fields, one after the other, to the columns; the origin goes first."""


class NothingRecorded(ZkmsError):
    """There is nothing to export: no directory, or no trail in it."""


class Done(msgspec.Struct, kw_only=True):
    """What is remembered of a file that was exported."""

    source: str
    run: str
    node: str
    host: str | None
    pid: int | None
    since: float
    until: float
    rows: int = 0
    bad: int = 0
    lost: int = 0
    unclean: bool = False
    reason: str = ""
    """Why the first of the bad lines is bad."""
    parts: list[str] = msgspec.field(default_factory=list)


class ExportSummary(msgspec.Struct):
    """What an export did."""

    files: int = 0
    rows: int = 0
    earlier: int = 0
    """Files that were exported before."""
    open: int = 0
    """Files that are being written to: left for the next time."""
    unclean: int = 0
    lost: int = 0
    """Lines that the trails say are missing, and those set aside."""
    set_aside: int = 0
    newer: int = 0
    """Files of a later version, which are left alone."""
    namesakes: list[str] = msgspec.field(default_factory=list)
    """A sentence for each two processes that had one name at one time; these are among the warnings."""
    warnings: list[str] = msgspec.field(default_factory=list)


def find(directories: Iterable[str | Path]) -> list[Path]:
    """The trails' files, open ones too, oldest first; `NothingRecorded` if there are none."""
    found: list[tuple[float, str, Path]] = []
    places = [Path(each) for each in directories]
    for place in places:
        if not place.is_dir():
            raise NothingRecorded(
                f"there is no directory {str(place)!r}: give the one that was passed as trail= or --trail"
            )
        for path in place.iterdir():
            if path.name.endswith((SUFFIX, SUFFIX + OPEN_SUFFIX)) and not path.name.startswith("."):
                try:
                    found.append((path.stat().st_mtime, path.name, path))
                except FileNotFoundError:
                    log.debug("%s was finished or removed just now", path)
    if not found:
        names = ", ".join(repr(str(place)) for place in places)
        raise NothingRecorded(f"there is no trail in {names}: nothing was recorded there yet")
    return [path for _, _, path in sorted(found)]


def size_of(path: Path) -> int:
    """Bytes; 0 if it is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Exporter:
    """Exports into one place, a directory or what fsspec calls one. `progress` hears of bytes that are done."""

    def __init__(self, to: str, progress: Callable[[int], None] = lambda _bytes: None) -> None:
        self._target = ExportTarget(to)
        self._progress = progress

    def run(self, files: Iterable[Path]) -> ExportSummary:
        """Export what was not exported before."""
        summary = ExportSummary()
        fresh: list[Done] = []
        with self._target.locked():
            marks = self._target.marks()
            for path in files:
                size = size_of(path)
                try:
                    done = self._one(path, marks, summary)
                    if done is not None:
                        fresh.append(done)
                except FileNotFoundError:  # renamed since we listed: finished, and found the next time
                    summary.open += 1
                except NewerTrail as error:
                    summary.newer += 1
                    summary.warnings.append(str(error))
                self._progress(size)
            summary.namesakes = list(_namesakes(fresh, self._earlier(fresh, marks)))
        summary.warnings += summary.namesakes
        return summary

    def _earlier(self, fresh: list[Done], marks: set[str]) -> Iterator[Done]:
        """Other processes with the names of these: what is known of their first and last files of earlier exports."""
        names, runs = {_named(done.source) for done in fresh}, {done.run for done in fresh}
        files: dict[str, list[str]] = {}
        for mark in sorted(marks):  # by number, as these have leading zeros
            source, _, run = mark.rpartition("-")
            if run not in runs and _named(source) in names:
                files.setdefault(run, []).append(mark)
        for theirs in files.values():
            for mark in {theirs[0], theirs[-1]}:
                try:
                    yield msgspec.json.decode(self._target.read_mark(mark), type=Done)
                except (FileNotFoundError, msgspec.MsgspecError) as error:
                    log.warning("the mark %s tells nothing: %s", mark, error)

    def _one(self, path: Path, marks: set[str], summary: ExportSummary) -> Done | None:
        if is_open(path):
            summary.open += 1
            return None
        file = TrailFile(path)
        name = f"{file.source}-{file.opened.run}"
        if name in marks:
            summary.earlier += 1
            return None
        done = self._export(file, name)
        self._target.mark(name, msgspec.json.encode(done))
        marks.add(name)
        summary.files += 1
        summary.rows += done.rows
        summary.lost += done.lost
        summary.set_aside += done.bad
        summary.unclean += done.unclean
        if done.bad:
            summary.warnings.append(
                f"{path}: {done.bad} of {file.lines} lines are no events ({done.reason}): "
                f"set aside in {self._target.quarantine(name)}, the rest is kept"
            )
        return done

    def _export(self, file: TrailFile, name: str) -> Done:
        done = Done(
            source=file.source,
            run=file.opened.run or "",
            node=file.opened.node or "",
            host=file.opened.host,
            pid=file.opened.pid,
            since=file.opened.t,
            until=file.opened.t,
        )
        origin = (file.source, *file.origin())
        with self._target.parts(name) as parts:
            batches: dict[int, list[tuple[Any, ...]]] = {}
            held = 0
            for event in _completed(file, done, parts):
                row = _as_row(origin + msgspec.structs.astuple(event))
                batches.setdefault(int(event.t // 3600), []).append(row)
                held += 1
                if held >= BATCH:
                    _write(parts, batches)
                    done.rows, held = done.rows + held, 0
            _write(parts, batches)
            done.rows += held
        done.parts = parts.names
        return done


def _write(parts: PartFiles, batches: dict[int, list[tuple[Any, ...]]]) -> None:
    for hour, rows in batches.items():
        parts.write(directory(hour), table(rows))
    batches.clear()


def _completed(file: TrailFile, done: Done, parts: PartFiles) -> Iterator[Event]:
    """A file's events, with what is known to be missing between them."""
    last, number, bad = file.opened, 0, 0
    for item in file:
        if isinstance(item, Bad):
            bad += 1
            done.bad += 1
            done.reason = done.reason or item.reason
            parts.set_aside(file.source, item)
            continue
        if bad:
            yield _missing(bad, last.t, item.t, "lines of the file are no events", done)
            bad = 0
        if item.event == "lost":
            done.lost += item.n or 0
        if item.event == "closed" and item.lines is not None and item.lines > file.lines:
            yield _missing(item.lines - file.lines, file.opened.t, item.t, "lines are gone from the file", done)
        last, number = item, max(number, item.i)
        done.until = max(done.until, item.t)
        yield item
    if file.closed:
        return
    given = line_count.read(line_count_of(file.path)) if file.path.name.endswith(OPEN_SUFFIX) else None
    lost = None if given is None else max(0, given.lines - number)
    end = last.t if given is None or not lost else max(last.t, _time(given.last))
    if bad and lost is None:
        yield _missing(bad, last.t, last.t, "lines of the file are no events", done)
    done.unclean = True
    done.lost += lost or 0
    total = None if lost is None else (file.opened.lost or 0) + lost
    since = last.t if end > last.t else None
    yield Event(event="closed", t=end, m=last.m, at=since, lines=file.lines, n=lost, lost=total, reason="unclean")


def _time(seconds: float | None) -> float:
    """A time of a line count, which may be damaged."""
    return seconds if seconds is not None and is_time(seconds) else 0.0


def _missing(n: int, since: float, until: float, reason: str, done: Done) -> Event:
    done.lost += n
    return Event(event="lost", n=n, at=since, t=until, reason=reason)


def _named(source: str) -> str:
    """The node in the name of a file, NODE-STARTED-NUMBER."""
    return source.rsplit("-", 2)[0]


def _namesakes(fresh: Sequence[Done], earlier: Iterable[Done]) -> Iterator[str]:
    """A sentence for each two processes, not both of them of earlier exports, that had one name at one time."""
    new = {_key(done) for done in fresh}
    runs: dict[tuple[str, str], Done] = {}
    for done in chain(fresh, earlier):
        whole = runs.setdefault(_key(done), msgspec.structs.replace(done))
        whole.since, whole.until = min(whole.since, done.since), max(whole.until, done.until)
    last: Done | None = None  # of those of this name that began before, the one that ended last
    for run in sorted(runs.values(), key=lambda run: (run.node, run.since)):
        if last is None or last.node != run.node:
            last = run
            continue
        if run.since < last.until and not new.isdisjoint((_key(last), _key(run))):
            yield (
                f"two processes were called {run.node!r} at the same time: {last.pid} on {last.host} and "
                f"{run.pid} on {run.host}; they are kept apart by `run`, but give each a client_id of its own"
            )
        last = max(last, run, key=lambda each: each.until)


def _key(done: Done) -> tuple[str, str]:
    return done.node, done.run
