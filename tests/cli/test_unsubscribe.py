"""`zkms unsubscribe`: a subscription that nobody reads is given up, with all that waits in it, by who says so."""

from __future__ import annotations

import json

import pytest

import zkms
from tests.support.cli import Cli
from zkms.cli.exit_codes import Exit


@pytest.fixture
def full(bus: zkms.Bus) -> None:
    """A durable subscription with three messages, one of them acked, that takes no more, and no reader."""
    subscription = bus.subscribe("orders", name="billing", limit=3)
    bus.publish_many("orders", range(3))
    message = subscription.get(timeout=10)
    assert message is not None
    message.ack()
    subscription.close()


@pytest.mark.usefixtures("full")
def test_it_is_gone_with_all_that_waits_and_publishers_are_not_held_up(cli: Cli, bus: zkms.Bus) -> None:
    """What would be lost is said first; nothing of it is left."""
    with pytest.raises(zkms.QueueFull):
        bus.publish_many("orders", range(3))
    done = cli("unsubscribe", "billing", "orders", "--dry-run")
    what = "'billing' of 'orders', with 2 messages that wait in it.\n"
    assert (done.returncode, done.stdout) == (Exit.OK, f"Would remove {what}")
    assert [info.name for info in bus.groups()] == ["billing"]
    done = cli("unsubscribe", "billing", "orders", "--yes")
    assert (done.returncode, done.stdout) == (Exit.OK, f"Removed {what}")
    assert (bus.groups(), bus.queues()) == ([], [])
    with pytest.raises(zkms.NoSubscribers):
        bus.publish("orders", 4)


@pytest.mark.usefixtures("full")
def test_somebody_has_to_agree(cli: Cli, bus: zkms.Bus) -> None:
    """Without a person there, it has to be said with --yes."""
    done = cli("unsubscribe", "billing", "orders")
    assert (done.returncode, "pass --yes" in done.stderr) == (Exit.USAGE, True)
    done = cli("unsubscribe", "billing", "orders", stdin="n\n")
    assert (done.returncode, "2 messages that wait" in done.stderr) == (Exit.ERROR, True)
    assert [info.name for info in bus.groups()] == ["billing"]


def test_what_is_read_is_not_given_up(cli: Cli, bus: zkms.Bus) -> None:
    """Neither is what does not exist, nor a live subscription, which goes with its process."""
    bus.subscribe("jobs", group="workers", partitions=2)
    live = bus.subscribe("jobs")
    done = cli("unsubscribe", "workers", "jobs", "--yes")
    assert (done.returncode, bus.client_id in done.stderr) == (Exit.IN_USE, True), done.stderr
    for name in ("nobody", live.id):
        done = cli("unsubscribe", name, "jobs", "--yes")
        assert (done.returncode, "'zkms groups' tells" in done.stderr) == (Exit.ERROR, True), done.stderr
    assert len(bus.subscriptions("jobs")) == 2


@pytest.mark.usefixtures("full")
def test_it_is_said_as_json_too(cli: Cli) -> None:
    """One object."""
    done = cli("unsubscribe", "billing", "orders", "--yes", "--json")
    assert json.loads(done.stdout) == {"subscription": "billing", "topic": "orders", "waiting": 2, "removed": True}
