"""`zkms topics`, `clients`, `queues` and `peek`: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import Any

import pytest

import zkms
from tests.support.cli import COMMAND, Cli
from zkms.admin.peek import HUGE
from zkms.cli.exit_codes import Exit
from zkms.cli.output import escape, print_table, width
from zkms.server.server import Server
from zkms.zookeeper.operations import Create


def test_an_empty_tree_has_nothing_to_show(cli: Cli) -> None:
    """Before anybody has connected: a sentence for people, an empty list for programs, nothing created."""
    for command, sentence in (("topics", "No topics."), ("clients", "No clients."), ("queues", "No queues.")):
        assert (cli(command).stdout, cli(command, "--json").stdout) == (f"{sentence}\n", "[]\n")


def test_looking_makes_nothing(cli: Cli, kazoo: Any, zookeeper_root: str) -> None:
    """Commands that only look leave no root and no client behind."""
    for command in ("topics", "clients", "queues", "doctor"):
        assert cli(command).returncode == Exit.OK
    assert kazoo.exists(zookeeper_root) is None


def test_topics_tell_how_many_subscribe(cli: Cli, bus: zkms.Bus) -> None:
    """One row a topic, aligned; the same as a list of objects. What is not due yet is counted, too."""
    bus.subscribe("news")
    bus.subscribe("a-much-longer-name").unsubscribe()
    bus.parts.session.multi([Create(f"{bus.parts.tree.cleaner}/somebody-stands")])
    receipt = bus.publish("news", "later", delay=3600)
    header, empty, news = cli("topics").stdout.splitlines()
    assert header == "TOPIC               SUBSCRIPTIONS  DELAYED  DUE IN"
    assert empty.split() == ["a-much-longer-name", "0", "0", "-"]
    assert news.split()[:3] == ["news", "1", "1"]
    assert "min" in news
    assert json.loads(cli("topics", "--json").stdout) == [
        {"topic": "a-much-longer-name", "subscriptions": 0, "delayed": 0, "next_due": None},
        {"topic": "news", "subscriptions": 1, "delayed": 1, "next_due": pytest.approx(receipt.due, abs=1)},
    ]


def test_clients_are_processes(cli: Cli, bus: zkms.Bus) -> None:
    """Host and process id of each; the command itself is not among them."""
    [client] = json.loads(cli("clients", "--json").stdout)
    assert (client["client"], client["pid"]) == (bus.client_id, os.getpid())
    header, row = cli("clients").stdout.splitlines()
    assert header.split()[:3] == ["CLIENT", "HOST", "PID"]
    assert str(os.getpid()) in row.split()


def test_queues_tell_what_waits(cli: Cli, bus: zkms.Bus) -> None:
    """The longest first, only one topic's if asked for."""
    for topic, count in (("few", 1), ("many", 3)):
        bus.subscribe(topic, ack="manual")
        for _ in range(count):
            bus.publish(topic, "x")
    queues = json.loads(cli("queues", "--json").stdout)
    assert [(q["topic"], q["entries"], q["registered"], q["state"]) for q in queues] == [
        ("many", 3, True, "open"),
        ("few", 1, True, "open"),
    ]
    assert [q["topic"] for q in json.loads(cli("queues", "--topic", "few", "--json").stdout)] == ["few"]
    assert "yes" in cli("queues").stdout


def test_peek_shows_and_leaves(cli: Cli, bus: zkms.Bus) -> None:
    """Messages with key, data and producer; they are still there afterwards."""
    subscription = bus.subscribe("news", ack="manual")
    bus.publish("news", {"id": 1}, key="one", headers={"h": "v"})
    bus.publish_many("news", [b"\xff", "two", "three"])
    first, second = json.loads(cli("peek", subscription.id, "news", "--json").stdout)
    assert (first["kind"], first["sequence"], first["producer"]) == ("frame", 0, bus.client_id)
    assert first["messages"] == [{"key": "one", "headers": {"h": "v"}, "id": None, "data": {"id": 1}}]
    assert [m.get("data", m.get("data_base64")) for m in second["messages"]] == ["/w==", "two", "three"]
    shown = cli("peek", subscription.id, "--topic", "news").stdout
    assert '{"id":1}' in shown
    assert r"\xff (+2 more)" in shown
    assert cli("peek", subscription.id).stdout == shown  # it has one queue only
    assert bus.queues()[0].entries == 2


def test_peek_shows_what_is_stored_once_for_all(cli: Cli, bus: zkms.Bus, zookeeper: Server, kazoo: Any) -> None:
    """A big message is a pointer in each queue: what it points to is shown, and said to be missing where it is."""
    subscription = bus.subscribe("news", ack="manual")
    with zkms.connect(zookeeper.hosts, root=bus.parts.context.config.root) as other:
        other.subscribe("news", ack="manual")
        receipt = bus.publish("news", "big " + "x" * 20_000)
        (entry,) = json.loads(cli("peek", subscription.id, "news", "--json").stdout)
        assert (entry["kind"], entry["messages"][0]["data"][:4]) == ("frame", "big ")
        kazoo.delete(bus.parts.tree.body(bus.client_id, receipt.seq))
        assert "the body it points to is missing" in cli("peek", subscription.id, "news").stdout


def test_peek_reads_no_more_than_asked(cli: Cli, bus: zkms.Bus) -> None:
    """--limit entries, and how many there are."""
    subscription = bus.subscribe("news", ack="manual")
    for i in range(5):
        bus.publish("news", i)
    assert len(json.loads(cli("peek", subscription.id, "news", "--limit", "2", "--json").stdout)) == 2
    assert "... of 5 entries" in cli("peek", subscription.id, "news", "--limit", "2").stdout


def test_peek_shows_garbage_as_such(cli: Cli, bus: zkms.Bus, kazoo: Any) -> None:
    """What another program wrote, and what is damaged, with the reason, control characters escaped."""
    queue = f"{bus.parts.context.config.root}/messages/somebody/news"
    kazoo.create(queue, b"?", makepath=True)
    kazoo.create(f"{queue}/intruder", b"\x1b[2J")
    kazoo.create(f"{queue}/f.1.20.", b"zkms" + bytes(20), sequence=True)
    kazoo.create(f"{queue}/g.0.2.", b'{"zkms":"gap","reason":"bell\\u0007"}', sequence=True)
    entries = json.loads(cli("peek", "somebody", "news", "--json").stdout)
    assert [entry["kind"] for entry in entries] == ["garbage", "garbage", "gap"]
    assert entries[0]["raw_base64"] == "G1sySg=="
    shown = cli("peek", "somebody", "news").stdout
    assert "(garbage: not a name that zkms gives)" in shown
    assert r"bell\x07" in shown


def test_peek_at_nothing_is_one_sentence(cli: Cli, bus: zkms.Bus) -> None:
    """No such queue, none at all, several, and an empty one."""
    assert "has no queue for 'news'" in cli("peek", "nobody", "news").stderr
    assert "has no queues" in cli("peek", "nobody").stderr
    for topic in ("news", "weather"):
        subscription = bus.subscribe(topic)
    several = bus.client_id if subscription.id == bus.client_id else subscription.id
    assert cli("peek", several, "weather").stdout == "The queue is empty.\n"


def test_peek_refuses_a_huge_queue(cli: Cli, bus: zkms.Bus) -> None:
    """ZooKeeper can list a queue only as a whole; --force does it."""
    subscription = bus.subscribe("news", ack="manual", prefetch=1)
    queue = bus.parts.tree.queue(subscription.id, "news")
    for start in range(0, HUGE + 1, 2_000):
        size = min(2_000, HUGE + 1 - start)
        bus.parts.session.multi([Create(f"{queue}/f.1.1.", b"", sequence=True)] * size)
    done = cli("peek", subscription.id, "news")
    assert done.returncode == Exit.ERROR
    assert "50,001 entries" in done.stderr
    assert len(json.loads(cli("peek", subscription.id, "news", "--force", "--limit", "1", "--json").stdout)) == 1
    assert cli("purge", subscription.id, "news", "--yes").returncode == Exit.OK


def test_a_table_fits_a_narrow_terminal(cli: Cli, bus: zkms.Bus) -> None:
    """Long cells are cut on a terminal of 40 columns, and whole in a pipe."""
    topic = "a-topic-with-a-rather-long-name-that-does-not-fit"
    bus.subscribe(topic)
    ours, theirs = pty.openpty()
    subprocess.run([*COMMAND, "topics"], env=cli.environ | {"COLUMNS": "40"}, stdout=theirs, timeout=60, check=True)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "…" in shown
    assert max(map(len, shown.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())) <= 40
    assert topic in cli("topics").stdout


def test_a_table_aligns_wide_and_strange_characters(capsys: Any) -> None:
    """Characters that take two columns or none count as such, and what cannot be seen is escaped."""
    print_table(("A", "B"), [("日本", 1), ("e\u0301", 22), ("x\ny", 333)], empty="")
    lines = capsys.readouterr().out.splitlines()
    assert {width(line) for line in lines} == {9}
    assert lines[3].startswith("x\\ny")
    assert escape("a\u202eb\x00") == r"a\u202eb\x00"
