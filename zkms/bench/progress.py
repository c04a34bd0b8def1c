"""How far a run is: a bar on a terminal, a line for each result elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click


class BenchProgress(Protocol):
    """Hears of each trial."""

    def begin(self, title: str) -> None:
        """It starts."""

    def end(self, title: str, result: str) -> None:
        """It is over."""


class Lines:
    """For logs and pipes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def begin(self, title: str) -> None:
        """Nothing is said before there is a result."""

    def end(self, title: str, result: str) -> None:
        """One line."""
        self._done += 1
        click.echo(f"[{self._done}/{self._total}] {title}: {result}", err=True)


@contextmanager
def show(total: int) -> Iterator[BenchProgress]:
    """A bar where somebody watches and rich is installed."""
    if not sys.stderr.isatty():
        yield Lines(total)
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
    except ImportError:
        yield Lines(total)
        return

    class OnBar:
        def __init__(self, bar: Bar) -> None:
            self._bar = bar
            self._task = bar.add_task("", total=total)

        def begin(self, title: str) -> None:
            self._bar.update(self._task, description=title)

        def end(self, title: str, result: str) -> None:
            self._bar.console.print(f"{title}: {result}", markup=False, highlight=False)
            self._bar.advance(self._task)

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield OnBar(bar)
