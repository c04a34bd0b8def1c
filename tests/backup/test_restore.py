"""A restore that others disturb, or that is cut short: nothing is lost, nothing comes twice, and it says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from zkms_cleaner.election import Election, Lead
from zkms_cleaner.sweep import Sweeper

import zkms
from tests.backup.conftest import drain
from zkms import Bus
from zkms.backup.backup import back_up
from zkms.backup.restore import RootInUse, restore
from zkms.backup.restore_journal import FILES, Journal
from zkms.backup.verify import examine
from zkms.config import Config
from zkms.server.server import Server
from zkms.testing.proxy import Proxy
from zkms.tree.delayed_names import parse_bucket
from zkms.tree.layout import ensure_tree
from zkms.tree.paths import Tree
from zkms.tree.records import Ledger, Part, Restores, Try, decode, encode
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import Delete, Operation, SetData
from zkms.zookeeper.session import Session

KEYS = 40


class Cut(Exception):
    """The restore ends here, as if it had been killed."""


@pytest.fixture
def before(session: Session, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do something once, before the nth transaction of the session that has an operation below a path."""

    def hook(path: str, action: Callable[[], None], nth: int = 1) -> None:
        send, seen = session.multi, 0

        def multi(operations: Sequence[Operation], **options: Any) -> list[Any]:
            nonlocal seen
            if any(operation.path.startswith(path) for operation in operations):
                seen += 1
                if seen == nth:
                    monkeypatch.setattr(session, "multi", send)
                    action()
            return send(operations, **options)

        monkeypatch.setattr(session, "multi", multi)

    return hook


def _cut() -> None:
    raise Cut


@pytest.fixture
def through(zookeeper: Server, tree: Tree) -> Iterator[tuple[Session, Proxy]]:
    """A session whose replies can be cut off."""
    with Proxy(zookeeper.hosts) as proxy:
        opened = Session(Config(hosts=proxy.hosts, root=tree.root, cleaner=False))
        opened.start()
        yield opened, proxy
        opened.close()


@pytest.fixture
def group(bus: Bus, session: Session, tree: Tree, tmp_path: Path) -> Path:
    """A backup of a group of two partitions with something in both."""
    bus.create_group("jobs", "workers", partitions=2)
    for number in range(KEYS):
        bus.publish("jobs", number, key=str(number))
    assert back_up(session, tree, tmp_path / "group").messages == KEYS
    return tmp_path / "group"


@pytest.fixture
def letters(bus: Bus, session: Session, tree: Tree, tmp_path: Path) -> Path:
    """A backup with ten dead letters."""
    sub = bus.subscribe("jobs", name="worker")
    bus.publish_many("jobs", range(10))
    for message in sub.fetch(10, timeout=30.0):
        message.reject("it is bad")
    sub.close()
    assert back_up(session, tree, tmp_path / "letters").letters == 10
    return tmp_path / "letters"


def _lead(session: Session, tree: Tree) -> Lead:
    ensure_tree(session, tree)
    lead = Election(session, tree, "cleaner").lead()
    assert lead is not None
    return lead


def test_a_group_that_is_founded_meanwhile_loses_nothing(
    group: Path, session: Session, other: Tree, beside: Bus, before: Callable[..., None]
) -> None:
    """The restore gives up with a sentence; the lanes that it has not filled yet are not emptied by it."""

    def found() -> None:
        beside.create_group("jobs", "workers", partitions=2)
        for number in range(KEYS):
            beside.publish("jobs", f"new {number}", key=str(number))

    before(f"{other.messages}/workers#1/", found)
    with pytest.raises(zkms.StoreError, match=r"registered by somebody else .* unsubscribe"):
        restore(session, other, group)
    found_ = sorted(str(message.data) for message in drain(beside, "jobs", group="workers"))
    assert found_ == sorted(f"new {number}" for number in range(KEYS))


def test_a_consumer_that_comes_meanwhile_has_all_or_nothing(
    group: Path, session: Session, other: Tree, beside: Bus, before: Callable[..., None]
) -> None:
    """Nothing of what was put there so far; when it has given up its subscription, the restore is run again."""
    sub: list[zkms.Subscription] = []
    before(other.registration("jobs", "workers"), lambda: sub.append(beside.subscribe("jobs", group="workers")), 4)
    with pytest.raises(zkms.StoreError, match="registered by somebody else"):
        restore(session, other, group)
    assert restore(session, other, group).kept == ["workers of jobs"]
    assert sub[0].fetch(KEYS, timeout=1.0) == []
    sub[0].unsubscribe()
    assert restore(session, other, group, add=True).subscriptions == 1
    assert sorted(message.data for message in drain(beside, "jobs", group="workers")) == [*range(KEYS)]


@pytest.mark.parametrize("nth", [1, 2])
def test_a_lane_that_was_removed_meanwhile_is_noticed(
    group: Path, session: Session, other: Tree, beside: Bus, before: Callable[..., None], nth: int
) -> None:
    """By a cleaner that waits for nobody, before the next lane is made or before it is filled; then it is run again."""
    sweeper, lead = Sweeper(beside.parts.session, other, grace=0.0), _lead(beside.parts.session, other)
    removed: list[str] = []
    before(
        f"{other.messages}/workers#1/", lambda: removed.extend(each.path for each in sweeper.sweep(lead).removed), nth
    )
    with pytest.raises(zkms.StoreError, match="'workers' of 'jobs' is not restored"):
        restore(session, other, group)
    assert other.queue("workers#0", "jobs") in removed
    assert restore(session, other, group).subscriptions == 1
    assert sorted(message.data for message in drain(beside, "jobs", group="workers")) == [*range(KEYS)]


def test_cleaners_leave_alone_what_is_being_restored(
    group: Path, session: Session, other: Tree, beside: Bus, before: Callable[..., None]
) -> None:
    """However long it takes, as long as it goes on; when it has ended in the middle, its queues go."""
    now = 1000.0
    sweeper, lead = (
        Sweeper(beside.parts.session, other, grace=30.0, clock=lambda: now),
        _lead(beside.parts.session, other),
    )
    filled = other.queue("workers#0", "jobs")
    removed: list[str] = []

    def sweep() -> None:
        nonlocal now
        now += 31.0
        removed.extend(each.path for each in sweeper.sweep(lead).removed)

    def sweep_then(cut: Callable[[], None]) -> None:
        sweep()
        assert filled in [each.path for each in sweeper.find()]
        before(f"{other.messages}/workers#1/", lambda: (sweep(), cut()), nth=1)  # type: ignore[func-returns-value]

    before(f"{other.messages}/workers#1/", lambda: sweep_then(_cut))
    with pytest.raises(Cut):
        restore(session, other, group)
    assert filled not in removed
    sweep()
    assert filled in removed
    before(f"{other.messages}/workers#1/", lambda: sweep_then(lambda: None))
    assert restore(session, other, group).subscriptions == 1
    assert sorted(message.data for message in drain(beside, "jobs", group="workers")) == [*range(KEYS)]


def test_ledgers_that_are_too_large_together_come_back(
    bus: Bus, beside: Bus, session: Session, tree: Tree, other: Tree, tmp_path: Path, before: Callable[..., None]
) -> None:
    """Each in a transaction that holds it; also if a cleaner takes them for leftovers before they are registered."""
    lanes = 16
    bus.create_group("jobs", "workers", partitions=lanes)
    for number in range(200):
        bus.publish("jobs", number, key=str(number))
    for lane in range(lanes):
        tried = {0: Part(0, "", {0: Try(1, 1e10, f"{lane} " + "x" * 40_000)})}
        session.multi([SetData(tree.ledger("workers", "jobs", lane), encode(Ledger(parts=tried)))])
    back_up(session, tree, tmp_path / "kept")
    sweeper, lead = Sweeper(beside.parts.session, other, grace=30.0), _lead(beside.parts.session, other)
    removed: list[str] = []
    before(
        other.ledger("workers", "jobs", lanes - 1),
        lambda: removed.extend(each.path for each in sweeper.sweep(lead).removed),
        nth=2,
    )
    assert restore(session, other, tmp_path / "kept").subscriptions == 1
    assert other.group("workers", "jobs") in removed
    for lane in range(lanes):
        ledger = decode(session.get(other.ledger("workers", "jobs", lane))[0], Ledger)
        assert ledger.parts[0].tries[0].error.startswith(f"{lane} ")


# -- what is counted ---------------------------------------------------------------------------------------------


def test_lost_replies_bring_each_letter_back_once(
    letters: Path, through: tuple[Session, Proxy], tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever transaction's reply is lost: of the shelf, the journal, or the letters."""
    monkeypatch.setattr("zkms.backup.restore_journal.BATCH", 4)
    session, proxy = through
    for lost in range(1, 9):
        target = Tree(f"{tree.root}/restored-{lost}")
        ensure_tree(session, target)
        cut = proxy.cut_reply(lost, op="multi")
        done = restore(session, target, letters)
        assert cut.is_set()
        assert (done.letters, done.kept) == (10, [])
        assert len(session.children(target.dead_queue("worker", "jobs"))[0]) == 10


def test_letters_of_a_restore_that_was_cut_short_come_back_once(
    letters: Path, session: Session, other: Tree, before: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on behind those that it has put back, wherever they are now."""
    monkeypatch.setattr("zkms.backup.restore_journal.BATCH", 2)
    shelf = other.dead_queue("worker", "jobs")
    before(f"{shelf}/", _cut, nth=3)
    with pytest.raises(Cut):
        restore(session, other, letters)
    names = session.children(shelf)[0]
    assert len(names) == 4
    session.multi([Delete(f"{shelf}/{names[0]}")])  # requeued, or purged
    done = restore(session, other, letters)
    assert (done.letters, done.kept) == (6, [])
    assert len(session.children(shelf)[0]) == 9


def test_a_shelf_that_was_there_is_left_as_it_is_and_named(letters: Path, session: Session, tree: Tree) -> None:
    """What is on it cannot be told from what is in the backup."""
    done = restore(session, tree, letters, add=True)
    assert (done.letters, done.kept) == (0, ["dead letters of worker, jobs", "worker of jobs"])
    assert len(session.children(tree.dead_queue("worker", "jobs"))[0]) == 10


def _delayed(session: Session, tree: Tree) -> list[str]:
    """Frames that wait."""
    buckets = [begins for name in session.children(tree.delayed)[0] if (begins := parse_bucket(name)) is not None]
    return [
        f"{tree.bucket(begins)}/{name}"
        for begins in sorted(buckets)
        for name in session.children(tree.bucket(begins))[0]
    ]


@pytest.fixture
def later(bus: Bus, session: Session, tree: Tree, tmp_path: Path) -> Path:
    """A backup with three delayed messages."""
    bus.subscribe("orders", name="billing").close()
    for hours in (1, 2, 3):
        bus.publish("orders", hours, delay=3600.0 * hours)
    assert back_up(session, tree, tmp_path / "later").delayed == 3
    return tmp_path / "later"


def test_what_became_due_between_two_runs_does_not_come_twice(
    later: Path, session: Session, other: Tree, before: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was put back, and moved since; a restore that is over puts nothing back again, whoever asks for it."""
    monkeypatch.setattr("zkms.backup.restore_journal.BATCH", 1)
    before(f"{other.delayed}/", _cut, nth=6)  # two for each: the bucket, the frame
    with pytest.raises(Cut):
        restore(session, other, later)
    moved, waits = _delayed(session, other)
    session.multi([Delete(moved)])
    assert restore(session, other, later).delayed == 1
    assert len(_delayed(session, other)) == 2
    session.multi([Delete(waits)])
    with pytest.raises(RootInUse):
        restore(session, other, later)
    done = restore(session, other, later, add=True)
    assert (done.delayed, done.again, done.kept) == (0, True, ["billing of orders"])
    assert len(_delayed(session, other)) == 1


def test_a_bucket_that_is_removed_at_that_moment_is_made_again(
    later: Path, session: Session, other: Tree, before: Callable[..., None]
) -> None:
    """The leader removes those that are over; and what waits there already is left as it is."""

    def remove() -> None:
        delete_children(session, other.delayed)

    before(f"{other.delayed}/", remove, nth=4)  # the three buckets are made, and then the frames
    assert restore(session, other, later).delayed == 3
    assert len(_delayed(session, other)) == 3


def test_lost_replies_bring_each_delayed_message_back_once(
    later: Path, through: tuple[Session, Proxy], tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that is lost is no reason to count it as there, or to count it twice."""
    monkeypatch.setattr("zkms.backup.restore_journal.BATCH", 2)
    session, proxy = through
    for lost in range(6, 13):
        target = Tree(f"{tree.root}/restored-{lost}")
        ensure_tree(session, target)
        cut = proxy.cut_reply(lost, op="multi")
        assert restore(session, target, later).delayed == 3
        assert cut.is_set()
        assert len(_delayed(session, target)) == 3


# -- the journal -------------------------------------------------------------------------------------------------


def test_one_restore_writes_at_a_time(
    group: Path, session: Session, other: Tree, beside: Bus, before: Callable[..., None]
) -> None:
    """The one that was begun last; the other ends with a sentence, and has not harmed it."""
    before(f"{other.messages}/workers#1/", lambda: restore(beside.parts.session, other, group))
    with pytest.raises(zkms.StoreError, match="another restore has taken over"):
        restore(session, other, group)
    assert sorted(message.data for message in drain(beside, "jobs", group="workers")) == [*range(KEYS)]


def test_the_journal_does_not_grow(group: Path, session: Session, other: Tree) -> None:
    """It remembers the last files; that of which it is written is one of them."""
    ensure_tree(session, other)
    for number in range(2 * FILES):
        Journal(session, other, str(number)).open()
    restore(session, other, group)
    known = decode(session.get(other.restores)[0], Restores).files
    assert [*known] == [*map(str, range(FILES + 1, 2 * FILES)), examine(group).digest]
    assert known[examine(group).digest].finished
