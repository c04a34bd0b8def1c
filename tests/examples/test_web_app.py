"""examples/web_app: three web processes; a row that is changed through one is dropped by all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zkms.server.server import Server

APPLICATION = Path(__file__).parents[2] / "examples" / "web_app"


@pytest.fixture
def urls(zookeeper: Server, zookeeper_root: str) -> Iterator[list[str]]:
    """Where its processes listen; it ends in good order, as with Ctrl-C."""
    running = subprocess.Popen(
        [sys.executable, str(APPLICATION), zookeeper.hosts, "--port", "0"],
        env=os.environ | {"ZKMS_ROOT": zookeeper_root},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    try:
        yield running.stdout.readline().split()[3:]
        running.terminate()
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def ask(url: str, text: str | None = None) -> Any:
    """GET, or PUT with a text."""
    request = urllib.request.Request(url, None if text is None else text.encode(), method="PUT" if text else "GET")
    with urllib.request.urlopen(request, timeout=60) as answer:
        body = answer.read()
        return json.loads(body) if answer.headers["Content-Type"] == "application/json" else body.decode()


def test_a_row_that_is_changed_is_dropped_by_every_process(urls: list[str], eventually: Callable[..., None]) -> None:
    """And each says when: after the change was begun."""
    assert len(urls) == 3
    assert "<title>" in ask(urls[0])
    assert ask(f"{urls[1]}/nodes") == urls

    def row(url: str) -> Any:
        return ask(f"{url}/rows")["rows"][1]

    eventually(lambda: {row(url)["from"] for url in urls} == {"memory"}, what="the row in every memory")
    changed = ask(f"{urls[0]}/rows/2", "Oat flat white")
    assert changed["everywhere"]
    for url in urls:
        assert ask(f"{url}/dropped/2") >= changed["began"]
        assert row(url)["text"] == "Oat flat white"
