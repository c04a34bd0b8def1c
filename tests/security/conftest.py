"""A tree with a policy, those who have a role in it, and something in every corner of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkms
from tests.support.buses import Connect, Eventually
from zkms.replay.stage import Stage, new_run
from zkms.testing import EmbeddedZooKeeper
from zkms.testing.roots import new_root
from zkms.tree.paths import Tree

Raw = Callable[[str | None], KazooClient]


def auth(name: str) -> tuple[str, str]:
    """Somebody's credentials."""
    return "digest", f"{name}:{name}s-s3cret"


def who(name: str) -> str:
    """Somebody's identity."""
    return zkms.identity(*auth(name))


ACCESS = zkms.Access(
    producers=[who("pat"), who("zoe")],
    subscribers=[who("ann"), who("bob"), who("zoe")],
    cleaners=[who("carl")],
)
"""Pat publishes, Ann and Bob subscribe, Zoe does both, and Carl cleans. Mallory is nobody."""


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that enforces quotas, and nothing else that others do not."""
    with EmbeddedZooKeeper(jvm_args=["-Dzookeeper.enforceQuota=true"]) as zookeeper:
        yield zookeeper


@pytest.fixture(autouse=True)
def logging_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process do not set it up for all tests."""
    monkeypatch.setattr("zkms.cli.options.set_up_logging", lambda _verbose: None)


@pytest.fixture
def hosts(server: EmbeddedZooKeeper) -> str:
    """Where it is."""
    return server.hosts


@pytest.fixture
def tree() -> Tree:
    """The paths of the test's own root."""
    return Tree(new_root())


@pytest.fixture
def connect(hosts: str, tree: Tree) -> Iterator[Connect]:
    """Connect as somebody; closed afterwards, the first one last."""
    buses: list[zkms.Bus] = []

    def start(name: str, **options: Any) -> zkms.Bus:
        # Long sessions: one that expires on a busy machine would change the tree under the test's eyes.
        settings: dict[str, Any] = {"session_timeout": 40.0, **options}
        buses.append(zkms.connect(hosts, root=tree.root, auth=auth(name), **settings))
        return buses[-1]

    yield start
    for bus in reversed(buses):
        bus.close(timeout=2.0)


@pytest.fixture
def carl(connect: Connect, tree: Tree, eventually: Eventually) -> zkms.Bus:
    """The cleaner, who makes the tree and stands for election."""
    bus = connect("carl", access=ACCESS)
    eventually(lambda: bus.parts.session.children(tree.cleaner)[0])
    return bus


@pytest.fixture
def raw(hosts: str) -> Iterator[Raw]:
    """A plain kazoo client as somebody, or as nobody."""
    clients: list[KazooClient] = []

    def start(name: str | None) -> KazooClient:
        clients.append(KazooClient(hosts, auth_data=[] if name is None else [auth(name)]))
        clients[-1].start(timeout=20)
        return clients[-1]

    yield start
    for client in clients:
        client.stop()
        client.close()


def walk(client: KazooClient, path: str) -> list[str]:
    """A znode and all below it, parents first."""
    found = [path]
    for each in found:
        found += [f"{each}/{child}" for child in sorted(client.get_children(each))]
    return found


def people(connect: Connect, tree: Tree, eventually: Eventually) -> None:
    """Put something into every corner: what is for Ann says so, and what is for Bob."""
    pat, ann, bob = connect("pat", producer="billing"), connect("ann"), connect("bob")
    ann.subscribe("a.live", ack="manual", prefetch=1)
    bob.subscribe("b.live", ack="manual", prefetch=1)
    ann.subscribe("a.*", ack="manual")
    ann.create_group("a.jobs", "workers", partitions=2)
    bob.create_group("b.jobs", "helpers", partitions=2)
    audit = bob.subscribe("b.news", name="audit", max_attempts=1, backoff=0.0)
    diary = ann.subscribe("a.news", name="diary", max_attempts=1, backoff=0.0)
    full = ann.subscribe("a.full", limit=2, ack="manual", prefetch=1)
    for owner in "ab":
        pat.publish(f"{owner}.live", f"for-{owner}", id=f"{owner}-1")
        pat.publish(f"{owner}.jobs", f"for-{owner}" * 100, key="k")
        pat.publish(f"{owner}.live", f"for-{owner}" * 3000)  # one queue, so it has no body
        pat.publish(f"{owner}.news", f"for-{owner}")
        pat.publish(f"{owner}.late", f"for-{owner}", delay=3600.0)
    for bus in (ann, bob):
        bus.subscribe("all", ack="manual")
    pat.publish("all", "for-both" * 3000)  # a body
    for number in range(4):
        pat.publish("a.full", f"for-a {number}")
    for subscription in (audit, diary):
        message = subscription.get(timeout=20)
        assert message is not None
        message.reject("for-a" if subscription is diary else "for-b")
    for bus, name in ((ann, "diary"), (bob, "audit")):
        eventually(lambda bus=bus, name=name: bus.dead_letters(subscription=name))
    Stage(pat.parts.session, tree, "etl", new_run()).add("a.live", "for-a")
    staged = Stage(pat.parts.session, tree, "etl", new_run())
    staged.add("a.live", "for-a")
    staged.finish()
    assert full.id
