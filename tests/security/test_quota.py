"""ZooKeeper's quotas as a backstop: what a publisher is told, that nothing is half-written, and that readers go on."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import zkms
from tests.support.buses import Connect
from zkms.admin.quota import LIMITS, QUOTAS, read_quotas, remove_quotas, set_quotas
from zkms.cli.connection import Inspector
from zkms.cli.operate.checks.security import check_quotas
from zkms.cli.operate.quota import quota
from zkms.testing.roots import delete_root, new_root
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import SetData

from .conftest import auth


def publish_all(bus: zkms.Bus, messages: list[object]) -> None:
    """One after the other."""
    for message in messages:
        bus.publish("news", message)


def test_a_publisher_over_the_quota_is_told_so_and_nothing_is_stored(
    carl: zkms.Bus, connect: Connect, tree: Tree
) -> None:
    """In none of the queues; who reads goes on reading, and then there is room again."""
    pat, ann, bob = connect("pat"), connect("ann"), connect("bob")
    subscriptions = [bus.subscribe("news", ack="manual") for bus in (ann, bob)]
    set_quotas(carl.parts.session, tree, znodes=20)
    with pytest.raises(zkms.QuotaExceeded, match="a quota of ZooKeeper is used up, so nothing was stored"):
        publish_all(pat, [*range(50)])
    queues = [tree.queue(each.id, "news") for each in subscriptions]
    waiting = {carl.parts.session.exists(queue).numChildren for queue in queues}
    assert len(waiting) == 1
    for subscription in subscriptions:
        for number in range(*waiting):
            message = subscription.get(timeout=20)
            assert message.data == number
            message.ack()
    late = ann.subscribe("other", name="late")  # what zkms needs to go on has no quota, but queues have
    assert pat.publish("news", "again").wait(0).pending
    assert late.created
    assert remove_quotas(carl.parts.session, tree) == 3
    assert read_quotas(carl.parts.session, tree) == []


def test_bytes_of_bodies_are_bounded_too(carl: zkms.Bus, connect: Connect, tree: Tree) -> None:
    """And a publisher whose messages need none is not concerned."""
    pat, ann, bob = connect("pat"), connect("ann"), connect("bob")
    for bus in (ann, bob):
        bus.subscribe("news", ack="manual")
    set_quotas(carl.parts.session, tree, size=50_000)
    with pytest.raises(zkms.QuotaExceeded, match=tree.bodies):
        publish_all(pat, ["x" * 20_000] * 10)
    pat.publish("news", "small")
    remove_quotas(carl.parts.session, tree)


def test_they_are_set_and_shown_by_a_command(hosts: str) -> None:
    """`zkms quota` and `zkms doctor` tell what is set, and how much of it is used."""
    root = new_root()
    environ = {"ZKMS_HOSTS": hosts, "ZKMS_ROOT": root}

    def run(*args: str) -> str:
        done = CliRunner().invoke(quota, args, env=environ)
        assert done.exit_code == 0, done.output
        return done.output

    with zkms.connect(hosts, root=root) as bus:
        assert run() == "No quotas.\n"
        shown = json.loads(run("--znodes", "1000", "--bytes", "5000000", "--json"))
        assert [(each["path"], each["znodes"], each["bytes"]) for each in shown] == [
            (bus.parts.tree.messages, 1000, None),
            (bus.parts.tree.bodies, 1000, 5_000_000),
            (bus.parts.tree.delayed, 1000, 5_000_000),
        ]
        bus.subscribe("news", ack="manual")
        bus.publish("news", "x" * 1000)
        [queues, *_] = read_quotas(bus.parts.session, bus.parts.tree)
        assert queues.used_znodes == 4
        assert queues.used_bytes > 1000
        run("--znodes", "4")
        [first, *_] = check_quotas(Inspector(bus.parts.session, bus.parts.tree))
        assert (first.level, "4 of 4 znodes" in first.finding) == ("warning", True)
        assert run("--remove") == "No quotas.\n"
        [none] = check_quotas(Inspector(bus.parts.session, bus.parts.tree))
        assert none.finding.startswith("none")
        for wrong in ({"znodes": 0}, {"size": -1}, {}):
            with pytest.raises(zkms.InvalidArgument):
                set_quotas(bus.parts.session, bus.parts.tree, **wrong)
    delete_root(hosts, root)


def test_a_limit_that_is_not_given_stays(carl: zkms.Bus, tree: Tree) -> None:
    """Also those that ZooKeeper only warns of, set with its own shell."""

    def limits() -> set[tuple[str, int | None, int | None]]:
        return {
            (quota.path.rpartition("/")[2], quota.znodes, quota.bytes)
            for quota in read_quotas(carl.parts.session, tree)
        }

    set_quotas(carl.parts.session, tree, znodes=1000)
    set_quotas(carl.parts.session, tree, size=5_000_000)
    assert limits() == {("messages", 1000, None), ("bodies", 1000, 5_000_000), ("delayed", 1000, 5_000_000)}
    path = f"{QUOTAS}{tree.bodies}/{LIMITS}"
    warned = carl.parts.session.get(path)[0].replace(b"count=-1", b"count=900")
    carl.parts.session.multi([SetData(path, warned)])
    set_quotas(carl.parts.session, tree, znodes=2000)
    assert limits() == {("messages", 2000, None), ("bodies", 2000, 5_000_000), ("delayed", 2000, 5_000_000)}
    assert carl.parts.session.get(path)[0].startswith(b"count=900,")
    assert remove_quotas(carl.parts.session, tree) == 3


def test_through_a_chroot_they_cannot_be_set(carl: zkms.Bus, hosts: str, tree: Tree) -> None:
    """ZooKeeper keeps them outside of it."""
    with (
        zkms.connect(hosts + tree.root, root="/below", auth=auth("carl")) as bus,
        pytest.raises(zkms.InvalidArgument, match="connect without it"),
    ):
        set_quotas(bus.parts.session, Tree("/below"), znodes=1)
