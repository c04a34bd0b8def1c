"""The election: one leads, the others wait for the one before them, and nobody leads with an expired session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from zkms_cleaner import Election

import zkms
from zkms.bus import Bus
from zkms.errors import ConnectionLost, NodeMissing, TransactionFailed
from zkms.server.server import Server
from zkms.testing import Proxy, expire
from zkms.zookeeper.operations import Create, Delete, SetData
from zkms.zookeeper.session import State, failed_with


def stand(bus: Bus) -> Election:
    """A candidate for this bus."""
    return Election(bus.parts.session, bus.parts.tree, bus.client_id)


def candidates(bus: Bus) -> list[str]:
    """Who stands."""
    return sorted(bus.parts.session.children(bus.parts.tree.cleaner)[0], key=lambda name: name[-10:])


def test_the_first_to_stand_leads_and_the_others_wait_in_line(connect: Callable[..., Bus]) -> None:
    """Asked again, each gives the same answer."""
    first, second, third = (stand(connect()) for _ in range(3))
    assert first.lead() is not None
    assert [second.lead(), third.lead(), second.lead(), third.lead()] == [None] * 4
    assert first.lead() is not None
    assert second.leader == third.leader == candidates(connect())[0]


def test_the_next_in_line_leads_at_once_when_the_leader_resigns(
    connect: Callable[..., Bus], eventually: Callable[..., None]
) -> None:
    """It hears of it through its watch; the one behind it does not wake."""
    first, second, third = (stand(connect()) for _ in range(3))
    assert [e.lead() is not None for e in (first, second, third)] == [True, False, False]
    for election in (second, third):
        election.wake.clear()
    first.resign()
    eventually(second.wake.is_set)
    assert second.lead() is not None
    assert third.lead() is None
    assert not third.wake.is_set()
    assert not first.standing


def test_a_candidate_in_the_middle_that_goes_leaves_the_leader_alone(
    connect: Callable[..., Bus], eventually: Callable[..., None]
) -> None:
    """The one behind it waits for the leader from then on."""
    first, second, third = (stand(connect()) for _ in range(3))
    assert [e.lead() is not None for e in (first, second, third)] == [True, False, False]
    second.resign()
    eventually(lambda: third.wake.is_set())
    assert third.lead() is None
    third.wake.clear()
    first.resign()
    eventually(third.wake.is_set)
    assert third.lead() is not None


def test_waiting_costs_no_requests(zookeeper: Server, zookeeper_root: str, connect: Callable[..., Bus]) -> None:
    """A candidate that watches the one before it asks ZooKeeper nothing until that one goes."""
    with Proxy(zookeeper.hosts) as proxy, zkms.connect(proxy.hosts, zookeeper_root, cleaner=False) as bus:
        assert stand(connect()).lead() is not None
        waiting = stand(bus)
        assert waiting.lead() is None
        before = sum(n for op, n in proxy.requests.items() if op != "ping")
        assert [waiting.lead() for _ in range(10)] == [None] * 10
        assert sum(n for op, n in proxy.requests.items() if op != "ping") == before


def test_a_leader_whose_session_expired_stands_again_behind_the_others(
    connect: Callable[..., Bus], eventually: Callable[..., None]
) -> None:
    """And its old lead is refused by ZooKeeper, whatever it still believes."""
    bus, other = connect(), connect()
    first, second = stand(bus), stand(other)
    old = first.lead()
    assert old is not None
    assert second.lead() is None
    generation = bus.parts.session.generation
    expire(bus)
    eventually(lambda: bus.parts.session.generation > generation)
    assert not first.standing
    assert first.lead() is None
    assert first.standing
    assert second.lead() is not None
    with pytest.raises(TransactionFailed) as refused:
        bus.parts.session.multi([*old.guard, SetData(bus.parts.tree.cleaner, b"")])
    assert refused.value.index == 0
    assert failed_with(refused.value, NodeMissing, path=old.path)


def test_a_candidate_that_somebody_removed_stands_again(connect: Callable[..., Bus]) -> None:
    """By hand, or with the whole tree."""
    bus = connect()
    election = stand(bus)
    lead = election.lead()
    assert lead is not None
    bus.parts.session.multi([Delete(lead.path)])
    assert election.lead() is None
    assert election.wake.is_set()
    again = election.lead()
    assert again is not None
    assert again.path != lead.path


def test_what_no_session_holds_is_no_candidate(connect: Callable[..., Bus]) -> None:
    """A persistent znode that looks like one, and names that do not, block nobody."""
    bus = connect()
    for name in ("ghost_0000000000", "garbage", "0123456789", "x_" + "\u0660" * 10):
        bus.parts.session.multi([Create(f"{bus.parts.tree.cleaner}/{name}")])
    election = stand(bus)
    assert election.lead() is not None
    assert election.lead() is not None


def test_a_lost_reply_makes_no_second_candidate(
    zookeeper: Server, zookeeper_root: str, observer: Bus, eventually: Callable[..., None]
) -> None:
    """The create is carried out, its answer is lost: nobody waits for a candidate that is itself."""
    with Proxy(zookeeper.hosts) as proxy, zkms.connect(proxy.hosts, zookeeper_root, cleaner=False) as bus:
        election = stand(bus)
        proxy.cut_reply(op="multi")
        with pytest.raises(ConnectionLost):
            election.lead()
        eventually(lambda: bus.parts.session.state is State.CONNECTED)
        assert election.lead() is not None
        assert len(candidates(observer)) == 1


def test_a_lost_reply_keeps_nobody_from_leading(
    zookeeper: Server, zookeeper_root: str, connect: Callable[..., Bus], eventually: Callable[..., None]
) -> None:
    """Another one stands between the two candidates: it waits for the first, and the second must not wait for it."""
    with Proxy(zookeeper.hosts) as proxy, zkms.connect(proxy.hosts, zookeeper_root, cleaner=False) as bus:
        unlucky, other = stand(bus), stand(connect())
        proxy.cut_reply(op="multi")
        with pytest.raises(ConnectionLost):
            unlucky.lead()
        assert other.lead() is None
        eventually(lambda: bus.parts.session.state is State.CONNECTED)
        assert unlucky.lead() is None  # it stands behind the other one now
        eventually(lambda: other.lead() is not None)
