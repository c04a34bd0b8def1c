"""Fuzzes names of entries, delayed frames, topics and roots: none of them leads to another part of the tree."""

from __future__ import annotations

import re
from zlib import crc32

from verification.fuzz.target import Target, text_of
from zkms.errors import InvalidArgument
from zkms.names import check_name, check_root, check_subscription, check_topic, is_pattern, matches
from zkms.publish.audience import partition_of
from zkms.tree.delayed_names import parse_bucket, parse_delayed
from zkms.tree.entry import carried, parse_entry
from zkms.tree.paths import Tree, hashes_in, id_log_time

TREE = Tree("/zkms")
REFUSED = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
"""What ZooKeeper does not take in a path."""


def is_one_level(name: str) -> bool:
    """Whether ZooKeeper takes it as the name of a znode."""
    return bool(name) and name not in (".", "..") and "/" not in name and not REFUSED.search(name)


def check_entry(data: bytes) -> None:
    """A name that ZooKeeper has given us is parsed, and what it points to is where bodies and topics are."""
    name = text_of(data)
    entry = parse_entry(name)
    assert entry.name == name
    if entry.carrier and not entry.foreign:
        assert len(carried(name)) <= len(name)
    assert id_log_time(name) >= -1
    parse_bucket(name)
    if not is_one_level(name):
        return
    if entry.body is not None:
        assert is_one_level(entry.body[0]), entry
        assert TREE.body(*entry.body).count("/") == 4
    delayed = parse_delayed(10, name)
    if delayed is not None:
        assert is_one_level(delayed.topic), delayed
        assert delayed.name.count("/") == 0
    for path in hashes_in("/zkms/ids/t", data):
        assert re.fullmatch(r"/zkms/ids/t/[0-9a-f]{2}/[0-9a-f]{30}", path), path


def check_given(data: bytes) -> None:
    """A name that a user gives is refused, or one that ZooKeeper takes."""
    name = text_of(data)
    for check in (check_topic, lambda n: check_name("name", n), lambda n: check_subscription("name", n)):
        try:
            accepted = check(name)
        except InvalidArgument as error:
            assert len(str(error)) < 1000
            continue
        assert accepted == name
        assert is_one_level(name), ascii(name)
        assert TREE.topic(name).count("/") == 3
        assert 0 <= partition_of(name, 7) < 7
    try:
        root = check_root(name)
    except InvalidArgument:
        return
    assert root.startswith("/")
    assert all(is_one_level(level) for level in root[1:].split("/")), ascii(root)


def check_patterns(data: bytes) -> None:
    """The same answer as a regular expression gives."""
    pattern, _, topic = text_of(data).partition("\n")
    levels = pattern.split(".")
    whole = [r"[^.]*" if level == "*" else re.escape(level) for level in levels]
    if levels[-1] == ">":
        whole[-1] = r"[^.]*(?:\.[^.]*)*"
    assert is_pattern(pattern) is ("*" in levels or levels[-1] == ">")
    matched = matches(pattern, topic)
    if not is_pattern(pattern):
        assert matched is (pattern == topic)
    elif crc32(data) % 8 == 0:  # making one is slow
        assert matched is (re.fullmatch(r"\.".join(whole), topic, re.DOTALL) is not None), (pattern, topic)


ENTRIES = (
    *("f.1.10.0000000001", "g.0.9.0000000002", "p5.x1700000000.f.3.99.0000000007", "m.1.17.emttcwEAAAA.0000000003"),
    *("b.2.9000.17.host-1-ab12.0000000004", "d.1700000000000.0.k.1.10.7.5.p-abc.users.one", "w.1700000000.0000000001"),
    *("000001700000", "junk", "\u00e4\u20ac", "0123456789abcdef" * 2),
)
TARGETS = (
    Target(
        "entry names",
        check_entry,
        tuple(name.encode() for name in ENTRIES),
        (b"p1.", b"x1.", b"..", b".", b"/", b"\0", b"p1." * 1500, b".0000000001", b"b.1.1.1.", b"d.1.0.k.1.1.1.1.p."),
    ),
    Target(
        "topic names and roots",
        check_given,
        (
            b"users",
            b"a.b.c",
            b"/zkms",
            b"/a/b",
            b"..",
            b"zookeeper",
            b"/zookeeper/x",
            "\u00e4\u20ac".encode(),
            b"audit#1",
        ),
        (
            b"/",
            b"..",
            b"\0",
            b"\xf0\x9f\x98\x80",
            b"\xef\xbf\xbd",
            b"\xed\xa0\x80",
            b"\xe2\x80\xa8",
            b"\x7f",
            b"!",
            b"~",
        ),
    ),
    Target(
        "topic patterns",
        check_patterns,
        (b"users.*\nusers.one", b"users.>\nusers.a.b", b"*\na", b">\na.b", b"a.*.c\na.b.c", b"\n"),
        (b"*", b">", b".", b"\n", b"(", b"[^"),
    ),
)
