"""Names are checked before any I/O; tests/tree/test_topic_names.py shows that ZooKeeper agrees."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkms import InvalidArgument, InvalidTopic
from zkms.names import MAX_BYTES, check_name, check_root, check_topic, new_client_id


def zookeeper_takes(name: str) -> bool:
    """What ZooKeeper's server does in PathUtils.validatePath, unit by UTF-16 unit."""
    raw = name.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]
    refused = ((0, 0x1F), (0x7F, 0x9F), (0xD800, 0xF8FF), (0xFFF0, 0xFFFF))
    return (
        name not in ("", ".", "..")
        and "/" not in name
        and not any(low <= unit <= high for unit in units for low, high in refused)
    )


@given(st.text(max_size=300))
@example("a\ufffdb")
@example("\U0001f600")
def test_every_accepted_name_is_one_that_zookeeper_takes(name: str) -> None:
    """check_topic lets through only what can be created as a znode, and returns it unchanged."""
    with contextlib.suppress(InvalidTopic):
        assert check_topic(name) == name
        assert zookeeper_takes(name)
        assert len(name.encode()) <= MAX_BYTES


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], max_codepoint=0xFFEF), min_size=1, max_size=60))
def test_letters_digits_punctuation_and_spaces_are_accepted(name: str) -> None:
    """What people write is no error, but for '/' and the two names with a meaning of their own."""
    if "/" not in name and name not in (".", "..", "zookeeper"):
        assert check_topic(name) == name


@pytest.mark.parametrize(
    "topic",
    [
        *("", ".", "..", "/", "a/b", "/a", "a\x00b", "a\nb", "\x7f", "a\x85", "x" * 256, "x" * 300, "ä" * 128),
        *("\ud800", "a\udfffb", "\ue000", "\ufffe", "\U0001f600", "zookeeper", None, 7, b"users", ["users"]),
    ],
    ids=ascii,
)
def test_bad_topic_names_are_refused_with_the_reason(topic: object) -> None:
    """Each bad name is InvalidTopic, which is a ValueError too, and its text stays short and printable."""
    with pytest.raises(InvalidTopic) as caught:
        check_topic(topic)
    assert isinstance(caught.value, ValueError)
    assert caught.value.topic is topic
    assert len(str(caught.value)) < 250


def test_the_longest_name_is_255_bytes() -> None:
    """Bytes count, not characters."""
    assert check_topic("x" * 255)
    assert check_topic("ä" * 127)


def test_other_names_say_what_they_were_for() -> None:
    """check_name's error is for arguments such as client_id."""
    with pytest.raises(InvalidArgument, match="client_id"):
        check_name("client_id", "a/b")


@pytest.mark.parametrize("root", ["", "/", "//", "zkms", "/a//b", "/a/../b", "/zookeeper", "/zookeeper/x", "/a\n"])
def test_bad_roots_are_refused(root: str) -> None:
    """A root is an absolute path of good names, and not ZooKeeper's own."""
    with pytest.raises(InvalidArgument):
        check_root(root)


def test_a_root_loses_its_trailing_slash() -> None:
    """`/a/b/` is `/a/b`."""
    assert check_root("/a/b/") == "/a/b"


def test_client_ids_tell_where_they_run_and_never_repeat() -> None:
    """host-pid-random, good as a znode's name."""
    ids = {new_client_id() for _ in range(100)}
    assert len(ids) == 100
    for client_id in ids:
        assert check_name("client_id", client_id) == client_id
        assert re.fullmatch(r"[\w-]+-\d+-[0-9a-f]{8}", client_id)
