"""`zkms pub` for later."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

import zkms
from tests.support.buses import Connect
from tests.support.cli import Cli
from tests.support.delayed import OPTIONS, TOPIC, Sleeper
from zkms.cli.messages.pub import pub

pytestmark = pytest.mark.on_one_server


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """Sessions that expire soon."""
    return OPTIONS


def test_a_message_is_stored_for_later_and_waited_for(cli: Cli, connect: Connect, leader: zkms.Bus) -> None:
    """It says when it is due; with --wait, who got it then."""
    sub = connect().subscribe(TOPIC, lambda _message: None)
    before = time.time()
    done = cli("pub", TOPIC, "stand up", "--delay", "0.5", "--priority", "3", "--ttl", "600", "--wait", "60", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["due"] >= before + 0.5
    assert document["acked"] == [sub.id]
    said = cli("pub", TOPIC, "much later", "--at", datetime.fromtimestamp(before + 5000, UTC).isoformat())
    assert said.stdout.startswith(f"Stored 1 message for {TOPIC!r}, due at ")
    assert [(info.topic, info.messages) for info in leader.delayed()] == [(TOPIC, 1)]


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--at", "tomorrow"], "--at"), (["--id", "a", "--count", "2"], "--id"), (["--delay", "-1"], "--delay")],
)
def test_wrong_usage_is_told_before_anything_is_sent(options: list[str], says: str) -> None:
    """No ZooKeeper is needed for that."""
    done = CliRunner().invoke(pub, [TOPIC, "x", *options])
    assert done.exit_code == 2
    assert says in done.output


def test_what_cannot_be_is_said_in_a_sentence(cli: Cli, sleeper: Sleeper) -> None:
    """A repeated id, and nobody who would move it."""
    first, second = (cli("pub", TOPIC, "x", "--id", "a", "--delay", "1000") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 1), first.stderr
    assert "before" in second.stderr
    sleeper.give_way()
    nobody = cli("pub", TOPIC, "x", "--delay", "1")
    assert nobody.returncode == 1
    assert "zkms-cleaner" in nobody.stderr
