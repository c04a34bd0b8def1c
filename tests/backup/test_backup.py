"""Backup and restore: exactly what was not acked, in order, or nothing and a sentence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zkms
from tests.backup.conftest import drain
from tests.support.buses import Eventually
from zkms import Bus
from zkms.backup.archive import (
    BadBackup,
    DelayedRecord,
    End,
    EntryRecord,
    Header,
    LateRecord,
    PartitionRecord,
    Subscribed,
    Writer,
    records,
)
from zkms.backup.backup import _Partition, _Source, back_up
from zkms.backup.restore import RootInUse, restore
from zkms.backup.verify import examine
from zkms.server.server import Server
from zkms.testing.proxy import Proxy
from zkms.tree.paths import LAYOUT, Tree
from zkms.tree.records import Part, Registration
from zkms.zookeeper.session import Session


def _fill(bus: Bus, count: int) -> None:
    """A durable subscription that has a frame of so many, every third of them acked."""
    sub = bus.subscribe("orders", name="billing")
    bus.publish_many("orders", range(count))
    messages = sub.fetch(count, timeout=30.0)
    while len(messages) < count:
        messages += sub.fetch(count, timeout=30.0)
    sub.ack(messages[::3])
    sub.close()


def test_what_was_not_acked_comes_back_in_order(
    bus: Bus, beside: Bus, session: Session, tree: Tree, other: Tree, tmp_path: Path
) -> None:
    """Also from inside a frame: of twelve messages in one, those that were acked stay acked."""
    _fill(bus, 12)
    summary = back_up(session, tree, tmp_path / "kept")
    assert (summary.subscriptions, summary.messages) == (1, 8)
    done = restore(session, other, tmp_path / "kept")
    assert (done.subscriptions, done.kept) == (1, [])
    assert [m.data for m in drain(beside, "orders", name="billing")] == [n for n in range(12) if n % 3]


def test_groups_keys_attempts_and_large_messages_come_back(
    bus: Bus, beside: Bus, session: Session, tree: Tree, other: Tree, tmp_path: Path
) -> None:
    """Every partition in its order, with bodies that several queues pointed to, priorities and headers."""
    for group in ("first", "second"):
        bus.create_group("jobs", group, partitions=4)
    bus.publish_many("jobs", [[n, "x" * 3_000] for n in range(40)], key=lambda data: str(data[0] % 5))
    bus.subscribe("jobs", name="all").close()
    bus.publish("jobs", [100, "late"], key="1", headers={"by": "test"}, priority=3)
    bus.publish_many("jobs", [[n, "y" * 30_000] for n in range(200, 208)], key=lambda data: str(data[0] % 5))
    back_up(session, tree, tmp_path / "kept")
    assert restore(session, other, tmp_path / "kept").subscriptions == 3
    for group in ("first", "second"):
        found = drain(beside, "jobs", group=group)
        assert sorted(m.data[0] for m in found) == [*range(40), 100, *range(200, 208)]
        for key in map(str, range(5)):
            numbers = [m.data[0] for m in found if m.key == key and not m.headers]
            assert numbers == sorted(numbers)
        assert [m.headers for m in found if m.data[0] == 100] == [{"by": "test"}]
    assert drain(beside, "jobs", name="all")[0].data[0] == 100  # its priority


def test_delayed_messages_and_dead_letters_come_back(
    bus: Bus, beside: Bus, session: Session, tree: Tree, other: Tree, tmp_path: Path, eventually: Eventually
) -> None:
    """A message that was not due, one that nobody could do with; live subscriptions are left out."""
    bus.subscribe("users")
    sub = bus.subscribe("jobs", group="workers", partitions=1)
    bus.publish("jobs", "bad")
    message = sub.get(timeout=30.0)
    assert message is not None
    message.reject("it is bad")
    sub.close()
    bus.publish("jobs", "later", delay=3600.0)
    summary = back_up(session, tree, tmp_path / "kept")
    assert (summary.subscriptions, summary.messages, summary.delayed, summary.letters) == (1, 0, 1, 1)
    restore(session, other, tmp_path / "kept")
    assert [(d.topic, d.messages) for d in beside.delayed()] == [("jobs", 1)]
    (letter,) = beside.dead_letters()
    assert (letter.data, letter.reason) == ("bad", "rejected: it is bad")
    beside.requeue(letter)
    assert [m.data for m in drain(beside, "jobs", group="workers")] == ["bad"]


def test_what_is_acked_while_it_is_read_is_left_out(
    bus: Bus, session: Session, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledger and queue are seen from one moment; with the first look believed, what was acked would come back."""
    sub = bus.subscribe("orders", name="billing")
    for n in range(6):
        bus.publish("orders", n)
    messages = sub.fetch(6, timeout=30.0)
    read = _Source._data
    acked: list[zkms.Message] = []

    def ack_meanwhile(self: _Source, *args: object) -> dict[str, bytes]:
        found = read(self, *args)  # type: ignore[arg-type]
        sub.ack([message := messages.pop(0)])
        acked.append(message)
        return found

    monkeypatch.setattr(_Source, "_data", ack_meanwhile)
    assert back_up(session, tree, tmp_path / "sound").messages == 5
    monkeypatch.setattr(_Source, "_moment", lambda self, queue, _ledger: (set(names), {}))
    names = session.children(tree.queue("billing", "orders"))[0]
    assert back_up(session, tree, tmp_path / "unsound").messages == 5
    assert len(acked) == 2, "with the mechanism switched off, one that is acked is in the backup"


def test_what_becomes_due_while_it_is_read_comes_back_once_for_everybody(
    bus: Bus,
    beside: Bus,
    session: Session,
    tree: Tree,
    other: Tree,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those who were read before it was due get it, and those who were read after it: the former are read again."""
    topics = {"a": "orders", "b": "orders", "every": "*"}
    for name, topic in topics.items():
        bus.subscribe(topic, name=name).close()
    read = _Source._partition

    def until_due(self: _Source, partition: _Partition) -> Iterator[PartitionRecord | EntryRecord]:
        if partition.subscription == "b":
            eventually(lambda: not bus.delayed(), timeout=120.0, what="the message is moved to its queues")
        return read(self, partition)

    monkeypatch.setattr(_Source, "_partition", until_due)
    for delay in (2.0, 10.0, 40.0):  # a slow machine needs longer to begin
        bus.publish("orders", "before")
        bus.publish("orders", "now due", delay=delay)
        summary = back_up(session, tree, tmp_path / "kept")
        if any(isinstance(record, LateRecord) for record in records(tmp_path / "kept")):
            break
        assert [len(drain(bus, topic, name=name)) for name, topic in topics.items()] == [2, 2, 2]
    assert (summary.delayed, summary.messages) == (0, 6)
    assert restore(session, other, tmp_path / "kept").delayed == 0
    for name, topic in topics.items():
        assert [m.data for m in drain(beside, topic, name=name)] == ["before", "now due"]


def test_a_letter_that_is_requeued_while_it_is_read_is_in_it(
    bus: Bus, session: Session, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue was read before, and its shelf would be read after."""
    sub = bus.subscribe("jobs", name="worker")
    bus.publish("jobs", "bad")
    message = sub.get(timeout=30.0)
    assert message is not None
    message.reject("it is bad")
    sub.close()
    delayed = _Source.delayed

    def requeue(self: _Source) -> Iterator[DelayedRecord]:
        for letter in bus.dead_letters():
            bus.requeue(letter)
        return delayed(self)

    monkeypatch.setattr(_Source, "delayed", requeue)
    summary = back_up(session, tree, tmp_path / "kept")
    assert (summary.messages, summary.letters) == (0, 1)
    assert bus.dead_letters() == []


def test_what_may_not_be_read_is_left_out_and_told(
    bus: Bus,
    beside: Bus,
    session: Session,
    tree: Tree,
    other: Tree,
    tmp_path: Path,
    lock: Callable[[str], str],
) -> None:
    """One entry that somebody else has locked does not keep the rest from being backed up."""
    bus.subscribe("orders", name="billing").close()
    bus.publish("orders", 1)
    locked = lock(tree.queue("billing", "orders"))
    bus.publish("orders", 2)
    summary = back_up(session, tree, tmp_path / "kept")
    assert (summary.messages, summary.unreadable, summary.such_as) == (2, 1, (locked,))
    restore(session, other, tmp_path / "kept")
    assert [m.data for m in drain(beside, "orders", name="billing")] == [1, 2]


def test_a_backup_in_full_traffic_is_a_run_without_holes(
    bus: Bus, session: Session, tree: Tree, tmp_path: Path
) -> None:
    """While one thread publishes and another acks: nothing between the oldest and the newest is missing."""
    sub = bus.subscribe("orders", name="billing")
    stop = threading.Event()
    published, acked = 0, 0

    def publish() -> None:
        nonlocal published
        while not stop.is_set() and published < 20_000:
            bus.publish_many("orders", range(published, published + 20))
            published += 20

    def read() -> None:
        nonlocal acked
        while not stop.is_set():
            messages = sub.fetch(7, timeout=0.1)
            sub.ack(messages)
            acked += len(messages)

    threads = [threading.Thread(target=publish), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(5):
            least_acked, least_published = acked, published
            file = tmp_path / f"kept-{turn}"
            summary = back_up(session, tree, file)
            entries = [record for record in records(file) if isinstance(record, EntryRecord)]
            sequences = [entry.sequence for entry in entries]
            assert sequences == list(range(sequences[0], sequences[-1] + 1)) if sequences else True
            assert summary.messages >= least_published - acked - 7  # seven may be acked, and not counted yet
            assert summary.messages <= published + 20 - least_acked
            time.sleep(0.05)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _flip(raw: bytes) -> bytes:
    return raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 1]) + raw[len(raw) // 2 + 1 :]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a bit flipped": (_flip, "damaged"),
    "the end missing": (lambda raw: raw[: raw.rindex(b"type") - 10], "its end is missing"),
    "cut": (lambda raw: raw[:-5], "cut off"),
    "cut in a prefix": (lambda raw: raw[: raw.rindex(b"type") - 7], "middle of a record"),
    "more after the end": (lambda raw: raw + raw[raw.rindex(b"type") - 10 :], "after the end"),
    "something else": (lambda raw: b"PK" + raw, "no backup"),
    "empty": (lambda _raw: b"", "no backup"),
}


def test_a_damaged_file_restores_nothing(bus: Bus, session: Session, tree: Tree, other: Tree, tmp_path: Path) -> None:
    """It is looked at as a whole before anything is written, and the sentence says what is wrong."""
    _fill(bus, 3)
    file = tmp_path / "kept"
    back_up(session, tree, file)
    sound = file.read_bytes()
    for name, (damage, said) in DAMAGES.items():
        file.write_bytes(damage(sound))
        with pytest.raises(BadBackup, match=said):
            restore(session, other, file)
        assert session.exists(other.root) is None, name


def test_a_root_that_is_in_use_is_refused(bus: Bus, session: Session, tree: Tree, tmp_path: Path) -> None:
    """Unless it may be added to: then what is there stays as it is, and is named."""
    _fill(bus, 3)
    back_up(session, tree, tmp_path / "kept")
    with pytest.raises(RootInUse, match="billing"):
        restore(session, tree, tmp_path / "kept")
    done = restore(session, tree, tmp_path / "kept", add=True)
    assert (done.subscriptions, done.kept) == (0, ["billing of orders"])
    assert [m.data for m in drain(bus, "orders", name="billing")] == [1, 2]


def test_lost_replies_restore_nothing_twice(
    bus: Bus, zookeeper: Server, session: Session, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever transaction's reply is lost: each batch is there once."""
    monkeypatch.setattr("zkms.backup.restore_subscription.BATCH", 2)
    sub = bus.subscribe("orders", name="billing")
    for n in range(7):
        bus.publish("orders", n)
    sub.close()
    back_up(session, tree, tmp_path / "kept")
    from zkms.config import Config

    with Proxy(zookeeper.hosts) as proxy:
        through = Session(Config(hosts=proxy.hosts, root=tree.root, cleaner=False))
        through.start()
        try:
            for lost in range(1, 5):
                target = Tree(f"{tree.root}/restored-{lost}")
                with zkms.connect(zookeeper.hosts, root=target.root, cleaner=False) as beside:
                    cut = proxy.cut_reply(lost + 2, op="multi")  # the first two make the queue
                    restore(through, target, tmp_path / "kept")
                    assert cut.is_set()
                    assert [m.data for m in drain(beside, "orders", name="billing")] == list(range(7))
        finally:
            through.close()


def test_a_misspelt_root_is_no_empty_backup(session: Session, tree: Tree, tmp_path: Path) -> None:
    """It would be found out when it is too late."""
    with pytest.raises(zkms.StoreError, match="no zkms below it"):
        back_up(session, Tree(f"{tree.root}-misspelt"), tmp_path / "kept")
    assert not list(tmp_path.iterdir())


def test_a_backup_is_for_its_owner_only(bus: Bus, session: Session, tree: Tree, tmp_path: Path) -> None:
    """There are messages in it."""
    _fill(bus, 3)
    back_up(session, tree, tmp_path / "kept")
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0
    assert examine(tmp_path / "kept")[0].messages == 2


def test_what_lies_at_the_place_of_the_part_is_not_written_to(
    bus: Bus, session: Session, tree: Tree, tmp_path: Path
) -> None:
    """A file that everybody may read, left there, and a link to one elsewhere."""
    _fill(bus, 3)
    part = tmp_path / "kept.part"
    part.write_text("of another time")
    part.chmod(0o644)
    back_up(session, tree, tmp_path / "kept")
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    part.symlink_to(elsewhere)
    back_up(session, tree, tmp_path / "kept")
    assert elsewhere.read_text() == "mine"
    assert not (tmp_path / "kept").is_symlink()
    assert not part.exists()


CRAFTED: dict[str, tuple[list[Subscribed | PartitionRecord], float, str]] = {
    "a ledger of entries that are not there": (
        [Subscribed("orders", "billing", Registration("c", 10, "durable")), PartitionRecord(0, 0, {5: Part(1)})],
        0.0,
        "entry 5 is missing",
    ),
    "a time that no clock shows": ([], 1e300, "no time"),
    "a time that is none": ([], float("nan"), "no time"),
    "a subscription twice": (
        [Subscribed("orders", "billing", Registration("c", 10, "durable")), PartitionRecord(0, 0)] * 2,
        0.0,
        "twice",
    ),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_is_refused_before_anything_is_written(
    session: Session, other: Tree, tmp_path: Path, name: str
) -> None:
    """Its lengths and checksums are right, and it makes no sense."""
    found, at, said = CRAFTED[name]
    with Writer(tmp_path / "kept") as writer:
        for record in (Header(LAYOUT, "/zkms", "0", at), *found):
            writer.put(record)
        writer.put(End(writer.records))
    with pytest.raises(BadBackup, match=said):
        restore(session, other, tmp_path / "kept")
    assert session.exists(other.root) is None
