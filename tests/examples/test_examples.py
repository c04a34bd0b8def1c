"""Every example runs as it is pasted, and prints what it is there to show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zkms.server.server import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "cachetools_mapping": ["cached: 10 10", "dropped by everybody: True", "read by the second: 12"],
    "flask_cache": ["cached: 10 10", "changed by the first: done", "read by the second: 12"],
    "fastapi_cache": ["cached: 10 10", "changed by the first: True", "read by the second: 12"],
    "dogpile_region": ["cached: 10 10", "changed by the first: done", "read by the second: 12"],
    "django_cache": ["cached: Ada Ada", "renamed by the first: done", "read by the second: Grace"],
    "three_lines": ["user changed: 42"],
    "cache_cluster": [
        "nodes: ['ready', 'ready', 'ready']",
        "cached: [10, 10, 10]",
        "changed, nobody told: [10, 10, 10]",
        "told 3 nodes: [12, 12, 12]",
    ],
    "pull": [
        "one: report 1",
        "several: ['report 2', 'report 3', 'report 4']",
        "in a loop: report 5",
        "in a loop: report 6",
        "no more: None",
    ],
    "durable": ["billed tea", "still to bill: ['cake', 'milk']"],
    "groups": ["did job 3 of customer-0, attempt 2", "all done"],
    "receipts": [
        "acked: quick - pending: slow",
        "acked: quick, slow - pending: nobody",
        "acked: quick - gone: slow",
    ],
    "request": ["tea: 7 from 2 shops", "north says KeyError: 'milk'", "south says 1", "no answer from asleep"],
    "stale_reads": ["without invalidation: ", "with invalidation: 0 stale reads of "],
    "typed_messages": ["typed: Renamed(user=42, name='Ada')", "not a Renamed"],
    "with_asyncio": ["dropped user 42", "acked by 1 of 1", "no price yet", "price 0", "price 1", "price 2"],
    "gaps": ["error: no such key", "gap: more than 10 messages were waiting", "cache: {}", "goes on: 1 acked"],
}


def test_every_example_is_run() -> None:
    """An example that no test runs would rot."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SHOWN)


def run(name: str, *arguments: str, **environ: str) -> str:
    """Run an example, and return what it has printed."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")}
    done = subprocess.run(command, env=inherited | environ, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_it_shows_what_it_says(name: str, zookeeper: Server, zookeeper_root: str) -> None:
    """It ends with 0 and prints its lines, in order."""
    printed = run(name, zookeeper.hosts, ZKMS_ROOT=zookeeper_root)
    position = 0
    for line in SHOWN[name]:
        assert line in printed[position:], printed
        position = printed.index(line, position)


def test_servers_may_come_from_the_environment(zookeeper: Server, zookeeper_root: str) -> None:
    """All examples read ZKMS_HOSTS by the same line, so one of them is run this way."""
    assert "user changed: 42" in run("three_lines", ZKMS_HOSTS=zookeeper.hosts, ZKMS_ROOT=zookeeper_root)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_it_is_small_and_says_what_it_is(name: str) -> None:
    """Under 60 lines, beginning with a docstring that tells how to run it."""
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) < 60
    assert text.startswith('"""')
    assert f"python {name}.py [HOST:PORT]" in text.split('"""')[1]
