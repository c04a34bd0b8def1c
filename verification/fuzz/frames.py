"""Fuzzes frames: how readers, the cleaner and the listing of dead letters handle any bytes in a queue."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec
from zkms_cleaner.due import Due

from verification.fuzz.target import Target
from zkms.admin.dead_letters import DeadLetterPlace, _describe, _entry
from zkms.cache.invalidation import CODEC
from zkms.cli.output import data_json, data_text
from zkms.deliver.inbox import Fetched
from zkms.errors import CannotDecode, MessageTooLarge
from zkms.message import frame as frames
from zkms.message.decode import Decoder, Undecodable
from zkms.publish.audience import Member, Members, route
from zkms.tree.delayed_names import Delayed
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import DeadLetter, Registration, encode

TREE = Tree("/zkms")
HEADERS = {"kind": "new"}
MEMBERS = (
    Member("live", Registration("c", 10), topic="users"),
    Member("picky", Registration("c", 10, where={"kind": ["new"]}), topic="users"),
    Member("workers", Registration("c", 10, "group", partitions=3), topic="users"),
)
UNPACKERS = (Decoder("users", None, None), Decoder("users", None, CODEC), Decoder("users", dict[str, int], None))
SEEDS = (
    frames.encode("p", 1, 0.0, [frames.pack("hello")]),
    frames.encode("p", 7, 1.5, [frames.pack({"a": [1, None, 2.5]}, "key", HEADERS, "id", expires=2e9)] * 2),
    frames.encode("p", 2**40, 1e9, [frames.pack(b"x", "k"), frames.pack(1)], [0, 5], "users"),
    frames.encode("p", 1, 0.0, [frames.pack(CODEC.encode([[b"\x01"], ["tag"], False]), codec=CODEC.name)]),
)


def wrapped(body: bytes) -> bytes:
    """A body in a correct envelope."""
    return b"zkms\x01\0\0\0" + crc32(body).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


def check(data: bytes) -> None:
    """As it is, and as the body of a frame whose checksum is right."""
    inner = [data[frames.HEADER_SIZE :]] if data[:4] == frames.MAGIC else []
    for raw in (data, *map(wrapped, (data, *inner))):
        try:
            frame = frames.decode(raw)
        except CannotDecode as error:
            assert error.raw == raw
            continue
        _read(raw, frame)
        _move(raw, frame)
        _bury(raw)


def _read(raw: bytes, frame: frames.Frame) -> None:
    done: list[str] = []
    for decoder in UNPACKERS:
        entry, items = decoder.decode(Fetched(parse_entry("f.1.1.0000000001"), "/q/e", raw), done.append)
        for count, item in enumerate(items):
            assert count < len(frame.data)
            if isinstance(item, Undecodable):
                continue
            seen: tuple[Any, ...] = (item.topic, item.key, item.headers, item.id, item.seq, item.attempts, item.expires)
            assert repr(item)
            assert len(seen) == 7
            assert msgspec.json.encode({"shown": data_text(item.data), "key": item.key})
            if not isinstance(item.data, msgspec.Struct):
                data_json(item.data)
        assert entry.count == len(frame.data)


def _move(raw: bytes, frame: frames.Frame) -> None:
    due = Due(Delayed(1, 1, "p", "users", 0), raw, frame)
    due.left = tuple(range(len(due.packed)))
    due.targets = tuple(route(MEMBERS, due.packed, 0, frozenset()))
    try:
        operations = due.operations(TREE, "p", Members(1, MEMBERS), 100)
    except MessageTooLarge:
        return
    for operation in operations:
        assert operation.path.startswith("/zkms/")
    due.dead = "nobody"
    assert len(due.dead_letters(TREE, 1.0)) == len(frame.data)


def _bury(raw: bytes) -> None:
    letter = DeadLetter(raw, "why", 1.0)
    described = _describe(DeadLetterPlace("live", "users", "d.1.9.0000000001"), encode(letter), 1.0)
    assert not described.foreign
    name, data = _entry(letter, carry=True)
    entry = parse_entry(f"{name}0000000001")
    assert not entry.foreign, name
    assert entry.carrier or data


TARGETS = (
    Target(
        "frames",
        check,
        tuple(part for seed in SEEDS for part in (seed, seed[frames.HEADER_SIZE :])),
        (
            b"\xc4\xff",
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\xc0",
            b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
            b"\x91" * 64,
            b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
            b"\xcb\xff\xf0\x00\x00\x00\x00\x00\x00",
            b"\xd6\xff\x00\x00\x00\x00",
            b"\xd4\x05\x00",
            b"\x81\xc4\x01a\x01",
        ),
    ),
)
