"""`zkms access`: a tree of separate roles, made and shown from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import zkms
from zkms.cli.operate import access as command
from zkms.tree.paths import Tree

from .conftest import ACCESS, auth, who


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """What `init` reads."""
    path = tmp_path / "roles.json"
    path.write_text(json.dumps(ACCESS.record()))
    return path


def run(hosts: str, tree: Tree, name: str, *args: str) -> Result:
    """The command, as somebody."""
    environ = {"ZKMS_HOSTS": hosts, "ZKMS_ROOT": tree.root, "ZKMS_AUTH": ":".join(auth(name))}
    return CliRunner().invoke(command.access, args, env=environ)


def test_a_tree_is_made_for_the_roles_in_a_file(hosts: str, tree: Tree, roles: Path) -> None:
    """By a cleaner, and by nobody else; then it is shown who is who, without hashes."""
    refused = run(hosts, tree, "pat", "init", str(roles))
    assert isinstance(refused.exception, zkms.Unauthorised)
    assert run(hosts, tree, "carl", "init", str(roles)).output == f"{tree.root} is made for these roles.\n"
    assert run(hosts, tree, "carl", "init", str(roles)).exit_code == 0, "a second time changes nothing"
    shown = json.loads(run(hosts, tree, "ann", "show", "--json").output)
    assert [each["identity"] for each in shown if each["you"]] == ["digest:ann"]
    assert {each["role"] for each in shown} == {"producer", "subscriber", "cleaner"}
    table = run(hosts, tree, "ann", "show").output
    assert "digest:zoe" in table
    assert not any(identity.rpartition(":")[2] in table for identity in ACCESS.subscribers)
    with zkms.connect(hosts, root=tree.root, auth=auth("pat")) as bus:
        assert bus.parts.session.rights.access == ACCESS


def test_identities_are_printed_as_the_file_takes_them(hosts: str, tree: Tree) -> None:
    """Which is the one place where the hash of a password is shown."""
    assert run(hosts, tree, "ann", "identity").output == f"{who('ann')}\n"
    assert json.loads(run(hosts, tree, "ann", "identity", "--json").output) == [{"identity": who("ann")}]
    assert run(hosts, tree, "ann", "show").output == "This tree has no separate roles.\n"


def test_a_file_with_a_mistake_is_one_sentence(hosts: str, tree: Tree, roles: Path) -> None:
    """Nothing is made."""
    for text, said in (
        (b'{"producers": []}', "subscribers"),
        (b'{"producers": ["\xff"], "subscribers": [], "cleaners": []}', "utf-8"),
        (b'{"producers": ' + b"[" * 100_000, "producers"),
    ):
        roles.write_bytes(text)
        refused = run(hosts, tree, "carl", "init", str(roles))
        assert (refused.exit_code, said in refused.output) == (2, True), refused.output
