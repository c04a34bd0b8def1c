"""`zkms groups`, `queues`, `dead` and `top`: what is there, for people and for programs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from typing import Any

import pytest

import zkms
from tests.support.buses import Eventually
from tests.support.cli import COMMAND, Cli, Quick
from zkms.admin.dead_letters import DeadLetterInfo, DeadLetters
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import as_failure
from zkms.cli.inspect.top import _shares
from zkms.cli.output import duration
from zkms.consume.consumer import Consumer
from zkms.errors import ConnectionLost, QuotaExceeded
from zkms.zookeeper.operations import Create


def reject_all(sub: Consumer, count: int) -> None:
    """Make dead letters of so many messages."""
    for _ in range(count):
        message = sub.get(10.0)
        assert message is not None
        message.reject("no good")


def test_an_empty_tree_has_nothing_to_show(quick: Quick, kazoo: Any, zookeeper_root: str) -> None:
    """A sentence for people, an empty list for programs, nothing created."""
    for args, sentence in (
        (["groups"], "No durable subscriptions and no groups."),
        (["dead", "list"], "No dead letters."),
    ):
        assert (quick(*args).stdout, quick(*args, "--json").stdout) == (f"{sentence}\n", "[]\n")
    assert "0 topics" in quick("top", "--once", "--interval", "0.1").stdout
    assert kazoo.exists(zookeeper_root) is None


def test_groups_tell_members_owners_and_lag(quick: Quick, bus: zkms.Bus, eventually: Eventually) -> None:
    """One row each; with a name its members and partitions too; the same and more as JSON."""
    bus.create_group("mail", "mailers", partitions=4)
    bus.publish_many("mail", range(10), key=str)
    sub = bus.subscribe("jobs", name="audit")
    eventually(lambda: sub.partitions and bus.groups(name="audit")[0].state == "active")
    done = quick("groups")
    header, audit, mailers = done.stdout.splitlines()
    assert header.split()[3:8] == ["MEMBERS", "PARTITIONS", "LAG", "OLDEST", "RESERVED"]
    assert audit.split()[:6] == ["jobs", "audit", "durable", "1", "1/1", "0"]
    assert audit.split()[-1] == "active"
    assert mailers.split()[:6] == ["mail", "mailers", "group", "0", "0/4", "10"]
    assert mailers.endswith("no members")
    inside = quick("groups", "audit").stdout
    assert re.search(rf"{re.escape(bus.client_id)} +\S+ +{os.getpid()} +0 ", inside)
    assert "EPOCH" in inside
    [info] = json.loads(quick("groups", "mailers", "--topic", "mail", "--json").stdout)
    assert (info["messages"], info["state"], len(info["partitions"])) == (10, "no members", 4)
    assert "Nobody is there." in quick("groups", "mailers").stdout
    assert json.loads(quick("groups", "--topic", "other", "--json").stdout) == []


def test_queues_add_up_partitions(quick: Quick, bus: zkms.Bus) -> None:
    """A group is one row, with its messages by state; each partition by itself if asked for."""
    sub = bus.subscribe("jobs", group="workers", partitions=2)
    bus.publish_many("jobs", range(5), key=str)
    reject_all(sub, 1)
    sub.close()
    [row] = json.loads(quick("queues", "--json").stdout)
    assert (row["subscription"], row["kind"], row["partition"]) == ("workers", "group", None)
    assert (row["messages"], row["ready"], row["delayed"], row["reserved"], row["dead"]) == (4, 4, 0, 0, 1)
    lanes = json.loads(quick("queues", "--partitions", "--json").stdout)
    assert sorted(lane["subscription"] for lane in lanes) == ["workers#0", "workers#1"]
    assert sum(lane["messages"] for lane in lanes) == 4
    assert "READY" in quick("queues").stdout.splitlines()[0]


def test_dead_letters_are_listed_and_shown(quick: Quick, bus: zkms.Bus) -> None:
    """Who, why, since when, with what data; an id shows all there is to know."""
    sub = bus.subscribe("jobs", name="audit", max_attempts=1)
    bus.publish("jobs", {"n": 1}, key="k\x1b", headers={"by": "ann"}, id="order-1")
    message = sub.get(10.0)
    assert message is not None
    message.nak(error="disk full")
    listed = quick("dead", "list")
    assert listed.stdout.splitlines()[1].split()[:3] == ["order-1", "audit", "jobs"]
    assert "not done in 1 attempt: disk full" in listed.stdout
    assert r"k\x1b" in listed.stdout
    shown = quick("dead", "show", "order-1").stdout
    for words in ('{"n":1}', "by=ann", "disk full", "not done in 1 attempt"):
        assert words in shown
    [letter] = json.loads(quick("dead", "show", "order-1", "--json").stdout)
    assert (letter["data"], letter["attempts"], letter["error"]) == ({"n": 1}, 1, "disk full")
    missing = quick("dead", "show", "order-2")
    assert (missing.returncode, "no dead letter 'order-2'" in missing.stderr) == (Exit.ERROR, True)


def test_dead_letters_are_requeued(quick: Quick, bus: zkms.Bus) -> None:
    """One by its id, then all; what cannot be requeued stays, is told, and has an exit code."""
    sub = bus.subscribe("jobs", group="workers", partitions=2)
    for number in range(4):
        bus.publish("jobs", number, id=f"order-{number}")
    reject_all(sub, 4)
    assert quick("dead", "requeue", "order-1").stdout == "Requeued 1 letter.\n"
    again = sub.get(10.0)
    assert again is not None
    assert (again.data, again.attempts) == (1, 1)
    again.ack()
    shelf = bus.parts.tree.dead_queue("workers", "jobs")
    bus.parts.session.multi([Create(f"{shelf}/intruder", b"?")])
    done = quick("dead", "requeue", "--all", "--subscription", "workers", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (Exit.ERROR, {"requeued": 3, "kept": 1})
    assert "intruder of workers" in done.stderr
    assert sorted(m.data for _ in range(3) if (m := sub.get(10.0)) is not None) == [0, 2, 3]
    assert [letter.id for letter in bus.dead_letters()] == ["intruder"]


def test_requeueing_says_how_far_it_got(quick: Quick, bus: zkms.Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ZooKeeper refuses stays, and the rest goes on; without a connection it ends, and says what was done."""
    sub = bus.subscribe("jobs", name="audit")
    bus.publish_many("jobs", range(3))
    reject_all(sub, 3)
    requeue, errors = DeadLetters.requeue, [QuotaExceeded("a quota is used up"), None, ConnectionLost("cut off")]

    def refuse(self: DeadLetters, letter: DeadLetterInfo) -> None:
        error = errors.pop(0)
        if error is not None:
            raise error
        requeue(self, letter)

    monkeypatch.setattr(DeadLetters, "requeue", refuse)
    with pytest.raises(ConnectionLost) as caught:
        quick("dead", "requeue", "--all")
    assert as_failure(caught.value).message == "cut off; 1 letter had been requeued before that"
    errors += [None, QuotaExceeded("a quota is used up")]
    done = quick("dead", "requeue", "--all")
    assert (done.returncode, done.stdout) == (Exit.ERROR, "Requeued 1 letter, 1 stay.\n")
    assert "a quota is used up" in done.stderr


def test_dead_letters_are_purged(quick: Quick, bus: zkms.Bus) -> None:
    """Only if somebody agrees, or says so; --dry-run only counts."""
    sub = bus.subscribe("jobs", name="audit")
    for number in range(3):
        bus.publish("jobs", number, id=f"order-{number}")
    reject_all(sub, 3)
    assert quick("dead", "purge", "--all", "--dry-run").stdout == "Would remove 3 dead letters.\n"
    refused = quick("dead", "purge", "--all")
    assert (refused.returncode, "pass --yes" in refused.stderr) == (Exit.USAGE, True)
    assert quick("dead", "purge", "order-1", stdin="n\n").returncode == Exit.ERROR
    assert quick("dead", "purge", "order-1", stdin="y\n").stdout == "Removed 1 dead letter.\n"
    assert json.loads(quick("dead", "purge", "--all", "--yes", "--json").stdout) == {"found": 2, "removed": 2}
    assert bus.dead_letters() == []


@pytest.mark.parametrize("command", ["requeue", "purge"])
def test_letters_have_to_be_chosen(command: str, quick: Quick) -> None:
    """Neither nothing nor both: that would be guessing."""
    for args in ([], ["some-id", "--all"]):
        done = quick("dead", command, *args)
        assert done.returncode == Exit.USAGE
        assert "or --all" in done.stderr


def test_a_list_of_letters_is_bounded(quick: Quick, bus: zkms.Bus) -> None:
    """--limit letters, and how many there are."""
    sub = bus.subscribe("jobs", name="audit")
    bus.publish_many("jobs", range(5))
    reject_all(sub, 5)
    done = quick("dead", "list", "--limit", "2")
    assert len(done.stdout.splitlines()) == 4
    assert "... of 5 letters" in done.stdout


def test_top_fits_a_terminal_of_100_columns(quick: Quick, bus: zkms.Bus, eventually: Eventually) -> None:
    """Topics, groups and members with their rates, no line longer than the terminal, names that cannot harm it."""
    bus.subscribe("[bold]prices")
    sub = bus.subscribe("jobs", group="workers", partitions=2)
    bus.create_group("a-topic-with-a-rather-long-name-that-is-cut", "and-a-group-with-a-long-name", partitions=4)
    bus.publish_many("jobs", range(7), key=str)
    reject_all(sub, 1)
    eventually(lambda: bus.groups(name="workers")[0].state == "active")
    done = quick("top", "--once", "--interval", "0.1", COLUMNS="100")
    assert done.returncode == Exit.OK, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert "1 dead letter" in lines[1]
    assert any(line.split()[:4] == ["jobs", "workers", "group", "1"] for line in lines)
    assert any(line.startswith("[bold]prices") for line in lines)
    assert any(line.startswith(bus.client_id[:6]) for line in lines)


def test_top_as_json_has_rates(quick: Quick, bus: zkms.Bus) -> None:
    """One document: what was seen, and what has changed between two looks."""
    bus.create_group("jobs", "workers", partitions=2)
    bus.publish_many("jobs", range(7), key=str)
    document = json.loads(quick("top", "--json", "--interval", "0.1").stdout)
    assert (document["clients"], document["dead"]) == (1, 0)
    [topic] = document["topics"]
    assert (topic["topic"], topic["kept"], topic["live"], topic["stored_per_second"]) == ("jobs", 1, 0, 0.0)
    [group] = document["groups"]
    assert (group["info"]["messages"], group["stored_per_second"]) == (7, 0.0)


def test_top_is_left_with_ctrl_c(cli: Cli, bus: zkms.Bus) -> None:
    """A live view on a terminal, which is given back as it was; the exit code says that all is well."""
    bus.create_group("jobs", "workers", partitions=2)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environ = cli.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "24"}
    process = subprocess.Popen([*COMMAND, "top", "--interval", "0.2"], env=environ, stdout=theirs)
    try:
        os.close(theirs)
        shown = b""
        while b"workers" not in shown:
            shown += _read(ours)
        process.send_signal(signal.SIGINT)
        while part := _read(ours):
            shown += part
        assert process.wait(timeout=30) == Exit.OK
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"\x1b[?1049h" in shown  # a screen of its own
    assert b"\x1b[?1049l" in shown
    assert b"\x1b[?25h" in shown[shown.index(b"\x1b[?1049h") :]  # the cursor is back


def _read(descriptor: int) -> bytes:
    assert select.select([descriptor], [], [], 60)[0], "nothing was shown for a minute"
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.44, "0.4 s"), (59.9, "59 s"), (60, "1 min 0 s"), (3725, "1 h 2 min"), (360_000, "4 d 4 h")],
)
def test_a_span_of_time_is_readable(seconds: float | None, text: str) -> None:
    """Two units at the most."""
    assert duration(seconds) == text


def test_tables_share_the_height_of_a_terminal() -> None:
    """Each gets what it needs; where that is too much, an equal part of what is left; one row at the least."""
    assert _shares(100, [3, 4, 5]) == [3, 4, 5]
    assert _shares(20, [3, 50, 50]) == [3, 8, 9]
    assert _shares(1, [9, 9, 9]) == [1, 1, 1]
