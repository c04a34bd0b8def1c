"""Django under gunicorn, which forks: every worker has a connection of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integrations.conftest import HERE
from tests.support.buses import Eventually
from zkms.server.server import Server

WORKERS = 2
CLASSES = {"sync": 1, "gthread": 2}
"""Kinds of workers, and how many threads each of them has."""


@pytest.fixture(params=CLASSES)
def threads(request: pytest.FixtureRequest) -> int:
    """How many requests a worker takes at once."""
    return CLASSES[request.param]


@pytest.fixture
def site(zookeeper: Server, zookeeper_root: str, tmp_path: Path, threads: int) -> Iterator[httpx.Client]:
    """The site, loaded by gunicorn before it forks; ended afterwards, in good order."""
    data = tmp_path / "value"
    data.write_text("old")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        number, port = listening.fileno(), listening.getsockname()[1]
        command = [sys.executable, "-m", "gunicorn", "--preload", "--bind", f"fd://{number}", "--timeout", "120"]
        command += ["--worker-class", next(name for name, count in CLASSES.items() if count == threads)]
        command += ["--threads", str(threads)]
        running = subprocess.Popen(
            [*command, "--workers", str(WORKERS), "--log-level", "warning", "django_site:application"],
            cwd=HERE / "programs",
            env={**os.environ, "HOSTS": zookeeper.hosts, "ROOT": zookeeper_root, "DATA": str(data)},
            pass_fds=[number],
        )
    try:
        # Every request on a connection of its own: a worker with threads keeps those that it has.
        headers = {"Connection": "close"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, headers=headers) as client:
            yield client
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()


def read(client: httpx.Client, threads: int) -> list[dict[str, Any]]:
    """As many answers at once as the workers can give, which are too slow for one of them to give all."""
    count = WORKERS * threads
    with ThreadPoolExecutor(count) as pool:
        return [answer.json() for answer in pool.map(client.get, ["/read"] * count)]


def test_a_write_in_one_worker_is_seen_by_all(site: httpx.Client, threads: int, eventually: Eventually) -> None:
    """Although the parent of the workers had used the cache before it forked them."""
    having: dict[int, dict[str, Any]] = {}

    def everybody_has_it() -> bool:
        having.update({answer["pid"]: answer for answer in read(site, threads) if answer["cached"]})
        return len(having) == WORKERS

    eventually(everybody_has_it, timeout=120, what="a cached value in every worker")
    assert {answer["value"] for answer in having.values()} == {"old"}
    assert {answer["loaded"] for answer in having.values()} == {None}, "memory of before the fork"
    writer = site.get("/write/new").json()["pid"]
    assert writer in having
    seen: set[int] = set()

    def everybody_was_asked() -> bool:
        answers = read(site, threads)
        assert {answer["value"] for answer in answers} == {"new"}
        seen.update(answer["pid"] for answer in answers)
        return len(seen) == WORKERS

    eventually(everybody_was_asked, timeout=120, what="an answer from every worker")
