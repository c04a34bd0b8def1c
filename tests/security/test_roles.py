"""What each role can do with its bare hands in a tree with a policy, and that it can do nothing more."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, RolledBackError
from kazoo.security import OPEN_ACL_UNSAFE

import zkms
from tests.support.buses import Connect, Eventually
from zkms.tree import acl as access
from zkms.tree.entry import carried, parse_entry
from zkms.tree.paths import Tree

from .conftest import ACCESS, Raw, auth, people, walk, who

Peopled = list[str]


@pytest.fixture
def paths(carl: zkms.Bus, connect: Connect, tree: Tree, raw: Raw, eventually: Eventually) -> Peopled:
    """Every znode of a tree that has something everywhere."""
    people(connect, tree, eventually)
    return walk(raw("carl"), tree.root)


def refusal(asked: Any) -> str:
    """What ZooKeeper says to a request that was sent before."""
    try:
        asked.get(timeout=60)
    except KazooException as error:
        return type(error).__name__
    return "done"


def seen_by(client: KazooClient, paths: Peopled) -> str:
    """All data and names that somebody gets to see, and the frames in these names."""
    seen: list[str] = []
    for path in paths:
        with contextlib.suppress(NoAuthError):
            seen.append(client.get(path)[0].decode("utf-8", "replace"))
        try:
            names = client.get_children(path)
        except NoAuthError:
            continue
        seen += names
        seen += [carried(name).decode("utf-8", "replace") for name in names if parse_entry(name).carrier]
    return "\n".join(seen)


def everything(client: KazooClient, path: str) -> dict[str, Any]:
    """All that can be tried with a znode, sent at once."""
    return {
        "get": client.get_async(path),
        "exists": client.exists_async(path),
        "list": client.get_children_async(path),
        "acl": client.get_acls_async(path),
        "set": client.set_async(path, b"mallory was here"),
        "create": client.create_async(f"{path}/mallory", b""),
        "delete": client.delete_async(path),
        "set acl": client.set_acls_async(path, OPEN_ACL_UNSAFE),
    }


def allowed_writes(client: KazooClient, paths: Peopled) -> set[tuple[str, str]]:
    """What ZooKeeper would let somebody do, found without doing it: each is part of a transaction that must fail."""
    tried: dict[tuple[str, str], Any] = {}
    for path in reversed(paths):
        steps = {
            "set": lambda t, path=path: t.set_data(path, b"mallory was here"),
            "create": lambda t, path=path: t.create(f"{path}/mallory"),
            "delete": lambda t, path=path: t.delete(path),
        }
        for name, step in steps.items():
            transaction = client.transaction()
            step(transaction)
            transaction.check("/", 1_000_000)
            tried[name, path] = transaction.commit_async()
    return {what for what, results in tried.items() if isinstance(results.get(timeout=60)[0], RolledBackError)}


def test_every_znode_has_an_acl_without_the_world_and_with_the_cleaner(paths: Peopled, raw: Raw, tree: Tree) -> None:
    """Every subtree is there, each znode's kind is in the table, and nobody but those with a role has any right."""
    carl = raw("carl")
    kinds = {access.kind_of(tree.root, path) for path in paths}
    assert set(access.TABLE) - kinds <= {"record", "other"}, "the tree is not as full as it should be"
    known = {identity.partition(":")[2] for role in ACCESS.record().values() for identity in role}
    for path in paths:
        found = carl.get_acls(path)[0]
        assert {acl.id.scheme for acl in found} == {"digest"}, path
        assert {acl.id.id for acl in found} <= known, path
        assert any(acl.id.id == who("carl").partition(":")[2] and acl.perms == 31 for acl in found), path
        assert not any(acl.perms & 16 for acl in found if acl.id.id != who("carl").partition(":")[2]), path


def test_the_unauthorised_read_nothing_and_write_nothing(paths: Peopled, raw: Raw, tree: Tree) -> None:
    """Every operation on every znode, without credentials and with those of somebody who has no role."""
    carl = raw("carl")
    before = {path: (carl.get(path)[0], carl.exists(path).version, carl.get_acls(path)[0]) for path in paths}
    for name in (None, "mallory"):
        client = raw(name)
        asked = {path: everything(client, path) for path in reversed(paths)}
        for path in asked:
            said = {what: refusal(each) for what, each in asked[path].items()}
            if path == tree.root:  # a child of "/", which is open, and not zkms's to close; but it is not empty
                assert said.pop("delete") == "NotEmptyError"
            assert set(said.values()) == {"NoAuthError"}, (name, path, said)
        assert seen_by(client, paths) == ""
    assert walk(carl, tree.root) == paths
    for path, (data, version, acl) in before.items():
        if not path.startswith((f"{tree.clients}/", f"{tree.groups}/")):  # these live
            assert (carl.get(path)[0], carl.exists(path).version, carl.get_acls(path)[0]) == (data, version, acl)


@pytest.mark.parametrize("name", [None, "mallory"])
def test_our_own_client_says_so_at_once(carl: zkms.Bus, hosts: str, tree: Tree, name: str | None) -> None:
    """One sentence that names the znode, and nothing is made."""
    with pytest.raises(zkms.Unauthorised, match=f"^{tree.root}: not allowed"):
        zkms.connect(hosts, root=tree.root, auth=None if name is None else auth(name))
    assert len(carl.clients()) == 1


def test_a_producer_adds_to_queues_and_reads_no_message(paths: Peopled, raw: Raw, tree: Tree) -> None:
    """Neither from entries nor from their names, bodies, dead letters or what is delayed; and it removes none."""
    pat = raw("pat")
    seen = seen_by(pat, [path for path in paths if not path.startswith(f"{tree.staged}/")])
    assert "for-" not in seen
    assert "mallory" not in seen
    queues = [path for path in paths if access.kind_of(tree.root, path) == "queue"]
    may = allowed_writes(pat, paths)
    assert {("create", queue) for queue in queues} <= may
    kinds = {(what, access.kind_of(tree.root, path)) for what, path in may}
    assert kinds == {
        *(("create", kind) for kind in ("clients", "subscribers", "topic", "queue", "bodies", "producers", "ids")),
        *(("create", kind) for kind in ("ids of a topic", "delayed", "bucket", "place of bodies", "staged")),
        *(("create", "staged job"), ("set", "staged job"), ("delete", "staged job"), ("set", "staged")),
        *(("delete", "client"), ("set", "client"), ("set", "producer"), ("set", "topic"), ("delete", "body")),
    }


def test_a_subscriber_reads_and_removes_only_its_own(paths: Peopled, raw: Raw, tree: Tree) -> None:
    """Ann sees what is for her and nothing of Bob's, and the other way round."""
    carl = raw("carl")
    for name, own, other in (("ann", "for-a", "for-b"), ("bob", "for-b", "for-a")):
        client = raw(name)
        seen = seen_by(client, paths)
        assert own in seen
        assert other not in seen.replace("for-both", "")
        may = allowed_writes(client, paths)
        theirs = [path for path in paths if _belongs(carl, path, "bob" if name == "ann" else "ann")]
        assert theirs
        registrations = f"{tree.subscribers}/"
        for path in theirs:
            # Who registers under a topic can remove others there: ZooKeeper looks at the parent's ACL.
            shared = {("delete", path)} if path.startswith((registrations, f"{tree.clients}/")) else set()
            assert {each for each in may if each[1] == path} <= shared, (name, path)


def _belongs(carl: KazooClient, path: str, name: str) -> bool:
    """Whether somebody has a right at a znode that the other subscribers do not have."""
    rights: dict[str, int] = {}
    for acl in carl.get_acls(path)[0]:
        rights[acl.id.id] = rights.get(acl.id.id, 0) | acl.perms
    own, others = who(name).partition(":")[2], [who(each).partition(":")[2] for each in ("ann", "bob") if each != name]
    return (
        rights.get(own, 0) != 0
        and all(rights.get(other, 0) in (0, 1) for other in others)
        and (rights[own] != rights.get(others[0], 0))
    )


def test_without_its_mechanism_the_secret_is_out(
    carl: zkms.Bus, connect: Connect, raw: Raw, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that everybody with a role may read, or names that carry small frames: the checks above find both."""
    pat, ann = connect("pat"), connect("ann")
    subscription = ann.subscribe("news", ack="manual")
    queue = tree.queue(subscription.id, "news")

    def leaks() -> bool:
        return "for-a" in seen_by(raw("pat"), walk(raw("carl"), queue))

    pat.publish("news", "for-a")
    assert not leaks()
    with monkeypatch.context() as off:
        off.setattr("zkms.publish.shipment.acl", lambda _entries: pat.parts.session.rights(tree.topic("news")))
        pat.publish("news", "for-a")
    assert leaks()
    for name in carl.parts.session.children(queue)[0]:
        raw("carl").delete(f"{queue}/{name}")
    assert not leaks()
    entry = zkms.publish.shipment.OutgoingFrame._entry
    with monkeypatch.context() as off:
        off.setattr("zkms.publish.shipment.OutgoingFrame._entry", lambda *args, carry: entry(*args, carry=True))
        pat.publish("news", "for-a")
    assert leaks()
