"""Settings: checked when they are given, frozen, and without secrets in their repr."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_digest_acl

import zkms
from zkms import InvalidArgument, Sasl, Tls
from zkms.config import Config
from zkms.security import parse_auth


def test_no_secret_shows_in_a_repr(tmp_path: Path) -> None:
    """Passwords of every kind stay out of logs and tracebacks."""
    key = tmp_path / "key.pem"
    key.write_text("")
    config = Config(
        auth=(("digest", "user:tops3cret"),),
        tls=Tls(key=str(key), key_password="tops3cret"),
    )
    shown = repr(config) + repr(Sasl(username="u", password="tops3cret")) + repr(config.tls)
    assert "tops3cret" not in shown
    assert "tops3cret" not in str(Sasl(username="u", password="tops3cret"))


def test_no_secret_shows_in_the_error_about_bad_credentials() -> None:
    """The commonest mistake: a list of two strings, or a pair that is none."""
    for auth in (["digest", "user:tops3cret"], [("digest", "user", "tops3cret")], [("digest", b"tops3cret")]):
        with pytest.raises(InvalidArgument) as caught:
            parse_auth(auth)  # type: ignore[arg-type]
        assert "tops3cret" not in str(caught.value)


def test_a_config_cannot_be_changed() -> None:
    """What runs is what was given."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().root = "/other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "settings",
    [
        *({"hosts": hosts} for hosts in ("", "  ", ",", "zk:port", "zk:99999", "zk:-1", ":2181", None, 2181)),
        *({"root": root} for root in ("", "/", "zkms", "/a//b", None)),
        *({"client_id": name} for name in ("", "a/b", "..", "x" * 256, "node!", 5)),
        *({"producer": name} for name in ("", "a/b", ".", 5)),
        *({"session_timeout": value} for value in (0, -1, float("nan"))),
        *({"session_timeout": value} for value in ("10", None, True, 1e9, float("inf"))),
        {"connect_timeout": 0},
        {"request_timeout": -0.5},
        {"tls": "ca.pem"},
        *({"acl": value} for value in (["world"], 5, ())),
        {"codec": ...},
    ],
    ids=str,
)
def test_bad_values_are_refused_before_anything_is_sent(settings: dict[str, Any]) -> None:
    """Config says which one it is; connect() says the same, at once."""
    with pytest.raises(InvalidArgument):
        Config(**settings)
    with pytest.raises(InvalidArgument):
        zkms.connect(**settings)


def test_hosts_may_have_a_chroot_and_several_servers() -> None:
    """As every ZooKeeper client takes them."""
    assert Config(hosts="zk1:2181,zk2:2181,[::1]:2181/chroot").hosts.endswith("/chroot")


def test_every_process_gets_an_id_of_its_own() -> None:
    """Unless it is given one."""
    assert Config().client_id != Config().client_id
    assert Config(client_id="node-1").client_id == "node-1"


def test_credentials_close_the_znodes_to_others() -> None:
    """With auth the default ACL is the creator's; an ACL that is given is taken."""
    assert Config().effective_acl == OPEN_ACL_UNSAFE
    assert Config(auth=(("digest", "u:p"),)).effective_acl == CREATOR_ALL_ACL
    own = (make_digest_acl("u", "p", all=True),)
    assert Config(auth=(("digest", "u:p"),), acl=own).effective_acl == own


def test_credentials_are_taken_one_or_many() -> None:
    """A pair, SASL, or a list of them."""
    pair, sasl = ("digest", "u:p"), Sasl(username="u", password="p")
    assert parse_auth(None) == ((), None)
    assert parse_auth(pair) == ((pair,), None)
    assert parse_auth(sasl) == ((), sasl)
    assert parse_auth([pair, sasl]) == ((pair,), sasl)


def test_sasl_options_leave_out_what_was_not_given() -> None:
    """As kazoo takes them."""
    assert Sasl(username="u", password="p").options() == {
        "mechanism": "DIGEST-MD5",
        "username": "u",
        "password": "p",
        "service": "zookeeper",
    }


def test_tls_files_must_exist() -> None:
    """A wrong path is found now, not at the first reconnect."""
    with pytest.raises(InvalidArgument, match=r"missing\.pem"):
        Tls(ca="missing.pem")


def test_tls_without_verification_has_to_be_said_in_full() -> None:
    """Host names cannot be checked without the chain."""
    with pytest.raises(InvalidArgument, match="check_hostname"):
        Tls(verify=False)
    assert Tls(verify=False, check_hostname=False)
