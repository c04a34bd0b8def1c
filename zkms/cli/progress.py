"""A line on stderr for what takes longer than a second; silent where nobody watches."""

from __future__ import annotations

import sys
import time

import click

PATIENCE = 1.0
REFRESH = 0.1
BAR = 30


class Progress:
    """Counts steps of something long. With a total it is a bar."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self.done = 0
        self._what = what
        self._total = total
        self._began = time.monotonic()
        self._shown = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def add(self, count: int) -> None:
        """So many more are done."""
        self.done += count
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._began > PATIENCE and now - self._shown > REFRESH:
            self._shown = now
            click.echo(f"\r\x1b[K{self._line(now - self._began)}", nl=False, err=True)

    def _line(self, seconds: float) -> str:
        rate = f"{self.done:,} {self._what}, {self.done / seconds:,.0f}/s"
        if not self._total:
            return rate
        share = min(1.0, self.done / self._total)
        filled = round(share * BAR)
        return f"[{'#' * filled}{'.' * (BAR - filled)}] {share:4.0%}  {rate}"
