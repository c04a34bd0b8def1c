"""Junk in a real tree, with everything at work in it: no loop ends, and what is sound still arrives."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

import zkms
from tests.support.buses import Connect, Eventually
from verification.fuzz.mutator import inputs
from verification.fuzz.records import EXAMPLES
from zkms import ZkmsError
from zkms.cli import main
from zkms.cli.exit_codes import Exit
from zkms.server.server import Server
from zkms.tree.paths import Tree
from zkms.tree.records import Ledger, Patterns, encode

Command = Callable[[], None]
TOPIC = "users.one"
EACH = int(os.environ.get("ZKMS_FUZZ_JUNK", "6"))
"""Pieces of junk for each place."""
FIXED = (b"", b"\xff\xfe", b'{"zkms":"ledger","parts":{"0":[99999999999,"",{"0":[99999999999]}]}}', b"[" * 50_000)
COMMANDS = (["topics"], ["clients"], ["queues"], ["groups"], ["dead", "list"], ["doctor"], ["peek", "audit", TOPIC])


class Scene:
    """One of each kind of reader on a topic, a publisher, a leader, a delayed message and a dead letter."""

    def __init__(self, connect: Connect, tree: Tree) -> None:
        self.tree = tree
        self.leader = connect(cleaner=True)
        self.bus = connect(request_timeout=3.0)
        self.reader = connect()
        self.got: dict[str, list[object]] = {"live": [], "durable": [], "group": [], "pattern": []}
        self.live = self.reader.subscribe(TOPIC, self._note("live"))
        self.durable = self.reader.subscribe(TOPIC, self._note("durable"), name="audit")
        self.group = self.reader.subscribe(TOPIC, self._note("group"), group="workers", partitions=2)
        self.pattern = connect().subscribe("users.*", self._note("pattern"))
        self.numbers = count()
        self.publish()
        self.bus.publish(TOPIC, "far", delay=3600)
        rejecting = connect().subscribe("letters", name="rejecting")
        self.bus.publish("letters", "bad")
        message = rejecting.get(timeout=30)
        assert message is not None
        message.reject("no good")

    def _note(self, who: str) -> Callable[[zkms.Message], None]:
        return lambda message: self.got[who].append(message.data)

    def publish(self) -> int:
        """The next number; whether it could be stored is not said."""
        number = next(self.numbers)
        try:
            self.bus.publish(TOPIC, number, key=str(number), id=f"id-{number}")
        except ZkmsError:
            return -1
        return number

    def look(self) -> None:
        """All that can be asked of a bus answers, or says why not."""
        bus = self.leader
        for ask in (bus.topics, lambda: bus.subscriptions(TOPIC), lambda: bus.queues(count=True), bus.groups):
            _or_said(ask)
        for ask in (bus.clients, bus.dead_letters, bus.delayed):
            _or_said(ask)


def _or_said(ask: Callable[[], object]) -> None:
    try:
        ask()
    except ZkmsError as error:
        assert str(error)


@pytest.fixture
def scene(connect: Connect, tree: Tree) -> Scene:
    """Everything at work."""
    return Scene(connect, tree)


def children(raw: KazooClient, path: str) -> list[str]:
    """Full paths, sorted."""
    return [f"{path}/{name}" for name in sorted(raw.get_children(path))]


PLACES: dict[str, Callable[[Scene, KazooClient], str]] = {
    "a client": lambda s, raw: s.tree.client(s.reader.client_id),
    "the list of patterns": lambda s, raw: s.tree.subscribers,
    "a topic": lambda s, raw: s.tree.topic(TOPIC),
    "a live registration": lambda s, raw: s.tree.registration(TOPIC, s.live.id),
    "a durable registration": lambda s, raw: s.tree.registration(TOPIC, "audit"),
    "a group's registration": lambda s, raw: s.tree.registration(TOPIC, "workers"),
    "a live queue": lambda s, raw: s.tree.queue(s.live.id, TOPIC),
    "a durable queue": lambda s, raw: s.tree.queue("audit", TOPIC),
    "a ledger": lambda s, raw: s.tree.ledger("audit", TOPIC, 0),
    "a group's ledger": lambda s, raw: s.tree.ledger("workers", TOPIC, 1),
    "a plan": lambda s, raw: s.tree.group("workers", TOPIC),
    "a member": lambda s, raw: children(raw, s.tree.members("workers", TOPIC))[0],
    "a producer": lambda s, raw: s.tree.producer(s.bus.client_id),
    "a bucket": lambda s, raw: children(raw, s.tree.delayed)[-1],
    "a delayed frame": lambda s, raw: children(raw, children(raw, s.tree.delayed)[-1])[-1],
    "an id": lambda s, raw: children(raw, children(raw, f"{s.tree.ids}/{TOPIC}")[0])[0],
    "a dead letter": lambda s, raw: children(raw, s.tree.dead_queue("rejecting", "letters"))[0],
    "a candidate": lambda s, raw: children(raw, s.tree.cleaner)[0],
}


@pytest.fixture
def command(zookeeper: Server, zookeeper_root: str) -> Command:
    """Run the next of the commands that look at a tree: it ends with an exit code that is documented."""
    turns = cycle(COMMANDS)

    def run() -> None:
        arguments = next(turns)
        done = CliRunner().invoke(main, ["--hosts", zookeeper.hosts, "--root", zookeeper_root, *arguments])
        assert isinstance(done.exception, SystemExit | None), (arguments, done.exception)
        assert done.exit_code in set(Exit)

    return run


@pytest.fixture
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing happened that nobody had thought of."""
    caplog.set_level(logging.INFO)
    yield
    strange = [record.getMessage() for record in caplog.get_records("call") if record.exc_info]
    assert strange == []


GROUPS = {
    "who subscribes": ["a client", "the list of patterns", "a topic", "a live registration", "a durable registration"],
    "who reads": ["a group's registration", "a ledger", "a group's ledger", "a plan", "a member"],
    "what waits": ["a live queue", "a durable queue", "a bucket", "a delayed frame", "an id", "a dead letter"],
    "who writes": ["a producer", "a candidate"],
}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.usefixtures("no_traceback")
def test_junk_in_znodes_ends_nothing(
    scene: Scene, raw: KazooClient, eventually: Eventually, command: Command, group: str
) -> None:
    """While it is there all is answered with results or sentences; then all goes on, in order, and none comes twice."""
    own = [encode(example) for example in EXAMPLES]
    for place in GROUPS[group]:
        path = PLACES[place](scene, raw)
        whole, _ = raw.get(path)
        for junk in (*FIXED, *inputs([whole, *own], [b'"../x"', b"-1"], EACH, seed=sorted(PLACES).index(place))):
            raw.set(path, junk)
            scene.publish()
            scene.look()
        command()
        raw.set(path, whole)
        raw.set(scene.tree.topic(TOPIC), b"")  # as whoever mends a registration has to
    check_all_goes_on(scene, eventually, as_it_was=group != "who reads")  # for a ledger can say that all is done


def test_every_place_is_tried() -> None:
    """None is forgotten in the groups above."""
    assert sorted(place for places in GROUPS.values() for place in places) == sorted(PLACES)


def check_all_goes_on(scene: Scene, eventually: Eventually, *, as_it_was: bool = True) -> None:
    """Each reader gets what is published from now on; nobody got anything twice, or out of order."""
    last: list[int] = []

    def arrived() -> bool:
        number = scene.publish()
        if number >= 0:
            last.append(number)
        time.sleep(0.05)
        return all(any(number in got for number in last) for got in scene.got.values())

    eventually(arrived, timeout=90)
    for who, got in scene.got.items() if as_it_was else ():
        assert len(got) == len(set(got)), who
        if who != "group":  # whose order is that of each key
            assert got == sorted(got), who


NAMES = (
    *("junk", "p1." * 1000, "x1.", "p1.x1.f.1.1.0000000001", "b.1.1.1..0000000001", "b.1.1.1....0000000001", " "),
    *(
        "m.1.1.A.0000000001",
        "g.1.1.2147483647",
        "f.999999999.999999999.0000000000",
        "d.1.0.k.1.1.1.1.p...",
        "\u00e4\u2028",
    ),
    *("d.1.0.k.1.1.1.1.p..", "d.1.0.k.1.1.1.3.p.x", "m.1.p", "w.1.0000000001", "..x", "!", "#0", "~", "-1"),
)
PARENTS: dict[str, Callable[[Scene, KazooClient], str]] = {
    "the root": lambda s, raw: s.tree.root,
    "clients": lambda s, raw: s.tree.clients,
    "subscribers": lambda s, raw: s.tree.subscribers,
    "a topic": lambda s, raw: s.tree.topic(TOPIC),
    "messages": lambda s, raw: s.tree.messages,
    "a lane": lambda s, raw: s.tree.subscription("audit"),
    "a live queue": lambda s, raw: s.tree.queue(s.live.id, TOPIC),
    "a durable queue": lambda s, raw: s.tree.queue("audit", TOPIC),
    "groups": lambda s, raw: s.tree.groups,
    "a group": lambda s, raw: s.tree.group("workers", TOPIC),
    "members": lambda s, raw: s.tree.members("workers", TOPIC),
    "ledgers": lambda s, raw: s.tree.ledgers("workers", TOPIC),
    "bodies": lambda s, raw: s.tree.bodies,
    "delayed": lambda s, raw: s.tree.delayed,
    "a bucket": lambda s, raw: s.tree.bucket(int(time.time()) // 10 * 10),
    "ids": lambda s, raw: s.tree.ids,
    "ids of a topic": lambda s, raw: f"{s.tree.ids}/{TOPIC}",
    "dead": lambda s, raw: s.tree.dead,
    "a shelf": lambda s, raw: s.tree.dead_queue("rejecting", "letters"),
    "producers": lambda s, raw: s.tree.producers,
    "candidates": lambda s, raw: s.tree.cleaner,
}


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.usefixtures("no_traceback")
def test_znodes_of_any_name_end_nothing(
    scene: Scene, raw: KazooClient, eventually: Eventually, command: Command, half: int
) -> None:
    """With junk in them, everywhere; also delayed messages still become due."""
    for place in [*PARENTS][half::2]:
        parent = PARENTS[place](scene, raw)
        raw.ensure_path(parent)
        for name in NAMES:
            raw.create(f"{parent}/{name}", b"junk")
        scene.publish()
        scene.look()
        command()
    check_all_goes_on(scene, eventually)
    scene.bus.publish("users.two", "due", delay=0.1)
    eventually(lambda: "due" in scene.got["pattern"], timeout=90)


@pytest.mark.parametrize("listed", [("users.*",), ("users.*", "users.*", "users.one")], ids=["once", "twice"])
def test_patterns_that_nobody_has_made_keep_nobody_from_publishing(
    connect: Connect, raw: KazooClient, tree: Tree, listed: tuple[str, ...]
) -> None:
    """They were checked in every transaction, and were not there; nor does one that is listed twice get all twice."""
    bus, own = connect(request_timeout=20.0), connect().subscribe(TOPIC)
    raw.set(tree.subscribers, encode(Patterns(listed)))
    bus.publish(TOPIC, 1)
    pattern = connect().subscribe("users.*")
    bus.publish(TOPIC, 2)
    bus.publish(TOPIC, 3)
    for subscription, expected in ((own, [1, 2, 3]), (pattern, [2, 3])):
        got = [subscription.get(timeout=30) for _ in expected]
        assert [message and message.data for message in got] == expected
        assert subscription.get(timeout=0) is None


@pytest.mark.parametrize("owner", ["..", "a/b", "\0"], ids=ascii)
def test_an_owner_that_is_no_client_does_not_keep_a_lane(
    connect: Connect, raw: KazooClient, tree: Tree, owner: str
) -> None:
    """Whether it is there was asked of ZooKeeper, which does not take such a path."""
    connect().subscribe("users", name="audit").close()
    connect().publish("users", 1)
    raw.set(tree.ledger("audit", "users", 0), encode(Ledger(owner)))
    message = connect().subscribe("users", name="audit").get(timeout=30)
    assert message is not None
    assert message.data == 1
