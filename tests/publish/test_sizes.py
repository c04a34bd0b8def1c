"""How large a transaction gets: long paths and ACLs count, and so do many subscribers."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.support.buses import Connect
from zkms import Bus, MessageTooLarge
from zkms.server.server import Server
from zkms.tree.paths import Tree
from zkms.tree.records import QueueState, Registration, encode
from zkms.zookeeper.operations import MAX_TRANSACTION


def test_below_a_long_chroot_and_with_a_long_acl_the_limit_that_the_error_names_is_the_limit(
    zookeeper: Server, zookeeper_root: str, raw: KazooClient, connect: Connect
) -> None:
    """Without counting them, ZooKeeper's own limit would be met after all, with an error that helps nobody."""
    chroot = f"{zookeeper_root}/{'c' * 400}"
    raw.ensure_path(chroot)
    acl = [*OPEN_ACL_UNSAFE, *(make_digest_acl(f"u{i}", "x", read=True) for i in range(40))]
    bus, *others = [connect(hosts=f"{zookeeper.hosts}{chroot}", root="/zkms", acl=acl) for _ in range(4)]
    subs = [other.subscribe("users") for other in others]
    with pytest.raises(MessageTooLarge) as caught:
        bus.publish("users", b"x" * MAX_TRANSACTION)
    data = b"y" * (caught.value.limit - (caught.value.size - MAX_TRANSACTION))
    bus.publish("users", data)
    assert all(sub.get(timeout=10).data == data for sub in subs)


def test_frames_leave_room_for_the_names_of_many_subscribers(bus: Bus, raw: KazooClient, tree: Tree) -> None:
    """1,300 names take more than half of a transaction, and publish_many() packs less into each."""
    bus.subscribe("users")
    queue, registration = encode(QueueState("ghost")), encode(Registration("ghost", 100_000))
    for begin in range(0, 1300, 100):
        multi = raw.transaction()
        for number in range(begin, begin + 100):
            name = f"{number:040}"
            multi.create(f"{tree.messages}/{name}")
            multi.create(tree.queue(name, "users"), queue)
            multi.create(tree.registration("users", name), registration)
        multi.set_data(tree.topic("users"), b"")
        assert not any(isinstance(result, Exception) for result in multi.commit())
    assert len(bus.publish_many("users", [b"x" * 1000] * 600)) == 600
