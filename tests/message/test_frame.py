"""The envelope: whatever comes out of a queue is either exactly what was put in, or an error that says why not."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkms import CannotDecode
from zkms.message import frame as frames
from zkms.message.frame import HEADER_SIZE, MAGIC, VERSION, Frame

Given = tuple[bytes | str, str | None, dict[str, str] | None, str | None]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
messages = st.lists(
    st.tuples(
        st.binary(max_size=60) | texts,
        st.none() | texts,
        st.none() | st.dictionaries(texts, texts, max_size=3),
        st.none() | texts,
    ),
    min_size=1,
    max_size=20,
)
SAMPLE = frames.encode("billing", 41, 1.5, [frames.pack("drop 42", "42"), frames.pack(b"\0\xff", None, {"by": "me"})])


def envelope(body: bytes, *, version: int = VERSION, magic: bytes = MAGIC) -> bytes:
    """A well-formed envelope around any body."""
    return struct.pack("!4sBxxxII", magic, version, crc32(body), len(body)) + body


moments = st.floats(0, frames.LAST_SECOND, exclude_max=True)


@given(texts, st.integers(0, 2**62), moments, messages, st.none() | texts)
def test_a_frame_comes_out_as_it_went_in(
    producer: str, seq: int, at: float, given: list[Given], codec: str | None
) -> None:
    """Encoding and decoding are inverse."""
    raw = frames.encode(producer, seq, at, [frames.pack(*message, codec) for message in given])
    frame = frames.decode(raw)
    assert (frame.producer, frame.seq, frame.published_at, frame.codec) == (producer, seq, at, codec)
    extras = frame.extras or [None] * len(frame.data)
    whole = [extra or frames.Extra() for extra in extras]
    assert [(data, e.key, e.headers, e.id) for data, e in zip(frame.data, whole, strict=True)] == given


def test_a_frame_cut_off_at_any_byte_is_refused() -> None:
    """No prefix of a frame passes for one."""
    raw = SAMPLE
    for length in range(len(raw)):
        with pytest.raises(CannotDecode):
            frames.decode(raw[:length])


def test_trailing_bytes_are_refused() -> None:
    """The length is exact."""
    with pytest.raises(CannotDecode, match="bytes"):
        frames.decode(SAMPLE + b"\0")


def check_every_flipped_bit_is_noticed(decode: Callable[[bytes], Frame]) -> None:
    """Fail if some single flipped bit of a frame goes unnoticed."""
    raw = bytearray(SAMPLE)
    unnoticed = []
    for bit in range(len(raw) * 8):
        raw[bit // 8] ^= 1 << bit % 8
        try:
            decode(bytes(raw))
        except CannotDecode:
            pass
        else:
            unnoticed.append(bit)
        raw[bit // 8] ^= 1 << bit % 8
    assert unnoticed == []


def test_every_flipped_bit_is_noticed() -> None:
    """In the header, its padding and the body alike."""
    check_every_flipped_bit_is_noticed(frames.decode)


def test_without_the_checksum_flipped_bits_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking the check on purpose: the test above would notice."""
    monkeypatch.setattr(frames, "crc32", lambda _body: crc32(SAMPLE[HEADER_SIZE:]))
    with pytest.raises(AssertionError):
        check_every_flipped_bit_is_noticed(frames.decode)


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else_is_raised(garbage: bytes) -> None:
    """Bytes of another program, bare and inside a correct envelope."""
    for raw in (garbage, MAGIC + garbage):
        with pytest.raises(CannotDecode):
            frames.decode(raw)
    with contextlib.suppress(CannotDecode):
        frames.decode(envelope(garbage))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not written by zkms"),
        (b"x" * 100, "not written by zkms"),
        (envelope(b"", magic=b"ZKMS"), "not written by zkms"),
        (envelope(b"", version=2), "frame version 2, this zkms reads 1"),
        (envelope(b"\xc0"), "malformed frame"),
        (envelope(msgspec.msgpack.encode(["p", 1, 0.0, []])), "no messages"),
        (envelope(msgspec.msgpack.encode(["p", 1])), "malformed frame"),
        (envelope(msgspec.msgpack.encode(["p", 1, 0.0, [1, 2], None, [None]])), "1 extras for 2 messages"),
        (envelope(b"\x94\xa1\xff\x01\xcb" + b"\0" * 8 + b"\x91\x92\x00\xc4\x01a"), "malformed frame"),
        (envelope(b"\x95\xa1p\x01\xcb" + b"\0" * 8 + b"\x91\x92\x00\xc4\x01a" + b"\x91" * 99_999 + b"\1"), "malformed"),
    ],
    ids=[
        "empty",
        "other",
        "magic",
        "version",
        "nil",
        "no messages",
        "short",
        "extras",
        "not UTF-8",
        "nested too deeply",
    ],
)
def test_the_reason_is_said_in_plain_words(raw: bytes, reason: str) -> None:
    """So that whoever finds it set aside knows what it was."""
    with pytest.raises(CannotDecode, match=reason):
        frames.decode(raw)


def test_a_reader_ignores_what_a_newer_writer_adds() -> None:
    """Arrays may grow at their end, of the frame and of each message."""
    body = msgspec.msgpack.encode(
        ["p", 7, 2.0, [b"x"], None, [["k", None, None, 0.0, "new", 5]], None, None, False, {"also": "new"}]
    )
    frame = frames.decode(envelope(body))
    assert (frame.producer, frame.seq, frame.published_at, frame.codec) == ("p", 7, 2.0, None)
    assert frame.data == [b"x"]
    assert frame.extras == [frames.Extra("k")]


def test_a_reader_fills_what_an_older_writer_leaves_out() -> None:
    """Data are enough."""
    frame = frames.decode(envelope(msgspec.msgpack.encode(["p", 7, 2.0, ["x"]])))
    assert (frame.data, frame.codec, frame.extras) == (["x"], None, None)
    frame = frames.decode(envelope(msgspec.msgpack.encode(["p", 7, 2.0, ["x"], None, [["k"]]])))
    assert frame.extras == [frames.Extra("k")]


@given(messages)
def test_sizes_add_up(given: list[Given]) -> None:
    """A packed message's length tells how much it adds, so that frames are cut before they are too large."""
    packed = [frames.pack(*message) for message in given]
    raw = frames.encode("producer", 2**40, 1.0, packed)
    assert len(raw) <= HEADER_SIZE + 64 + sum(message.size + 1 for message in packed)
