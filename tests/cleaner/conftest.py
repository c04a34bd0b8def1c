"""What the cleaner's tests share: a bus that does not clean, a lead, and orphans made to order."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from zkms_cleaner import Election, Lead

from tests.support.buses import Connect
from zkms.bus import Bus

Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def observer(connect: Connect) -> Bus:
    """A bus through which the test looks and writes."""
    return connect()


@pytest.fixture
def lead(observer: Bus) -> Lead:
    """The lead, held by the observer."""
    held = Election(observer.parts.session, observer.parts.tree, observer.client_id).lead()
    assert held is not None
    return held


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Run a Python program or module as a process of its own; killed afterwards if it still runs."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str, env: dict[str, str] | None = None, **options: object) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **options},
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
