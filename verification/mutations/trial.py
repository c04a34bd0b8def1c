"""A copy of the sources in which one mechanism at a time is switched off, and a test run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from verification.mutations.mechanisms import Mechanism

SOURCES = Path(__file__).parents[2]
LEFT_OUT = (".*", "__pycache__", "results", "build", "dist", "docs", "*.egg-info", "fuzz-crashes")
LONGEST = 240.0
"""Seconds that one test may take; one that has not ended by then has failed."""
PASSED, FAILED, NOTHING_TRIED = 0, 1, 3
"""pytest's own exit codes; all but the first two say that nothing was tried, and so do errors outside of a test."""
_HUNG = "+ Timeout +"
_FAILURE = re.compile(r"^FAILED .+?(?: - (?P<reason>.*))?$", re.MULTILINE)


class CannotApply(Exception):
    """An edit does not fit the sources: they have changed, and the mechanism has to be looked up again."""


class Verdict(NamedTuple):
    """How a test ended."""

    code: int
    reason: str
    """The first failure in pytest's words, or why there was none."""

    @property
    def passed(self) -> bool:
        """All of it was run, and held."""
        return self.code == PASSED

    @property
    def failed(self) -> bool:
        """It was run, and did not hold; neither a mistake in the copy nor a test that is not there."""
        return self.code == FAILED


def mutated(mechanism: Mechanism, sources: Path = SOURCES) -> str:
    """The text of the mechanism's file without it; `CannotApply` unless the text to replace is there exactly once."""
    path = sources / mechanism.file
    text = path.read_text() if path.is_file() else ""
    if (count := text.count(mechanism.old)) != 1:
        raise CannotApply(
            f"{mechanism.name}: {mechanism.file} has {mechanism.old.strip()!r} {count} times instead of once; say in "
            "verification/mutations/mechanisms.py what it looks like now"
        )
    return text.replace(mechanism.old, mechanism.new)


class Copy:
    """The sources in a directory of their own, so that nobody who works on them notices."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="zkms-mutations-"))
        shutil.copytree(SOURCES, self.path, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)

    def __enter__(self) -> Copy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def without(self, mechanism: Mechanism) -> Iterator[None]:
        """Switch it off for the block."""
        path = self.path / mechanism.file
        whole = path.read_text()
        path.write_text(mutated(mechanism, self.path))
        try:
            yield
        finally:
            path.write_text(whole)

    def run(self, tests: Sequence[str]) -> Verdict:
        """Run tests of the copy, up to the first that fails."""
        here = [self.path / each for each in ("", "cleaner", "spark", "tests")]
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, here)),
            "PYTHONDONTWRITEBYTECODE": "1",  # what is written within one second must not be taken for what was there
            "COLUMNS": "300",
        }
        command = [
            *(sys.executable, "-m", "pytest", *tests),
            *("-x", "-q", "--tb=no", "--zookeeper=embedded", "-p", "no:cacheprovider", f"--timeout={LONGEST:g}"),
        ]
        longest = LONGEST * len(tests)
        try:
            done = subprocess.run(
                command, cwd=self.path, env=environ, capture_output=True, text=True, timeout=longest, check=False
            )
        except subprocess.TimeoutExpired:
            return Verdict(FAILED, f"not done in {longest:g} s")
        return _judge(done)


def _judge(done: subprocess.CompletedProcess[str]) -> Verdict:
    failure = _FAILURE.search(done.stdout)
    if failure is not None:
        return Verdict(done.returncode, failure["reason"] or "failed")
    if _HUNG in done.stdout + done.stderr:
        return Verdict(FAILED, f"not done in {LONGEST:g} s")
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return Verdict(NOTHING_TRIED if done.returncode == FAILED else done.returncode, said[-1] if said else "")
