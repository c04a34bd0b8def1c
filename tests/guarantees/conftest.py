"""What the tests of the guarantees share. They run on an embedded ZooKeeper only: it is processes that fail here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import connect, proxy  # noqa: F401 - fixtures
from zkms.server.server import Server

Run = Callable[..., "subprocess.Popen[str]"]
PROGRAMS = Path(__file__).parent / "programs"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Not in containers as well."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        items[:] = [item for item in items if not _is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)


def _is_left_out(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return item.path.parent.name == "guarantees" and params.get("zookeeper_kind") == "container"


@pytest.fixture
def run(zookeeper: Server, zookeeper_root: str) -> Iterator[Run]:
    """Run a program of this directory; what is still alive after the test is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, PROGRAMS / program, zookeeper.hosts, zookeeper_root, *map(str, arguments)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
