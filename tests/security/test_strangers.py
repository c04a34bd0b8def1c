"""What ZooKeeper itself lets out to those who have no role: measured, so that it can be stated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE

import zkms
from tests.support.buses import Connect
from zkms.cli.connection import Inspector
from zkms.cli.operate.checks.security import check_access, check_way
from zkms.server.words import ask
from zkms.testing import EmbeddedZooKeeper
from zkms.tree.paths import Tree

from .conftest import ACCESS, Raw, auth


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedZooKeeper]:
    """A server that serves nobody without credentials, and tells little about itself."""
    settings: dict[str, str | int | bool] = {
        "enforce.auth.enabled": True,
        "enforce.auth.schemes": "digest",
        "4lw.commands.whitelist": "srvr",
    }
    with EmbeddedZooKeeper(config=settings) as zookeeper:
        yield zookeeper


@pytest.fixture
def hosts(strict: EmbeddedZooKeeper) -> str:
    """All of this file's tests are about that server."""
    return strict.hosts


def test_without_credentials_not_even_a_name_is_listed(carl: zkms.Bus, raw: Raw, tree: Tree, hosts: str) -> None:
    """The server hangs up at the first request, whatever it is about; our own client says what is missing."""
    for path in ("/", tree.root, f"{tree.root}/guessed"):
        for ask_for in ("get_children", "exists", "get"):
            with pytest.raises(KazooException) as refusal:
                getattr(raw(None), ask_for)(path)
            assert not isinstance(refusal.value, (NoAuthError, NoNodeError)), "that would tell whether it is there"
    with pytest.raises(zkms.Unauthorised, match="serves nobody without credentials: give auth="):
        zkms.connect(hosts, root=tree.root)
    assert len(carl.clients()) == 1


def test_any_digest_is_somebody_who_can_try_names(carl: zkms.Bus, raw: Raw, tree: Tree) -> None:
    """ZooKeeper takes every user and password for an identity: it sees what is beside the root, and whether a name is.

    So does everybody, without credentials, where the server does not enforce any.
    """
    mallory = raw("mallory")
    assert tree.root[1:] in mallory.get_children("/")
    for path in (tree.root, tree.messages, tree.client(carl.client_id)):
        with pytest.raises(NoAuthError):
            mallory.exists(path)
    assert mallory.exists(f"{tree.messages}/nobody") is None
    with pytest.raises(NoNodeError):
        mallory.get(f"{tree.messages}/nobody")


def test_quotas_are_open_to_everybody(raw: Raw, tree: Tree) -> None:
    """ZooKeeper makes their parent with an open ACL: who is let in can set one on what is not theirs."""
    mallory, admin = raw("mallory"), raw("carl")
    assert mallory.get_acls("/zookeeper/quota")[0] == OPEN_ACL_UNSAFE
    mallory.create(f"/zookeeper/quota{tree.root}")
    admin.delete(f"/zookeeper/quota{tree.root}")


def test_four_letter_words_need_no_credentials(strict: EmbeddedZooKeeper) -> None:
    """What is on the list is told to everybody; what is not, to nobody."""
    [port] = strict.ports
    assert "Node count" in ask("127.0.0.1", port, "srvr")
    assert "not in the whitelist" in ask("127.0.0.1", port, "dump")


def test_doctor_finds_a_closed_server_closed(carl: zkms.Bus, tree: Tree) -> None:
    """Separate roles, no words, no strangers: nothing to be warned of."""
    findings = [*check_way(carl.parts.context.config), *check_access(Inspector(carl.parts.session, tree))]
    assert {finding.level for finding in findings} == {"ok"}
    said = " ".join(finding.finding for finding in findings)
    for words in ("by separate roles: 2 producers, 3 subscribers, 1 cleaners", "is not served", "tells nobody"):
        assert words in said


def test_doctor_names_every_kind_that_is_open(carl: zkms.Bus, connect: Connect, raw: Raw, tree: Tree) -> None:
    """One znode that somebody has opened by hand."""
    connect("ann").subscribe("news")
    client: KazooClient = raw("carl")
    client.set_acls(tree.topic("news"), OPEN_ACL_UNSAFE)
    [access, _] = check_access(Inspector(carl.parts.session, tree))
    assert (access.level, access.finding) == ("problem", "open to everybody: topic")
    assert auth("carl")[1] not in str(access)
    assert ACCESS.cleaners[0] not in str(access)
