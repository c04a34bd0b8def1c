"""A sweep: finds what nobody owns, waits its grace out, condemns it, removes it, and harms nobody else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl
from zkms_cleaner import Election, Lead, OrphanFinding, SweepCut, Sweeper
from zkms_cleaner.orphans import PURGED

import zkms
from tests.cleaner.orphanage import entries, make_orphan
from zkms.bus import Bus
from zkms.deliver.inbox import Gap
from zkms.errors import TransactionFailed
from zkms.server.server import Server
from zkms.testing import Proxy, expire
from zkms.tree.records import ProducerState, QueueState, Registration, decode, encode
from zkms.zookeeper.operations import Create, Delete, SetData


class Clock:
    """A monotonic clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        """Begin anywhere: a monotonic clock has no meaning of its own."""
        self.now = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def sweeper(bus: Bus, grace: float = 0.0, **options: Any) -> Sweeper:
    """A sweeper on the test's tree."""
    return Sweeper(bus.parts.session, bus.parts.tree, grace=grace, **options)


def kinds(findings: list[OrphanFinding]) -> list[tuple[str, str]]:
    """What was found, briefly."""
    return sorted((finding.kind, finding.path.rsplit("/", 1)[1]) for finding in findings)


def test_an_orphan_is_found_condemned_and_removed_with_its_subscription(observer: Bus, lead: Lead) -> None:
    """Its entries are counted, and what is left of the tree is as before."""
    queue = make_orphan(observer, entries=5)
    found = sweeper(observer).find()
    assert kinds(found) == [("queue", "users")]
    assert found[0].reason == "its subscriber, client ghost, is gone"
    swept = sweeper(observer).sweep(lead)
    assert [(f.path, f.entries) for f in swept.removed] == [(queue, 5)]
    assert observer.parts.session.exists(observer.parts.tree.subscription("ghost")) is None
    assert sweeper(observer).find() == []


@pytest.mark.parametrize("count", [0, 1, 200, 201, 5000])
def test_queues_of_any_length_are_removed(observer: Bus, lead: Lead, count: int) -> None:
    """Small ones go many at a time, large ones in large transactions."""
    queue = make_orphan(observer, entries=count)
    swept = sweeper(observer).sweep(lead)
    assert [(f.path, f.entries) for f in swept.removed] == [(queue, count)]
    assert observer.parts.session.children(observer.parts.tree.messages)[0] == []


def test_queues_with_the_longest_names_are_removed(observer: Bus, lead: Lead) -> None:
    """A thousand of their paths are more than one transaction holds."""
    make_orphan(observer, "g" * 255, "t" * 255, 0)
    queue = observer.parts.tree.queue("g" * 255, "t" * 255)
    for _ in range(15):
        observer.parts.session.multi([Create(f"{queue}/f.1.4.", sequence=True)] * 100)
    assert [f.entries for f in sweeper(observer).sweep(lead).removed] == [1500]


def test_several_queues_of_one_dead_client_go_with_their_subscription(observer: Bus, lead: Lead) -> None:
    """Also where some are small and some are large."""
    for topic, count in (("a", 1), ("b", 0), ("c", 300), ("d", 2)):
        make_orphan(observer, "ghost", topic, count)
    swept = sweeper(observer).sweep(lead)
    assert sorted(f.entries for f in swept.removed) == [0, 1, 2, 300]
    assert observer.parts.session.children(observer.parts.tree.messages)[0] == []


def test_a_live_neighbours_queue_is_never_touched(observer: Bus, lead: Lead, connect: Callable[..., Bus]) -> None:
    """It keeps every message that waits in it, under the same subscription, and delivers them afterwards."""
    neighbour = connect().subscribe("users", ack="manual")
    make_orphan(observer, entries=300)
    for number in range(20):
        observer.publish("users", number)
    before = observer.parts.session.get(observer.parts.tree.queue(neighbour.id, "users"))
    swept = sweeper(observer).sweep(lead)
    assert kinds(swept.removed) == [("queue", "users")]
    after = observer.parts.session.get(observer.parts.tree.queue(neighbour.id, "users"))
    assert (after[0], after[1].version, after[1].numChildren) == (before[0], before[1].version, before[1].numChildren)
    received = [neighbour.get(5.0) for _ in range(20)]
    assert [message.data for message in received if message] == list(range(20))


# -- grace -------------------------------------------------------------------------------------------------------------


def test_an_orphan_is_left_alone_until_its_grace_is_over(observer: Bus, lead: Lead) -> None:
    """Counted from the sweep that saw it first, by the cleaner's own clock."""
    queue, clock = make_orphan(observer), Clock()
    cleaner = sweeper(observer, grace=30.0, clock=clock)
    clock.now += 500
    assert [f.due_in for f in cleaner.sweep(lead).waiting] == [30.0]
    clock.now += 29.9
    assert [round(f.due_in, 1) for f in cleaner.sweep(lead).waiting] == [0.1]
    assert entries(observer, queue) == 3
    clock.now += 0.2
    assert [f.path for f in cleaner.sweep(lead).removed] == [queue]


def test_grace_begins_anew_for_a_queue_whose_owner_was_back_in_between(observer: Bus, lead: Lead) -> None:
    """Between two sweeps the subscriber registered and went again: the cleaner has not seen it alive, but notices."""
    queue, clock = make_orphan(observer), Clock()
    cleaner = sweeper(observer, grace=30.0, clock=clock)
    cleaner.sweep(lead)
    clock.now += 29
    data, stat = observer.parts.session.get(queue)
    observer.parts.session.multi([SetData(queue, data, stat.version)])  # what registering again does to it
    clock.now += 2
    assert [f.due_in for f in cleaner.sweep(lead).waiting] == [30.0]


def test_grace_begins_anew_with_a_new_lead(observer: Bus, lead: Lead) -> None:
    """What was seen long ago under an earlier lead may have been alive for all the time since."""
    make_orphan(observer)
    clock = Clock()
    cleaner = sweeper(observer, grace=30.0, clock=clock)
    cleaner.sweep(lead)
    clock.now += 3600
    path = f"{observer.parts.tree.cleaner}/again_0000000099"
    observer.parts.session.multi([Create(path, ephemeral=True)])
    swept = cleaner.sweep(Lead(path))
    assert swept.removed == []
    assert [f.due_in for f in swept.waiting] == [30.0]


def test_what_an_earlier_leader_has_condemned_needs_no_grace(observer: Bus, lead: Lead) -> None:
    """Nobody can come back to it; what is left is the rest of the work."""
    queue = make_orphan(observer)
    observer.parts.session.multi([SetData(queue, encode(QueueState("ghost", gone=PURGED)))])
    assert [f.path for f in sweeper(observer, grace=30.0).sweep(lead).removed] == [queue]


# -- coming back -------------------------------------------------------------------------------------------------------


def test_a_registration_that_appears_between_finding_and_condemning_wins(
    observer: Bus, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue stays, with what is in it, and says nothing of being condemned."""
    queue = make_orphan(observer)
    cleaner = sweeper(observer)
    find = cleaner.find

    def then_it_registers() -> list[OrphanFinding]:
        found = find()
        registration = encode(Registration("ghost", 100))
        observer.parts.session.multi(
            [Create(observer.parts.tree.registration("users", "ghost"), registration, ephemeral=True)]
        )
        return found

    monkeypatch.setattr(cleaner, "find", then_it_registers)
    swept = cleaner.sweep(lead)
    assert (swept.removed, swept.failed) == ([], 0)
    assert decode(observer.parts.session.get(queue)[0], QueueState).gone == ""
    assert entries(observer, queue) == 3


def test_a_queue_that_was_written_between_finding_and_condemning_stays(
    observer: Bus, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its registration cannot be seen: the version says that its owner was there."""
    queue = make_orphan(observer)
    cleaner = sweeper(observer)
    find = cleaner.find

    def then_it_is_written() -> list[OrphanFinding]:
        found = find()
        observer.parts.session.multi([SetData(queue, encode(QueueState("ghost")))])
        return found

    monkeypatch.setattr(cleaner, "find", then_it_is_written)
    assert cleaner.sweep(lead).removed == []
    assert entries(observer, queue) == 3
    assert decode(observer.parts.session.get(queue)[0], QueueState) == QueueState("ghost")  # not condemned either


def test_one_that_came_back_does_not_save_the_others(
    observer: Bus, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are condemned in one transaction; where that is refused, each by itself."""
    for number in range(20):
        make_orphan(observer, f"ghost-{number}")
    cleaner = sweeper(observer)
    find = cleaner.find

    def then_one_registers() -> list[OrphanFinding]:
        found = find()
        registration = encode(Registration("ghost-7", 100))
        observer.parts.session.multi(
            [Create(observer.parts.tree.registration("users", "ghost-7"), registration, ephemeral=True)]
        )
        return found

    monkeypatch.setattr(cleaner, "find", then_one_registers)
    assert len(cleaner.sweep(lead).removed) == 19
    assert observer.parts.session.children(observer.parts.tree.messages)[0] == ["ghost-7"]


@pytest.mark.parametrize("purged", [True, False], ids=["removed", "condemned"])
def test_a_subscriber_that_comes_back_too_late_gets_a_new_queue_and_a_gap(
    observer: Bus,
    lead: Lead,
    zookeeper: Server,
    zookeeper_root: str,
    eventually: Callable[..., None],
    purged: bool,
) -> None:
    """Its old queue was condemned, or is gone altogether; what is published from then on arrives."""
    gaps: list[Gap] = []
    with (
        Proxy(zookeeper.hosts) as proxy,
        zkms.connect(proxy.hosts, zookeeper_root, cleaner=False, session_timeout=4.0) as bus,
    ):
        subscription = bus.subscribe("users", ack="manual", on_gap=gaps.append)
        old = subscription.id
        observer.publish("users", "before")
        proxy.refuse()
        expire_elsewhere(bus, zookeeper.hosts)
        queue = bus.parts.tree.queue(old, "users")
        if purged:
            assert [f.path for f in sweeper(observer).sweep(lead).removed] == [queue]
        else:
            observer.parts.session.multi([SetData(queue, encode(QueueState(bus.client_id, gone=PURGED)))])
        proxy.heal()
        eventually(lambda: observer.subscriptions("users"))
        observer.publish("users", "after")
        received = []
        eventually(lambda: received.append(subscription.get(0.1)) or "after" in [m.data for m in received if m])
        assert [gap.topic for gap in gaps] == ["users"]
        assert subscription.id != old
        assert [info.subscription for info in observer.subscriptions("users")] == [subscription.id]


def test_a_subscriber_that_moves_to_a_new_queue_with_a_lost_reply_reads_that_one(
    observer: Bus, zookeeper: Server, zookeeper_root: str, eventually: Callable[..., None]
) -> None:
    """The registration was carried out and its answer lost: the old queue's id is not used again, by anybody."""
    with Proxy(zookeeper.hosts) as proxy, zkms.connect(proxy.hosts, zookeeper_root, cleaner=False) as bus:
        gaps: list[Gap] = []
        subscription = bus.subscribe("users", ack="manual", on_gap=gaps.append)
        old = subscription.id
        cut = proxy.cut_reply(op="multi")
        observer.parts.session.multi([Delete(bus.parts.tree.queue(old, "users"))])
        assert cut.wait(10.0)
        eventually(lambda: subscription.id != old)
        observer.publish("users", "after")
        message = subscription.get(10.0)
        assert message is not None
        assert message.data == "after"
        assert len(gaps) == 1
        assert [info.subscription for info in observer.subscriptions("users")] == [subscription.id]


def expire_elsewhere(bus: Bus, hosts: str) -> None:
    """Expire the session of a bus that cannot reach ZooKeeper itself."""
    assert bus.parts.session.client_id is not None
    session_id = bus.parts.session.client_id[0]
    while True:
        client = KazooClient(hosts, client_id=bus.parts.session.client_id)
        client.start()
        granted = client.client_id[0]
        client.stop()
        client.close()
        if granted != session_id:
            return


def test_condemning_moves_the_epoch_so_that_a_stale_publisher_looks_again(
    observer: Bus, lead: Lead, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that still believes in the dead subscriber stores nothing in its queue, and reaches the living."""
    publisher, neighbour = connect(), connect().subscribe("users")
    queue = make_orphan(observer, entries=0)
    registration = observer.parts.tree.registration("users", "ghost")
    observer.parts.session.multi([Create(registration, encode(Registration("ghost", 100)), ephemeral=True)])
    observer.parts.session.multi([SetData(observer.parts.tree.topic("users"), b"")])
    stale = publisher._membership.refresh("users")
    assert "ghost" in [member.subscription for member in stale.members]
    observer.parts.session.multi([Delete(registration)])
    epoch = observer.parts.session.exists(observer.parts.tree.topic("users"))
    cleaner = sweeper(observer)
    monkeypatch.setattr(cleaner, "_remove_small", lambda *_: [])
    monkeypatch.setattr(cleaner, "_remove_large", lambda *_: [])
    cleaner.sweep(lead)
    moved = observer.parts.session.exists(observer.parts.tree.topic("users"))
    assert epoch is not None
    assert moved is not None
    assert moved.version > epoch.version
    stale.stale = False
    with publisher._membership._lock:
        publisher._membership._known["users"] = stale  # its watch has not fired yet
    receipt = publisher.publish("users", "hello")
    assert entries(observer, queue) == 0
    assert "ghost" not in [*receipt.pending, *receipt.acked, *receipt.gone]
    message = neighbour.get(5.0)
    assert message is not None
    assert message.data == "hello"


def test_a_receipt_tells_a_purged_subscriber_from_one_that_acked(
    observer: Bus, lead: Lead, connect: Callable[..., Bus], eventually: Callable[..., None]
) -> None:
    """The reason is written into the queue before its first entry goes."""
    victim = connect()
    subscription = victim.subscribe("users", ack="manual")
    receipt = observer.publish("users", 1)
    victim.parts.live_registration.close()
    generation = victim.parts.session.generation
    expire(victim)
    eventually(lambda: victim.parts.session.generation > generation)
    sweeper(observer).sweep(lead)
    assert set(receipt.wait(5.0).gone) == {subscription.id}
    assert receipt.acked == ()


# -- what else is left behind ------------------------------------------------------------------------------------------


def test_a_flag_goes_with_its_queue_and_alone_if_it_was_left(observer: Bus, lead: Lead) -> None:
    """The epoch moves, since publishers have the flag in their snapshots."""
    make_orphan(observer)
    flags = [observer.parts.tree.full_flag("users", name) for name in ("ghost", "nobody")]
    for flag in flags:
        observer.parts.session.multi([Create(flag)])
    swept = sweeper(observer).sweep(lead)
    assert kinds(swept.removed) == [("flag", "nobody!"), ("queue", "users")]
    assert [observer.parts.session.exists(flag) for flag in flags] == [None, None]


def test_a_flag_of_a_live_subscription_stays(observer: Bus, lead: Lead, connect: Callable[..., Bus]) -> None:
    """It is what keeps publishers from overfilling its queue."""
    subscription = connect().subscribe("users")
    flag = observer.parts.tree.full_flag("users", subscription.id)
    observer.parts.session.multi([Create(flag)])
    assert sweeper(observer).sweep(lead).removed == []
    assert observer.parts.session.exists(flag) is not None


def test_a_subscription_without_queues_goes(observer: Bus, lead: Lead) -> None:
    """Left by a removal that was cut short."""
    observer.parts.session.multi([Create(observer.parts.tree.subscription("ghost"))])
    assert kinds(sweeper(observer).sweep(lead).removed) == [("empty", "ghost")]


def test_producers_go_when_their_client_is_gone_and_they_were_silent_for_long(
    observer: Bus, lead: Lead, connect: Callable[..., Bus]
) -> None:
    """Named ones and those of connected clients stay, whatever their age, and so do young ones."""
    publisher = connect()
    publisher.subscribe("users")
    publisher.publish("users", 1)
    for name, owner in (("ghost", "ghost"), ("orders", "ghost")):
        observer.parts.session.multi([Create(observer.parts.tree.producer(name), encode(ProducerState(owner, 7)))])
    young = sweeper(observer, wall_clock=lambda: time.time() + 3000)
    assert young.sweep(lead).removed == []
    old = sweeper(observer, wall_clock=lambda: time.time() + 4000)
    assert kinds(old.sweep(lead).removed) == [("producer", "ghost")]
    assert sorted(observer.parts.session.children(observer.parts.tree.producers)[0]) == sorted(
        ["orders", publisher.client_id]
    )


@pytest.mark.parametrize("sign", ["connects", "publishes"])
def test_a_producer_that_shows_a_sign_of_life_at_the_last_moment_stays(
    observer: Bus, lead: Lead, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    """Between finding and removing its client comes back, or has written: the numbers are kept."""
    path = observer.parts.tree.producer("ghost")
    observer.parts.session.multi([Create(path, encode(ProducerState("ghost", 7)))])
    cleaner = sweeper(observer, wall_clock=lambda: time.time() + 4000)
    find = cleaner.find

    def then_it_lives() -> list[OrphanFinding]:
        found = find()
        assert kinds(found) == [("producer", "ghost")]
        client = Create(observer.parts.tree.client("ghost"), ephemeral=True)
        observer.parts.session.multi(
            [client if sign == "connects" else SetData(path, encode(ProducerState("ghost", 8)))]
        )
        return found

    monkeypatch.setattr(cleaner, "find", then_it_lives)
    assert cleaner.sweep(lead).removed == []
    assert observer.parts.session.exists(path) is not None


def test_what_was_set_aside_stays(observer: Bus, lead: Lead) -> None:
    """Quarantined entries of a dead subscriber are evidence, and not the cleaner's."""
    make_orphan(observer)
    shelf = observer.parts.tree.dead_queue("ghost", "users")
    for path in (shelf.rsplit("/", 1)[0], shelf, f"{shelf}/x"):
        observer.parts.session.multi([Create(path)])
    sweeper(observer).sweep(lead)
    assert observer.parts.session.exists(f"{shelf}/x") is not None


# -- garbage -----------------------------------------------------------------------------------------------------------


def test_garbage_does_not_stop_the_sweep_of_the_others(observer: Bus, lead: Lead) -> None:
    """In messages/, in a queue and below its entries, in subscribers/, in producers/ and in clients/."""
    tree, session = observer.parts.tree, observer.parts.session
    make_orphan(observer, "a", entries=2)
    make_orphan(observer, "z", entries=2)
    deep = make_orphan(observer, "deep", entries=2)
    for path, data in (
        (f"{tree.messages}/junk", b"\xff"),
        (f"{tree.messages}/junk/users", b"{"),
        (f"{tree.messages}/junk/users/x", b"\0"),
        (f"{deep}/f.1.4.0000000099", b""),
        (f"{deep}/f.1.4.0000000099/below", b""),
        (f"{deep}/f.1.4.0000000099/below/that", b""),
        (f"{tree.subscribers}/junk", b"\xff\xfe"),
        (f"{tree.subscribers}/junk/who", b"[" * 5000),
        (f"{tree.subscribers}/junk/who/deeper", b""),
        (f"{tree.producers}/junk", b"no json"),
        (f"{tree.producers}/junk/deeper", b""),
        (f"{tree.clients}/junk", b"\0"),
    ):
        session.multi([Create(path, data)])
    swept = sweeper(observer).sweep(lead)
    assert swept.failed == 0
    assert session.children(tree.messages)[0] == []
    assert session.exists(f"{tree.producers}/junk") is not None


def test_a_znode_that_may_not_be_read_or_removed_is_left_and_counted(
    observer: Bus, lead: Lead, zookeeper: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Its ACL keeps us out; the sweep goes on with the others."""
    queue = make_orphan(observer, "a", "locked")
    make_orphan(observer, "b")
    make_orphan(observer, "c", "elsewhere")
    hidden = make_orphan(observer, "d", "secret", 1)
    client = KazooClient(zookeeper.hosts, auth_data=[("digest", "other:secret")])
    client.start()
    others = [make_digest_acl("other", "secret", all=True)]
    locked = [queue, f"{observer.parts.tree.subscribers}/secret", observer.parts.tree.subscription("c")]
    for path in locked:
        client.set_acls(path, others)
    try:
        swept = sweeper(observer).sweep(lead)
        assert kinds(swept.removed) == [("queue", "users")]
        assert entries(observer, hidden) == 1  # whether anybody is registered for it could not be read
        assert caplog.text.count("not allowed") >= len(locked)
    finally:
        for path in locked:
            client.set_acls(path, OPEN_ACL_UNSAFE)
        client.stop()
        client.close()
    assert len(sweeper(observer).sweep(lead).removed) == 3


def test_a_queue_that_may_not_be_written_is_counted_as_a_failure(observer: Bus, lead: Lead, zookeeper: Server) -> None:
    """It can be read, so it is found; ZooKeeper refuses to condemn it, and the other one goes."""
    queue = make_orphan(observer, "a")
    make_orphan(observer, "b")
    client = KazooClient(zookeeper.hosts)
    client.start()
    client.set_acls(queue, [make_acl("world", "anyone", read=True, delete=True)])
    try:
        swept = sweeper(observer).sweep(lead)
        assert (kinds(swept.removed), swept.failed) == ([("queue", "users")], 1)
        assert entries(observer, queue) == 3
    finally:
        client.stop()
        client.close()


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_sweep_asks_once_a_subscription_and_once_a_topic_and_lists_no_queue(
    zookeeper: Server, zookeeper_root: str, observer: Bus
) -> None:
    """A thousand live queues cost a thousand pipelined requests, and a deep one costs no more than an empty one."""
    tree, session = observer.parts.tree, observer.parts.session
    queue = make_orphan(observer, "deep", entries=2000)
    session.multi([Create(tree.registration("users", "deep"))])
    for start in range(0, 1000, 250):
        names = [f"c{number}" for number in range(start, start + 250)]
        session.multi([Create(tree.subscription(name)) for name in names])
        session.multi([Create(tree.queue(name, "users"), encode(QueueState(name))) for name in names])
        session.multi([Create(tree.registration("users", name)) for name in names])
    with Proxy(zookeeper.hosts) as proxy, zkms.connect(proxy.hosts, zookeeper_root, cleaner=False) as bus:
        before = proxy.requests
        began = time.monotonic()
        assert sweeper(bus).find() == []
        assert time.monotonic() - began < 10
        asked = proxy.requests - before
        del asked["ping"]
        assert asked.total() < 1001 + 10
    assert entries(observer, queue) == 2000


def test_hundreds_of_dead_queues_take_few_transactions(zookeeper: Server, zookeeper_root: str, observer: Bus) -> None:
    """They are condemned and removed many at a time."""
    for number in range(300):
        make_orphan(observer, f"ghost-{number}", entries=1)
    with Proxy(zookeeper.hosts) as proxy, zkms.connect(proxy.hosts, zookeeper_root, cleaner=False) as bus:
        held = Election(bus.parts.session, bus.parts.tree, bus.client_id).lead()
        assert held is not None
        before = proxy.requests
        assert len(sweeper(bus).sweep(held).removed) == 300
        assert (proxy.requests - before)["multi"] <= 10


# -- fencing -----------------------------------------------------------------------------------------------------------

ORPHANS: dict[str, Callable[[Bus], object]] = {
    "a small queue": lambda bus: make_orphan(bus, entries=2),
    "a large queue": lambda bus: make_orphan(bus, entries=300),
    "a condemned queue": lambda bus: bus.parts.session.multi(
        [SetData(make_orphan(bus, entries=2), encode(QueueState("ghost", gone=PURGED)))]
    ),
    "an empty subscription": lambda bus: bus.parts.session.multi([Create(bus.parts.tree.subscription("ghost"))]),
    "a flag": lambda bus: bus.parts.session.multi(
        [Create(bus.parts.tree.topic("users")), Create(bus.parts.tree.full_flag("users", "ghost"))]
    ),
    "a producer": lambda bus: bus.parts.session.multi(
        [Create(bus.parts.tree.producer("ghost"), encode(ProducerState("ghost", 1)))]
    ),
}


def snapshot(bus: Bus) -> dict[str, tuple[bytes, int]]:
    """Everything below the test's root but the election: data and version by path."""
    found, paths = {}, [bus.parts.tree.root]
    while paths:
        path = paths.pop()
        names, _ = bus.parts.session.children(path)
        data, stat = bus.parts.session.get(path)
        found[path] = data, stat.version
        paths += [f"{path}/{name}" for name in names if f"{path}/{name}" != bus.parts.tree.cleaner]
    return found


@pytest.mark.parametrize("what", ORPHANS)
def test_without_the_lead_nothing_is_changed(observer: Bus, lead: Lead, what: str) -> None:
    """Whatever a former leader is about to remove: its first transaction is refused, and it stops."""
    ORPHANS[what](observer)
    cleaner = sweeper(observer, wall_clock=lambda: time.time() + 10_000)
    assert [finding.kind for finding in cleaner.find() if finding.kind != "topics"] != []
    before = snapshot(observer)
    observer.parts.session.multi([Delete(lead.path)])
    with pytest.raises(TransactionFailed) as refused:
        cleaner.sweep(lead)
    assert refused.value.operation.path == lead.path
    assert snapshot(observer) == before


@pytest.mark.parametrize("what", ORPHANS)
def test_the_test_above_notices_a_missing_guard(
    observer: Bus, lead: Lead, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fencing broken on purpose: with no check of the lead, the same steps do change the tree."""
    ORPHANS[what](observer)
    monkeypatch.setattr(Lead, "guard", ())
    before = snapshot(observer)
    observer.parts.session.multi([Delete(lead.path)])
    sweeper(observer, wall_clock=lambda: time.time() + 10_000).sweep(lead)
    assert snapshot(observer) != before


def test_a_sweep_that_is_told_to_stop_stops_between_transactions(
    observer: Bus, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a large queue, whose rest the next sweep removes."""
    monkeypatch.setattr("zkms.zookeeper.deletion.BATCH", 100)
    queue = make_orphan(observer, entries=5000)
    steps = iter(range(10))
    with pytest.raises(SweepCut):
        sweeper(observer, stopped=lambda: next(steps, None) is None).sweep(lead)
    assert 0 < entries(observer, queue) < 5000
    assert decode(observer.parts.session.get(queue)[0], QueueState).gone == PURGED
    assert kinds(sweeper(observer, grace=30.0).sweep(lead).removed) == [("queue", "users")]


def test_a_finding_has_only_public_facts_in_its_text() -> None:
    """What the log says of it."""
    finding = OrphanFinding("queue", "/zkms/messages/a/b", "gone", 3, data=b"secret")
    assert str(finding) == "queue /zkms/messages/a/b (3 entries): gone"
    assert msgspec.structs.replace(finding, entries=1).entries == 1


@pytest.mark.parametrize("count", [5, 500])
def test_a_queue_that_is_made_anew_while_it_is_removed_keeps_what_comes(
    observer: Bus, lead: Lead, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A durable subscription comes back when its queue is condemned: its new queue has the old one's path."""
    sub = observer.subscribe("users", name="audit")
    for number in range(count):
        observer.publish("users", number)
    queue, registration = (
        observer.parts.tree.queue("audit", "users"),
        observer.parts.tree.registration("users", "audit"),
    )
    sub.close()
    observer.parts.session.multi([Delete(registration)])
    condemn = Sweeper._condemn

    def then_come_back(self: Sweeper, *args: Any) -> list[OrphanFinding]:
        condemned = condemn(self, *args)
        observer.subscribe("users", name="audit").close()
        for number in range(count):
            observer.publish("users", f"new {number}")
        return condemned

    monkeypatch.setattr(Sweeper, "_condemn", then_come_back)
    assert queue not in [finding.path for finding in sweeper(observer).sweep(lead).removed]
    assert entries(observer, queue) == count
