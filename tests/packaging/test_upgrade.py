"""Upgrades without stopping: an older release beside this one, frames from the future, trees from the past."""

from __future__ import annotations

import json
import os
import queue
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from zlib import crc32

import msgspec
import pytest
from kazoo.client import KazooClient

import zkms
from tests.support.buses import Eventually
from zkms import Bus
from zkms.message import frame
from zkms.server.server import Server
from zkms.tree.entry import entry_prefix
from zkms.tree.paths import LAYOUT, Tree
from zkms.tree.records import Layout, decode, encode
from zkms.zookeeper.session import Session

REPOSITORY = Path(__file__).parents[2]
NODE = Path(__file__).with_name("programs") / "node.py"
OLDER = "3568c20"
"""A commit of before this page was written, with the same layout: what stands for the previous release."""


# -- an older release beside this one ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The older release, unpacked; skipped where this is no clone that has it, but not under CI."""
    git = shutil.which("git")
    if git is None or not (REPOSITORY / ".git").exists():
        _do_without("no git, or not a clone")
    directory = tmp_path_factory.mktemp("older")
    packed = subprocess.run([git, "archive", OLDER, "zkms", "cleaner"], cwd=REPOSITORY, capture_output=True)
    if packed.returncode:
        _do_without(packed.stderr.decode().strip())
    subprocess.run(["tar", "-x"], cwd=directory, input=packed.stdout, check=True)
    return directory


def _do_without(why: str) -> NoReturn:
    """Skip what needs the older release; under CI, where nobody would see that, fail."""
    reason = f"the older release {OLDER} is in a history that is not here ({why}): git fetch --unshallow"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Node:
    """A node of some release, as a process."""

    def __init__(self, hosts: str, root: str, name: str, path: str) -> None:
        environ = {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            [sys.executable, NODE, hosts, root, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        self.heard: list[tuple[str, str, int]] = []
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._await("start")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            how, who, number = json.loads(line)
            if how == "done":
                self._done.put(who)
            else:
                self.heard.append((how, who, number))

    def _await(self, command: str) -> None:
        assert self._done.get(timeout=60) == command

    def tell(self, command: str, count: int) -> None:
        """Return when it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command} {count}\n")
        self._process.stdin.flush()
        self._await(command)

    def got(self, how: str, who: str) -> list[int]:
        """Numbers of the messages that it got this way, in order."""
        return [number for each, publisher, number in list(self.heard) if (each, publisher) == (how, who)]

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
def nodes(zookeeper: Server, zookeeper_root: str, older: Path) -> Iterator[tuple[Node, Node]]:
    """One of the older release, and one of this."""
    paths = [os.pathsep.join(map(str, (base, base / "cleaner"))) for base in (older, REPOSITORY)]
    started = [
        Node(zookeeper.hosts, zookeeper_root, name, path) for name, path in zip(("old", "new"), paths, strict=True)
    ]
    yield started[0], started[1]
    for node in started:
        node.end()


def test_an_older_release_and_this_one_work_side_by_side(
    bus: Bus, nodes: tuple[Node, Node], older: Path, eventually: Eventually
) -> None:
    """Each hears all that the other publishes, in order; they share a group's work, and a durable place in turn."""
    old, new = nodes
    assert (old.heard[0][0], new.heard[0][0]) == ("is", "is")
    assert Path(old.heard[0][1]).is_relative_to(older)
    assert Path(new.heard[0][1]).is_relative_to(REPOSITORY)
    bus.subscribe("news", name="audit").close()
    for node, count in ((old, 60), (new, 60), (old, 5), (new, 5)):
        node.tell("publish", count)
    expected = list(range(67))  # 60 and one, 5 and one
    for listener in nodes:
        for publisher in ("old", "new"):
            eventually(lambda: len(listener.got("news", publisher)) >= 67)  # noqa: B023
            assert listener.got("news", publisher) == expected
    jobs = [n for n in expected if n not in (60, 66)]
    for publisher in ("old", "new"):
        eventually(lambda: len(old.got("jobs", publisher)) + len(new.got("jobs", publisher)) >= len(jobs))  # noqa: B023
        assert sorted(old.got("jobs", publisher) + new.got("jobs", publisher)) == jobs
    old.tell("audit", 30)  # the place that one leaves is where the other goes on
    new.tell("audit", 60)
    old.tell("audit", 44)
    for publisher in ("old", "new"):
        seen = sorted([*old.got("audit", publisher), *new.got("audit", publisher)])
        assert seen == expected


# -- frames from the future --------------------------------------------------------------------------------------


def _newer_frame() -> bytes:
    """As a release to come might write it: this one's, with the next version."""
    body = msgspec.msgpack.encode(["future", 1, 1.0, ["from the future"]])
    return struct.pack("!4sBxxxII", frame.MAGIC, frame.VERSION + 1, crc32(body), len(body)) + body


def test_a_newer_frame_is_set_aside_and_requeued_after_the_upgrade(
    bus: Bus, zookeeper: Server, tree: Tree, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It blocks nothing and is lost nowhere: the upgraded node brings it back into its queue."""
    errors: list[Exception] = []
    sub = bus.subscribe("orders", name="billing", on_error=lambda error, _message: errors.append(error))
    raw = _newer_frame()
    client = KazooClient(zookeeper.hosts)
    client.start()
    client.create(f"{tree.queue('billing', 'orders')}/{entry_prefix(1, len(raw))}", raw, sequence=True)
    client.stop()
    bus.publish("orders", "today's")
    message = sub.get(timeout=30.0)
    assert message is not None
    assert message.data == "today's"
    message.ack()
    eventually(lambda: len(bus.dead_letters()) == 1)
    (letter,) = bus.dead_letters()
    assert letter.foreign
    assert "frame version 2, this zkms reads 1" in letter.reason
    assert letter.data == raw
    with pytest.raises(zkms.InvalidArgument, match="not requeued"):
        bus.requeue(letter)
    monkeypatch.setattr(frame, "READABLE", frozenset({1, 2}))  # the upgrade
    bus.requeue(letter)
    message = sub.get(timeout=30.0)
    assert message is not None
    assert message.data == "from the future"
    message.ack()
    assert bus.dead_letters() == []


# -- trees from the past and the future --------------------------------------------------------------------------


def test_an_older_tree_is_upgraded_when_nobody_uses_it(
    zookeeper: Server, zookeeper_root: str, session: Session
) -> None:
    """While clients that know nothing newer are connected, this one refuses and says whom to stop."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    client.create(f"{zookeeper_root}/clients/old-1", ephemeral=True, makepath=True)
    client.set(zookeeper_root, encode(Layout(LAYOUT - 1)))
    with pytest.raises(zkms.StoreError, match=f"layout {LAYOUT - 1}.*stop 'old-1'"):
        zkms.connect(zookeeper.hosts, root=zookeeper_root)
    client.stop()
    with zkms.connect(zookeeper.hosts, root=zookeeper_root) as bus:
        assert decode(session.get(zookeeper_root)[0], Layout).layout == LAYOUT
        sub = bus.subscribe("users")
        bus.publish("users", 1)
        message = sub.get(timeout=30.0)
        assert message is not None
        assert message.data == 1


def test_a_newer_tree_is_refused(zookeeper: Server, zookeeper_root: str) -> None:
    """This release does not know what others write there."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    client.create(zookeeper_root, encode(Layout(LAYOUT + 1)))
    client.stop()
    with pytest.raises(zkms.NewerLayout, match="upgrade zkms"):
        zkms.connect(zookeeper.hosts, root=zookeeper_root)
