"""What other programs write into the tree: set aside and reported, and it blocks nothing."""

from __future__ import annotations

from zlib import crc32

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import Bus, CannotDecode, NoSubscribers, StoreError, Subscription
from zkms.message import frame as frames
from zkms.names import FULL_MARK
from zkms.tree.paths import Tree
from zkms.tree.records import GapRecord, ProducerState, Registration, decode, encode

GOOD = frames.encode("stranger", 1, 0.0, [frames.pack("hello")])
DAMAGED = GOOD[:-1] + bytes([GOOD[-1] ^ 1])
DEEP = b"\x95\xa1p\x01\xcb" + b"\0" * 8 + b"\x91\x92\x00\xc4\x01a" + b"\x91" * 50_000 + b"\1"


def wrapped(body: bytes) -> bytes:
    """A body in a correct envelope."""
    return b"zkms\x01\0\0\0" + crc32(body).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


@pytest.fixture
def sub(bus: Bus, listener: Listener) -> Subscription:
    """The subscription whose queue is spoilt."""
    return listener.subscribe(bus, "users")


@pytest.fixture
def listener() -> Listener:
    """What it hears."""
    return Listener()


@pytest.fixture
def queue(sub: Subscription, tree: Tree) -> str:
    """Its queue."""
    return tree.queue(sub.id, "users")


@pytest.mark.parametrize(
    ("name", "sequence", "data"),
    [
        ("junk", False, b"garbage"),
        ("junk-", True, b""),
        ("f.1.10.", True, b"garbage"),
        ("f.1.10.", True, b""),
        ("f.1.10.", True, DAMAGED),
        ("f.1.10.", True, GOOD[:-5]),
        ("f.1.10.", True, GOOD + b"more"),
        ("f.1.10.", True, b"\x80\x04\x95pickle"),
        ("f.1.10.", True, wrapped(b"\xff\xff")),
        ("f.1.10.", True, wrapped(b"\x94\xa1\xff\x01\xcb" + b"\0" * 8 + b"\x91\x92\x00\xc4\x01a")),
        ("f.1.10.", True, wrapped(DEEP)),
        ("g.0.10.", True, b"no gap"),
        ("g.0.10.", True, b'{"zkms":"gap","reason":"\xff"}'),
        ("g.0.10.", True, b'{"zkms":"gap","x":' + b"[" * 50_000),
        ("f.1.10.2147483647", False, GOOD),
        ("f.1.10.0000000005", False, GOOD),
        ("q\u00e4", False, GOOD),
        ("q " * 100, False, GOOD),
    ],
    ids=ascii,
)
def test_garbage_in_a_queue_is_set_aside_reported_and_blocks_nothing(
    bus: Bus,
    listener: Listener,
    sub: Subscription,
    queue: str,
    raw: KazooClient,
    tree: Tree,
    eventually: Eventually,
    name: str,
    sequence: bool,
    data: bytes,
) -> None:
    """It is under dead/ byte by byte, on_error hears of it once, and all messages arrive, without a gap."""
    bus.publish("users", "before")
    raw.create(f"{queue}/{name}", data, sequence=sequence)
    for number in range(8):
        bus.publish("users", number)
    eventually(lambda: len(listener.data) == 9)
    assert listener.data == ["before", *range(8)]
    eventually(lambda: listener.errors)
    (error,) = listener.errors
    assert isinstance(error, CannotDecode)
    assert error.raw == data
    assert error.path is not None
    assert error.path.startswith(f"{queue}/{name}")
    shelf = tree.dead_queue(sub.id, "users")
    (kept,) = raw.get_children(shelf)
    assert raw.get(f"{shelf}/{kept}")[0] == data
    assert f"{shelf}/{kept}" in str(error)
    eventually(lambda: raw.get_children(queue) == [])
    assert listener.gaps == []


def test_a_huge_garbage_znode_is_reported_and_removed(
    bus: Bus, listener: Listener, queue: str, raw: KazooClient, eventually: Eventually
) -> None:
    """900 KB are too much to keep; on_error has the bytes and says that they were dropped."""
    raw.create(f"{queue}/junk", b"x" * 900_000)
    bus.publish("users", "after")
    eventually(lambda: listener.data and listener.errors)
    (error,) = listener.errors
    assert isinstance(error, CannotDecode)
    assert len(error.raw) == 900_000
    assert "dropped" in str(error)
    eventually(lambda: raw.get_children(queue) == [])


def test_garbage_with_children_is_set_aside_too(
    bus: Bus, listener: Listener, sub: Subscription, queue: str, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """Znodes below an entry cannot be ours; the entry is kept, they are not."""
    with raw.transaction() as all_at_once:  # one by one, the first could be set aside before the second is there
        for path in ("junk", "junk/deep", "junk/deep/er"):
            all_at_once.create(f"{queue}/{path}", b"below")
    bus.publish("users", "after")
    eventually(lambda: listener.data == ["after"] and raw.get_children(queue) == [])
    assert raw.get_children(tree.dead_queue(sub.id, "users")) == ["junk"]
    assert len(listener.errors) == 1


def test_children_below_a_message_do_not_keep_it_from_being_acked(
    bus: Bus, listener: Listener, sub: Subscription, queue: str, raw: KazooClient, eventually: Eventually
) -> None:
    """Nor the others that are acked with it."""
    listener.go.clear()
    receipts = [bus.publish("users", number) for number in range(6)]
    raw.create(f"{queue}/{sorted(raw.get_children(queue))[2]}/below/deep", b"", makepath=True)
    listener.go.set()
    for receipt in receipts:
        assert receipt.wait(timeout=10).acked == (sub.id,)
    assert raw.get_children(queue) == []


def test_the_same_garbage_twice_is_kept_twice(
    bus: Bus, listener: Listener, sub: Subscription, queue: str, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """The shelf has room for both, though their names are the same."""
    for number in range(3):
        raw.create(f"{queue}/junk", b"%d" % number)
        eventually(lambda number=number: len(listener.errors) == number + 1)
        eventually(lambda: raw.get_children(queue) == [])
    shelf = tree.dead_queue(sub.id, "users")
    assert {raw.get(f"{shelf}/{name}")[0] for name in raw.get_children(shelf)} == {b"0", b"1", b"2"}
    bus.publish("users", "after")
    eventually(lambda: listener.data == ["after"])
    assert listener.gaps == []


def test_a_flood_of_garbage_does_not_stop_the_messages(
    bus: Bus, listener: Listener, queue: str, raw: KazooClient, eventually: Eventually
) -> None:
    """Two hundred znodes of another program among ten messages."""
    for number in range(10):
        for reply in [raw.create_async(f"{queue}/junk-{number}-{index}", b"x") for index in range(20)]:
            reply.get(timeout=10)
        bus.publish("users", number)
    eventually(lambda: len(listener.data) == 10 and len(listener.errors) == 200)
    assert listener.data == list(range(10))
    assert listener.gaps == []
    eventually(lambda: raw.get_children(queue) == [])


@pytest.mark.parametrize("forged", ["f.1.10.2147483647", "f.1.10.0000000003", "g.0.10.2147483647"])
def test_a_forged_place_hides_no_message(
    bus: Bus, listener: Listener, queue: str, raw: KazooClient, eventually: Eventually, forged: str
) -> None:
    """A name with a place in the future, or one that a message will get, makes no later message invisible."""
    listener.go.clear()
    bus.publish("users", 0)
    eventually(lambda: listener.data)
    raw.create(f"{queue}/{forged}", b"forged")
    for number in range(1, 10):
        bus.publish("users", number)
    listener.go.set()
    eventually(lambda: len(listener.data) == 10)
    assert listener.data == list(range(10))


def test_a_message_that_shares_its_place_with_a_forged_one_arrives(
    bus: Bus, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """The reader finds both in one listing."""
    listener = Listener()
    listener.go.clear()
    sub = listener.subscribe(bus, "users", prefetch=1)
    queue = tree.queue(sub.id, "users")
    bus.publish("users", 0)
    eventually(lambda: listener.data)
    for number in range(1, 4):
        bus.publish("users", number)
    raw.create(f"{queue}/f.1.1.0000000008", b"forged")
    for number in range(4, 12):
        bus.publish("users", number)
    listener.go.set()
    eventually(lambda: len(listener.data) == 12)
    assert listener.data == list(range(12))
    eventually(lambda: raw.get_children(queue) == [])


def test_a_message_of_another_program_that_keeps_to_the_format_is_a_message(
    listener: Listener, queue: str, raw: KazooClient, eventually: Eventually
) -> None:
    """The format is open: whoever writes it is a publisher."""
    raw.create(f"{queue}/f.1.{len(GOOD)}.", GOOD, sequence=True)
    eventually(lambda: listener.data == ["hello"])
    assert listener.messages[0].producer == "stranger"
    assert listener.errors == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b'{"zkms":"registration","client":"\xff","limit":1}',
        b'{"zkms":"registration","client":"c","limit":0}',
        b'{"zkms":"registration","x":' + b"[" * 50_000,
        encode(GapRecord("wrong kind")),
    ],
    ids=lambda data: ascii(data[:50]),
)
def test_garbage_among_the_registrations_does_not_stop_publishing(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, data: bytes
) -> None:
    """It is nobody: messages reach the others, and without others there are no subscribers."""
    raw.ensure_path(tree.topic("users"))
    raw.create(tree.registration("users", "garbage"), data)
    with pytest.raises(NoSubscribers):
        bus.publish("users", 1)
    other = connect()
    sub = other.subscribe("users")
    receipt = bus.publish("users", 2)
    assert sub.get(timeout=5).data == 2
    assert receipt.wait(timeout=5).acked == (sub.id,)
    assert {info.kind for info in bus.subscriptions("users")} == {"live", "garbage"}


def test_odd_children_of_a_topic_do_not_stop_publishing(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree
) -> None:
    """A flag without a registration, a child with children, a name with spaces."""
    sub = connect().subscribe("users")
    for name in (f"nobody{FULL_MARK}", FULL_MARK, "with/children", "with spaces", "\u00e4"):
        raw.create(f"{tree.topic('users')}/{name}", b"x", makepath=True)
    bus.publish("users", 1)
    assert sub.get(timeout=5).data == 1


@pytest.mark.parametrize("limit", [1, 100_000])
def test_a_registration_without_a_queue_does_not_stop_publishing(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, limit: int
) -> None:
    """Receipts name it as gone, the others get everything in order; it is found out once, not with every message."""
    sub = connect().subscribe("users", prefetch=100_000)
    raw.create(tree.registration("users", "ghost"), encode(Registration("ghost", limit)))
    receipt = bus.publish("users", "one")
    assert sub.get(timeout=5).data == "one"
    assert receipt.wait(timeout=5).acked == (sub.id,)
    assert set(receipt.gone) == {"ghost"}
    count = 500 if limit == 1 else 20_000  # the smallest limit says how many travel together
    receipts = bus.publish_many("users", range(count))
    assert len(receipts) == count
    assert set(receipts[-1].gone) == {"ghost"}
    assert [sub.get(timeout=5).data for _ in range(count)] == list(range(count))


def test_registrations_without_queues_alone_are_nobody_reached(bus: Bus, raw: KazooClient, tree: Tree) -> None:
    """Nothing is stored, the receipt says so, and publish() returns."""
    raw.ensure_path(tree.topic("users"))
    raw.create(tree.registration("users", "ghost"), encode(Registration("ghost", 5)))
    receipt = bus.publish("users", 1)
    assert (receipt.wait(timeout=5).acked, set(receipt.gone)) == ((), {"ghost"})


def test_garbage_in_the_producers_node_is_an_error_that_names_it(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree
) -> None:
    """Numbers cannot be made up; with the node removed, publishing goes on."""
    sub = connect().subscribe("users")
    bus.publish("users", 1)
    path = tree.producer(bus.client_id)
    raw.set(path, b"garbage")
    with pytest.raises(StoreError, match=path):
        bus.publish("users", 2)
    raw.delete(path)
    receipt = bus.publish("users", 3)
    assert [sub.get(timeout=5).data for _ in range(2)] == [1, 3]
    state = decode(raw.get(path)[0], ProducerState)
    assert (state.owner, state.seq) == (bus.client_id, receipt.seq)


def test_a_root_that_holds_another_programs_data_is_refused(
    connect: Connect, raw: KazooClient, zookeeper_root: str
) -> None:
    """With the path, and nothing of it is touched."""
    raw.create(f"{zookeeper_root}/taken", b"config=1", makepath=True)
    with pytest.raises(StoreError, match="another program"):
        connect(root=f"{zookeeper_root}/taken")
    assert raw.get_children(f"{zookeeper_root}/taken") == []


def test_a_queue_whose_data_was_overwritten_still_works(
    bus: Bus, listener: Listener, queue: str, raw: KazooClient, eventually: Eventually
) -> None:
    """Its data is for receipts; messages flow, and a receipt does not claim an ack that it cannot know."""
    raw.set(queue, b"garbage")
    receipt = bus.publish("users", 1)
    eventually(lambda: listener.data == [1])
    receipt.wait(timeout=5)
    assert receipt.acked == ()
    assert "overwritten" in next(iter(receipt.gone.values()))
