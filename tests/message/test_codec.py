"""Payloads arrive as what they were; what cannot be encoded or decoded says so and harms nothing."""

from __future__ import annotations

import dataclasses
import pickle
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkms import CannotDecode, Codec, InvalidArgument, InvalidMessage
from zkms.checks import check_codec
from zkms.deliver.inbox import Fetched
from zkms.message import frame as frames
from zkms.message.codec import decode_with, encode_with
from zkms.message.decode import Decoder, Undecodable
from zkms.tree.entry import Entry

texts = st.text(st.characters(exclude_categories=["Cs"]))
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | texts,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(texts, children, max_size=4),
    max_leaves=20,
)


class Zipped:
    """A codec for the tests: compressed text."""

    name = "zipped"

    def encode(self, data: Any) -> bytes:
        """Only str has an encode()."""
        return zlib.compress(data.encode())

    def decode(self, raw: bytes) -> Any:
        """The inverse."""
        return zlib.decompress(raw).decode()


class User(msgspec.Struct):
    """A typed payload."""

    id: int
    name: str = ""


@dataclasses.dataclass
class Point:
    """Another one."""

    x: int
    y: int


def arrive(data: Any, type: Any = None, codec: Codec | None = None, reader: Codec | None = None) -> Any:
    """What a subscriber gets of a payload; `CannotDecode` is raised where it would be reported."""
    sent = frames.pack(data) if codec is None else frames.pack(encode_with(codec, data), codec=codec.name)
    raw = frames.encode("p", 1, 0.0, [sent])
    decoder = Decoder("topic", type, reader if reader is not None else codec)
    (item,) = decoder.decode(Fetched(Entry(0, "entry"), "/queue/entry", raw), lambda _path: None).items
    if isinstance(item, Undecodable):
        raise item.error
    return item.data


@given(st.binary())
def test_bytes_arrive_as_bytes(data: bytes) -> None:
    """Also when they were a bytearray or a memoryview."""
    for given_as in (data, bytearray(data), memoryview(data)):
        arrived = arrive(given_as)
        assert arrived == data
        assert type(arrived) is bytes


@given(texts)
def test_text_arrives_as_text(data: str) -> None:
    """A str is not bytes, nor the other way round."""
    assert arrive(data) == data


@given(json)
def test_what_json_can_hold_arrives_as_it_was(data: Any) -> None:
    """With types kept: 1 is not 1.0, "1" is not 1, None is None."""
    arrived = arrive(data)
    assert arrived == data
    assert repr(arrived) == repr(data)


def test_structs_and_dataclasses_go_and_come_by_type() -> None:
    """A sender gives the object; a reader without `type` sees a dict, one with it gets the object, validated."""
    for value, kind in ((User(1, "ann"), User), (Point(1, 2), Point)):
        plain = msgspec.structs.asdict(value) if isinstance(value, User) else dataclasses.asdict(value)
        assert arrive(value) == plain
        assert arrive(value, kind) == value


@pytest.mark.parametrize(
    ("data", "kind"),
    [({"id": "one"}, User), ({}, User), ("text", User), (b"bytes", User), ([1], Point), ({"x": 1}, Point), (1.5, int)],
)
def test_what_is_not_of_the_type_cannot_be_decoded(data: Any, kind: type) -> None:
    """The reason names the type that was expected, and the error the entry."""
    with pytest.raises(CannotDecode, match=kind.__name__) as caught:
        arrive(data, kind)
    assert caught.value.path == "/queue/entry"


def test_types_apply_to_text_and_bytes_too() -> None:
    """type=str takes text, type=bytes takes bytes, and not the other way round."""
    assert arrive("x", str) == "x"
    assert arrive(b"x", bytes) == b"x"
    for data, kind in (("x", int), (b"x", str), (b"x", int)):
        with pytest.raises(CannotDecode):
            arrive(data, kind)


@pytest.mark.parametrize("kind", [object(), "no such name", [], 5])
def test_what_is_no_type_is_refused_when_subscribing(kind: Any) -> None:
    """And not at the first message."""
    with pytest.raises(InvalidArgument, match="decode into"):
        Decoder("topic", kind, None)


@pytest.mark.parametrize("data", [object(), {1, object()}, "\ud800", {"a": "\udfff"}, 2**64, -(2**63) - 1, 1j])
def test_what_cannot_be_encoded_is_refused_before_it_is_sent(data: Any) -> None:
    """InvalidMessage names the type and says what to give instead."""
    with pytest.raises(InvalidMessage, match=type(data).__name__):
        frames.pack(data)


def test_data_nested_too_deeply_is_refused() -> None:
    """Not a RecursionError somewhere inside."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidMessage):
        frames.pack(deep)


def test_a_codec_goes_both_ways_and_its_name_travels() -> None:
    """A frame tells which codec made its messages."""
    codec = Zipped()
    assert isinstance(codec, Codec)
    assert arrive("hello", codec=codec) == "hello"
    assert arrive('{"id": 1}', str, codec) == '{"id": 1}'
    with pytest.raises(CannotDecode, match="int"):
        arrive("hello", int, codec)


def test_a_reader_without_the_codec_is_told_its_name() -> None:
    """No codec, or another one."""
    other = Zipped()
    other.name = "other"
    with pytest.raises(CannotDecode, match="zipped"):
        arrive("hello", codec=Zipped(), reader=other)
    with pytest.raises(CannotDecode, match="zipped"):
        decode_with(None, "zipped", b"")


def test_a_codec_that_raises_is_reported_as_itself() -> None:
    """On both sides, with its own words."""
    with pytest.raises(InvalidMessage, match="zipped"):
        encode_with(Zipped(), object())
    with pytest.raises(CannotDecode, match="incorrect header"):
        decode_with(Zipped(), "zipped", b"not zipped")


def test_a_codec_must_return_bytes() -> None:
    """Anything else cannot travel."""
    codec = Zipped()
    codec.encode = lambda data: "text"  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(InvalidMessage, match="str, not bytes"):
        encode_with(codec, "x")


@pytest.mark.parametrize("codec", [object(), "json", type("NoName", (Zipped,), {"name": ""})(), pickle])
def test_what_is_no_codec_is_refused(codec: Any) -> None:
    """A codec has a name, encode() and decode()."""
    with pytest.raises(InvalidArgument):
        check_codec(codec)


def test_nothing_is_ever_unpickled() -> None:
    """A pickle arrives as the bytes it is."""
    raw = pickle.dumps({"a": 1})
    assert arrive(raw) == raw
