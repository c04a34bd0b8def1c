"""`zkms doctor` in a tree of separate roles: what each of them is told, and that no problem is one that is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from kazoo.security import make_digest_acl

import zkms
from tests.support.buses import Connect, Eventually
from zkms.cli.connection import Inspector, read_auth, read_tls
from zkms.cli.failure import Failure
from zkms.cli.operate.checks import Finding
from zkms.cli.operate.checks.security import _strangers, check_access, check_secrets
from zkms.cli.operate.doctor import doctor
from zkms.server.ports import free_ports
from zkms.tree.paths import Tree

from .conftest import Raw, auth, people


def examine(hosts: str, tree: Tree, name: str) -> tuple[int, dict[str, list[Finding]]]:
    """What somebody is told, by what was checked; and the exit code."""
    environ = {"ZKMS_HOSTS": hosts, "ZKMS_ROOT": tree.root, "ZKMS_AUTH": ":".join(auth(name))}
    done = CliRunner().invoke(doctor, ["--json"], env=environ)
    found: dict[str, list[Finding]] = {}
    for each in json.loads(done.output):
        found.setdefault(each["check"], []).append(Finding(**each))
    return done.exit_code, found


def test_everybody_with_a_role_gets_to_the_end_of_it(
    carl: zkms.Bus, connect: Connect, hosts: str, tree: Tree, eventually: Eventually
) -> None:
    """A write is tried where they may write, and what they may not look at is named."""
    people(connect, tree, eventually)
    hidden = {"pat": ("producers", "dead letters"), "ann": ("producers", "queues, dead letters"), "carl": None}
    for name, unseen in hidden.items():
        code, found = examine(hosts, tree, name)
        problems = [each for findings in found.values() for each in findings if each.level == "problem"]
        assert (code, problems) == (0, [])
        assert "median" in found["write"][0].finding
        assert "by separate roles" in found["access"][0].finding
        assert "foreign data" in found
        if unseen is None:
            assert "dead letters" in found
            assert not any("not looked at" in each.finding for findings in found.values() for each in findings)
        else:
            assert unseen[0] in found["access"][1].finding
            assert found["others' own"][0].finding.endswith(f"may not: {unseen[1]}")


def test_who_has_no_role_is_told_so(carl: zkms.Bus, hosts: str, tree: Tree) -> None:
    """As a finding among the others."""
    code, found = examine(hosts, tree, "mallory")
    assert code == 1
    assert found["access"][0].advice == "these credentials have no role in this tree"


def test_rights_that_the_policy_does_not_give_are_a_problem(carl: zkms.Bus, raw: Raw, tree: Tree) -> None:
    """Though they are not everybody's."""
    client = raw("carl")
    acl, _ = client.get_acls(tree.messages)
    client.set_acls(tree.messages, [*acl, make_digest_acl("mallory", "x", all=True)])
    [access, _] = check_access(Inspector(carl.parts.session, tree))
    assert (access.level, "the rights there of digest:mallory" in access.finding) == ("problem", True)


def test_servers_that_do_not_answer_are_not_taken_for_closed_ones(carl: zkms.Bus) -> None:
    """Whether they serve strangers is not known then."""
    [port] = free_ports(1)
    nowhere = replace(carl.parts.context.config, hosts=f"127.0.0.1:{port}", connect_timeout=0.2)
    finding = _strangers(nowhere)
    assert (finding.level, "could not be found out" in finding.finding) == ("warning", True)


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_commands_and_doctor_judge_secrets_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """A key that others can read is refused by both; a file that is not used is looked at by neither."""
    key, cert, file = (tmp_path / name for name in ("key", "cert", "auth"))
    for path in (key, cert, file):
        path.write_text("digest:ann:s3cret")
        path.chmod(mode)
    for variable, path in (("ZKMS_TLS_KEY", key), ("ZKMS_TLS_CERT", cert), ("ZKMS_AUTH_FILE", file)):
        monkeypatch.setenv(variable, str(path))
    monkeypatch.setenv("ZKMS_AUTH", "digest:bob:s3cret")
    assert read_auth() == [("digest", "bob:s3cret")]
    [finding] = check_secrets()
    assert (finding.check, finding.level) == ("ZKMS_TLS_KEY", "problem" if mode == 0o644 else "ok")
    if mode == 0o644:
        with pytest.raises(Failure, match=r"ZKMS_TLS_KEY .* can be read by others, its mode being 0644: chmod 600 it"):
            read_tls()
    else:
        tls = read_tls()
        assert tls is not None
        assert tls.key == str(key)
