"""`zkms purge`: entries go, and nobody takes them for delivered."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import zkms
from tests.support.cli import Cli
from zkms.cli.exit_codes import Exit


@pytest.fixture
def waiting(bus: zkms.Bus) -> tuple[zkms.Subscription, list[zkms.Receipt]]:
    """A subscription that has not acked three messages."""
    subscription = bus.subscribe("news", ack="manual")
    return subscription, [bus.publish("news", i) for i in range(3)]


Waiting = tuple[zkms.Subscription, list[zkms.Receipt]]


def test_purged_is_not_acked(cli: Cli, waiting: Waiting) -> None:
    """A receipt tells that the message was purged, and by whom."""
    subscription, receipts = waiting
    done = cli("purge", subscription.id, "news", "--yes")
    assert (done.returncode, done.stdout) == (Exit.OK, f"Removed 3 entries of {subscription.id!r} for 'news'.\n")
    for receipt in receipts:
        receipt.wait(10)
        assert (receipt.acked, receipt.pending) == ((), ())
        assert receipt.gone[subscription.id].startswith("purged by ")
        assert "@" in receipt.gone[subscription.id]


def test_what_comes_later_is_acked_as_ever(cli: Cli, bus: zkms.Bus, waiting: Waiting) -> None:
    """The reason is about what was removed, not about what follows."""
    subscription, _ = waiting
    cli("purge", subscription.id, "news", "--yes")
    receipt = bus.publish("news", "later")
    while (message := subscription.get(timeout=10)) is not None:
        message.ack()
        if message.data == "later":
            break
    assert receipt.wait(10).acked == (subscription.id,)


def test_a_live_subscriber_hears_of_a_gap(cli: Cli, bus: zkms.Bus, eventually: Callable[..., None]) -> None:
    """One for what it had listed, one for what it had not, however many; what came before and after arrives."""
    gaps: list[zkms.Gap] = []
    got: list[int] = []
    go_on = threading.Event()

    def handle(message: zkms.Message) -> None:
        go_on.wait(60)
        got.append(message.data)

    subscription = bus.subscribe("news", handle, prefetch=5, on_gap=gaps.append)
    for i in range(500):
        bus.publish("news", i)
    assert cli("purge", subscription.id, "news", "--yes").returncode == Exit.OK
    go_on.set()
    bus.publish("news", 500)
    eventually(lambda: 500 in got)
    assert 1 <= len(gaps) <= 2
    assert got == sorted(got)
    assert len(got) < 100


def test_it_asks_first(cli: Cli, bus: zkms.Bus, waiting: Waiting) -> None:
    """No is no, nobody to ask is wrong usage, and yes is yes."""
    subscription, _ = waiting
    declined = cli("purge", subscription.id, "news", stdin="n\n")
    assert declined.returncode == Exit.ERROR
    assert "Remove 3 entries" in declined.stderr
    assert "Nothing was removed." in declined.stderr
    alone = cli("purge", subscription.id, "news")
    assert alone.returncode == Exit.USAGE
    assert "pass --yes" in alone.stderr
    assert bus.queues()[0].entries == 3
    accepted = cli("purge", subscription.id, "news", "--json", stdin="y\n")
    assert accepted.returncode == Exit.OK
    assert json.loads(accepted.stdout)["removed"] == 3
    assert bus.queues()[0].entries == 0


def test_a_dry_run_changes_nothing(cli: Cli, bus: zkms.Bus, waiting: Waiting) -> None:
    """It says what would go, and asks nothing."""
    subscription, receipts = waiting
    done = cli("purge", subscription.id, "news", "--dry-run")
    assert (done.returncode, done.stdout) == (Exit.OK, f"Would remove 3 entries of {subscription.id!r} for 'news'.\n")
    as_json = json.loads(cli("purge", subscription.id, "news", "--dry-run", "--json").stdout)
    assert (as_json["found"], as_json["removed"]) == (3, 0)
    assert receipts[0].wait(0.1).pending == (subscription.id,)


def test_an_empty_or_missing_queue(cli: Cli, bus: zkms.Bus) -> None:
    """Nothing to do is fine; no queue is an error, in one sentence."""
    subscription = bus.subscribe("news")
    empty = cli("purge", subscription.id, "news")
    assert (empty.returncode, empty.stdout) == (Exit.OK, "The queue is empty.\n")
    missing = cli("purge", subscription.id, "weather", "--yes")
    assert missing.returncode == Exit.ERROR
    assert "there is no queue" in missing.stderr
    assert len(missing.stderr.splitlines()) == 1


def test_many_entries_and_foreign_ones_go(cli: Cli, bus: zkms.Bus, kazoo: Any) -> None:
    """Thousands in few transactions, what another program put there as well, with what is below it."""
    queue = f"{bus.parts.context.config.root}/messages/somebody/news"
    kazoo.create(queue, b"overwritten", makepath=True)
    kazoo.create(f"{queue}/intruder/below", makepath=True)
    for _ in range(3):
        transaction = kazoo.transaction()
        for _ in range(1_000):
            transaction.create(f"{queue}/f.1.1.", sequence=True)
        transaction.commit()
    assert json.loads(cli("purge", "somebody", "news", "--yes", "--json").stdout)["found"] == 3_001
    assert kazoo.get_children(queue) == []


def test_the_mark_of_a_full_queue_stays(cli: Cli, bus: zkms.Bus, eventually: Callable[..., None]) -> None:
    """The subscriber has to see it: only then do publishers send to it again."""
    gaps: list[zkms.Gap] = []
    go_on = threading.Event()
    got: list[str] = []

    def handle(message: zkms.Message) -> None:
        go_on.wait(60)
        got.append(message.data)

    subscription = bus.subscribe("news", handle, limit=5, prefetch=1, on_gap=gaps.append)
    for _ in range(10):
        bus.publish("news", "x")
    eventually(lambda: bus.subscriptions("news")[0].full)
    assert cli("purge", subscription.id, "news", "--yes").returncode == Exit.OK
    assert bus.queues()[0].entries == 1
    go_on.set()
    eventually(lambda: not bus.subscriptions("news")[0].full)
    bus.publish("news", "again")
    eventually(lambda: "again" in got)
    assert any("more than 5" in gap.reason for gap in gaps)
