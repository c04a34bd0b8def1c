"""Who makes a tree first could keep rights in it: with `access=` such a tree is refused, and nothing is made in it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, make_digest_acl

import zkms
from tests.support.buses import Connect
from zkms.testing.roots import new_root
from zkms.tree import layout
from zkms.tree.paths import LAYOUT, Tree
from zkms.tree.records import Layout, decode, encode

from .conftest import ACCESS, Raw, auth, walk, who

EVIL = [make_digest_acl("mallory", "mallorys-s3cret", all=True)]
NAMESAKE = [make_digest_acl("carl", "another-s3cret", all=True)]
PAT = [ACL(31, Id("digest", who("pat").partition(":")[2]))]


@pytest.fixture
def copy(carl: zkms.Bus, raw: Raw, tree: Tree) -> Tree:
    """Where somebody makes a second tree by hand; ROOT there has no data yet."""
    return Tree(new_root())


def make_by_hand(client: KazooClient, model: Tree, copy: Tree, more: dict[str, list[ACL]], data: bytes = b"") -> None:
    """ROOT and what stands below it, with the ACLs that they have elsewhere, and `more` by the name."""
    for path in (model.root, *model.skeleton, model.staged):
        name = path.removeprefix(model.root)
        acl = [*client.get_acls(path)[0], *more.get(name, [])]
        client.create(copy.root + name, b"" if name else data, acl=acl)


def test_a_tree_that_is_as_its_policy_makes_it_is_taken(
    carl: zkms.Bus, raw: Raw, hosts: str, tree: Tree, copy: Tree
) -> None:
    """Whoever made it has no right in it."""
    make_by_hand(raw("carl"), tree, copy, {})
    for name in ("carl", "pat", "ann"):
        zkms.connect(hosts, root=copy.root, auth=auth(name), access=ACCESS).close()


@pytest.mark.parametrize("place", ["", "/messages", "/bodies", "/staged"])
@pytest.mark.parametrize(
    ("more", "who_has_more"),
    [(OPEN_ACL_UNSAFE, "world:anyone"), (EVIL, "digest:mallory"), (NAMESAKE, "digest:carl"), (PAT, "digest:pat")],
)
def test_somebody_who_was_quicker_is_noticed_by_the_maker(
    raw: Raw, hosts: str, tree: Tree, copy: Tree, place: str, more: list[ACL], who_has_more: str
) -> None:
    """Wherever they keep a right that is not theirs; also one of the producers, or a namesake of the cleaner."""
    client = raw("carl")
    make_by_hand(client, tree, copy, {place: more})
    refused = f"^{copy.root}{place} was not made for these roles: the rights there of {who_has_more} are not"
    with pytest.raises(zkms.InvalidArgument, match=refused) as refusal:
        zkms.connect(hosts, root=copy.root, auth=auth("carl"), access=ACCESS)
    assert "or choose another root" in str(refusal.value)
    assert client.get(copy.root)[0] == b"", "a policy was written into it"


def test_nothing_is_made_among_what_is_theirs(raw: Raw, hosts: str, copy: Tree) -> None:
    """Though much of it is missing."""
    for path in (copy.root, copy.messages):
        raw(None).create(path, acl=OPEN_ACL_UNSAFE)
    with pytest.raises(zkms.InvalidArgument, match="world:anyone"):
        zkms.connect(hosts, root=copy.root, auth=auth("carl"), access=ACCESS)
    assert walk(raw("carl"), copy.root) == [copy.root, copy.messages]


@pytest.mark.parametrize(("place", "more"), [("", EVIL), ("", OPEN_ACL_UNSAFE), ("/messages", EVIL)])
def test_they_are_noticed_too_where_our_own_policy_is_in_it(
    raw: Raw, hosts: str, tree: Tree, copy: Tree, place: str, more: list[ACL]
) -> None:
    """By everybody who is given the policy; who is not goes by what is there."""
    make_by_hand(raw("carl"), tree, copy, {place: more}, encode(Layout(LAYOUT, ACCESS.record())))
    for name in ("carl", "pat", "ann"):
        with pytest.raises(zkms.InvalidArgument, match="was not made for these roles"):
            zkms.connect(hosts, root=copy.root, auth=auth(name), access=ACCESS)
    zkms.connect(hosts, root=copy.root, auth=auth("pat")).close()


def test_one_who_closes_what_was_open_is_noticed(carl: zkms.Bus, raw: Raw, connect: Connect, tree: Tree) -> None:
    """What is below it may have been put there before."""
    client = raw("carl")
    acl, _ = client.get_acls(tree.dead)
    client.set_acls(tree.dead, OPEN_ACL_UNSAFE)
    client.set_acls(tree.dead, acl)
    for name in ("carl", "ann"):
        with pytest.raises(zkms.InvalidArgument, match=f"^{tree.dead} .*its ACL was changed after it was made"):
            connect(name, access=ACCESS)


def test_two_makers_with_other_roles_do_not_both_succeed(
    connect: Connect, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes when the first is about to write its policy, and would leave it with other ACLs than it says."""
    fewer = zkms.Access(producers=ACCESS.producers, subscribers=[who("ann")], cleaners=ACCESS.cleaners)
    about_to, go_on = threading.Event(), threading.Event()

    def waiting(record: Any) -> bytes:
        if record.access == fewer.record():
            about_to.set()
            assert go_on.wait(60)
        return encode(record)

    monkeypatch.setattr(layout, "encode", waiting)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(connect, "carl", access=fewer)
        assert about_to.wait(60)
        try:
            with pytest.raises(zkms.InvalidArgument, match="the rights there of digest:bob are not those"):
                connect("carl", access=ACCESS)
        finally:
            go_on.set()
        assert decode(first.result().parts.session.get(tree.root)[0], Layout).access == fewer.record()


def test_who_makes_it_without_roles_meanwhile_goes_by_those_that_are_there(
    connect: Connect, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not write over them: it had looked before they were."""
    looked, go_on = threading.Event(), threading.Event()
    outline = layout._outline

    def waiting(session: Any, tree: Tree) -> tuple[str, ...]:
        if session.config.access is None:
            looked.set()
            assert go_on.wait(60)
        return outline(session, tree)

    monkeypatch.setattr(layout, "_outline", waiting)
    with ThreadPoolExecutor() as threads:
        late = threads.submit(connect, "carl")
        assert looked.wait(60)
        try:
            made = connect("carl", access=ACCESS)
        finally:
            go_on.set()
        assert late.result().parts.session.rights.access == ACCESS
    assert decode(made.parts.session.get(tree.root)[0], Layout).access == ACCESS.record()
