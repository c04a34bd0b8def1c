"""The simulated ZooKeeper against the real one: the same requests, byte by byte, have the same answers and events."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from verification.simulation import clockwork
from verification.simulation.clockwork import World
from verification.simulation.ensemble import Ensemble
from verification.simulation.store import NO_NODE, Leader, Znode
from zkms.server.server import Server
from zkms.zookeeper.operations import Check, Create, Delete, Operation, SetData
from zkms.zookeeper.wire import (
    AddWatch,
    Children,
    Exists,
    Get,
    Multi,
    RemoveWatches,
    Request,
    Stat,
    acl_bytes,
    read_event,
)

from .wires import RealWire, SimulatedWire, Wire

STEPS = 80
ENDS = 0.08
"""How likely it is that a session ends, and another one begins."""
_REPLY = struct.Struct(">iqi")
_OPEN = struct.pack(">ii", 1, 31) + struct.pack(">i", 5) + b"world" + struct.pack(">i", 6) + b"anyone"


@pytest.fixture
def model() -> Iterator[Ensemble]:
    """A simulated ZooKeeper of one replica."""
    world = World(1)
    clockwork.enter(world)
    yield Ensemble(world, replicas=1)
    clockwork.enter(None)


class Choices:
    """Requests by chance, on few names, so that they meet."""

    def __init__(self, seed: int, root: str) -> None:
        self._chance = random.Random(seed)
        self._names = [f"{root}/{a}" for a in "ab"] + [f"{root}/{a}/{b}" for a in "ab" for b in "xy"]
        self._root = root

    def request(self) -> Request:
        """The next one."""
        chance, path = self._chance, self._chance.choice([self._root, *self._names])
        watch = (lambda: None) if chance.random() < 0.5 else None
        kind = chance.random()
        if kind < 0.5:
            operations = [self._operation() for _ in range(chance.choice([1, 1, 2, 3, 4]))]
            return Multi("", operations, _OPEN)
        if kind < 0.62:
            return Get("", path, watch)
        if kind < 0.74:
            return Exists("", path, watch)
        if kind < 0.88:
            return Children("", path, watch)
        if kind < 0.96:
            return AddWatch("", path)
        return RemoveWatches("", path)

    def _operation(self) -> Operation:
        chance, path = self._chance, self._chance.choice(self._names)
        version = chance.choice([-1, -1, 0, 1, 2])
        kind = chance.random()
        if kind < 0.5:
            return Create(path, chance.randbytes(chance.randrange(4)), chance.random() < 0.2, chance.random() < 0.3)
        if kind < 0.7:
            return SetData(path, chance.randbytes(3), version)
        if kind < 0.9:
            return Delete(path, version)
        return Check(path, version)


class Reader:
    """Makes answers comparable: transactions by the order in which they were met, sessions by whose they are."""

    def __init__(self) -> None:
        self._sessions: dict[int, str] = {}
        self._zxids: dict[int, int] = {}

    def meet(self, session: int) -> None:
        """Sessions are called by the order in which they were begun."""
        self._sessions[session] = f"session {len(self._sessions)}"

    def read(self, request: Request, frames: list[bytes]) -> list[object]:
        """Each event, and the answer."""
        return [self._frame(request, memoryview(frame)) for frame in frames]

    def _frame(self, request: Request, frame: memoryview) -> object:
        xid, _, code = _REPLY.unpack_from(frame)
        if xid == -1:
            return ("event", *read_event(frame, _REPLY.size))
        if isinstance(request, RemoveWatches):
            return "removed"  # ZooKeeper says whether there were any; zkms does not ask
        return (code, None if code else self._plain(request.read(frame, _REPLY.size)))

    def _plain(self, value: object) -> object:
        if isinstance(value, Stat):
            return (
                self._rank(value.czxid),
                self._rank(value.mzxid),
                self._rank(value.pzxid),
                value.version,
                value.cversion,
                value.aversion,
                self._sessions.get(value.ephemeralOwner, value.ephemeralOwner),
                value.dataLength,
                value.numChildren,
            )
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return sorted(value)  # names of children come in any order
        if isinstance(value, (list, tuple)):
            return [self._plain(each) for each in value]
        return type(value).__name__ if isinstance(value, Exception) else value

    def _rank(self, zxid: int) -> int:
        return self._zxids.setdefault(zxid, len(self._zxids))


def play(wires: list[Wire], seed: int, root: str) -> list[list[object]]:
    """Send the same requests, now from one client, now from another, some of which go; what each was told."""
    choices, chance, reader = Choices(seed, root), random.Random(f"who {seed}"), Reader()
    for wire in wires:
        reader.meet(wire.session)
    made = Multi("", [Create(root)], _OPEN)
    told = [reader.read(made, wires[0].ask(made.code, made.raw))]
    look = Exists("", "/")
    for _ in range(STEPS):
        who = chance.randrange(2)
        if gone := chance.random() < ENDS:
            wires[who].close() if chance.random() < 0.5 else wires[who].expire()
            wires[who] = wires[who].again()
            reader.meet(wires[who].session)
        else:
            request = choices.request()
            told.append(reader.read(request, wires[who].ask(request.code, request.raw)))
        # Events that the other one gets come before the answer to this.
        for each in wires:
            events = reader.read(look, each.ask(look.code, look.raw))[:-1]
            # What a session held goes together, in no order that ZooKeeper promises.
            told.append(sorted(events, key=repr) if gone else events)
    for wire in wires:
        wire.close()
    return told


def compare(hosts: str, root: str, model: Ensemble, seed: int) -> None:
    """Play the same on both."""
    real = play([RealWire(hosts), RealWire(hosts)], seed, root)
    simulated = play([SimulatedWire(model), SimulatedWire(model)], seed, root)
    for step, (theirs, ours) in enumerate(zip(real, simulated, strict=True)):
        assert ours == theirs, f"step {step}"


@pytest.mark.parametrize("seed", range(8))
def test_it_answers_as_the_real_one_does(zookeeper: Server, zookeeper_root: str, model: Ensemble, seed: int) -> None:
    """Transactions, refusals, sequence numbers, versions, counts, ephemerals, watches, and sessions that end."""
    compare(zookeeper.hosts, zookeeper_root, model, seed)


@pytest.mark.parametrize("way", ["close", "expire"])
def test_what_a_session_held_goes_with_it(zookeeper: Server, zookeeper_root: str, model: Ensemble, way: str) -> None:
    """Its ephemerals, and nothing else; those who watch them are told, and the watches of its own are gone."""
    told = []
    for wires in ([RealWire(zookeeper.hosts) for _ in range(2)], [SimulatedWire(model) for _ in range(2)]):
        one, other, root = wires[0], wires[1], zookeeper_root
        made = Multi("", [Create(root), Create(f"{root}/a", ephemeral=True), Create(f"{root}/b")], _OPEN)
        one.ask(made.code, made.raw)
        reader = Reader()
        for request in (AddWatch("", root), Children("", root, lambda: None), Exists("", f"{root}/a", lambda: None)):
            one.ask(request.code, request.raw)
            other.ask(request.code, request.raw)
        getattr(one, way)()
        after: list[object] = []
        for path, code in ((f"{root}/a", NO_NODE), (f"{root}/b", 0)):
            request = Exists("", path)
            frames = other.ask(request.code, request.raw)
            assert _REPLY.unpack_from(frames[-1])[2] == code
            after += reader.read(request, frames)
        told.append(after)
        other.close()
    real, simulated = told
    assert simulated == real
    assert ("event", 2, f"{zookeeper_root}/a") in real


def test_the_comparison_would_notice_a_difference(
    zookeeper: Server, zookeeper_root: str, model: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation of the model: it counts changes of children from one."""
    original = Znode.stat
    monkeypatch.setattr(Znode, "stat", lambda znode: original(znode)._replace(cversion=original(znode).cversion + 1))
    with pytest.raises(AssertionError):
        compare(zookeeper.hosts, zookeeper_root, model, 0)


def test_the_comparison_would_notice_what_a_session_leaves_behind(
    zookeeper: Server, zookeeper_root: str, model: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation of the model: ephemerals stay."""
    monkeypatch.setattr(Leader, "expire", lambda *_args: None)
    with pytest.raises(AssertionError):
        test_what_a_session_held_goes_with_it(zookeeper, zookeeper_root, model, "close")


def test_an_acl_is_read_past() -> None:
    """The model knows no permissions; what a create carries of them is skipped, however long."""
    from kazoo.security import make_digest_acl

    from verification.simulation.wire import read_operations

    acl = acl_bytes([make_digest_acl("user", "secret", all=True), make_digest_acl("other", "secret", read=True)])
    operations: list[Operation] = [Create("/a", b"data", sequence=True), Delete("/b", 3)]
    assert read_operations(Multi("", operations, acl).raw) == operations
