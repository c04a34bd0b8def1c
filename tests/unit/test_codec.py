"""Payloads arrive as what they were; what cannot be encoded or decoded says so and harms nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkms import CannotDecode, Codec, InvalidArgument, InvalidMessage
from zkms.codec import BYTES, STRUCTURED, TEXT, check_codec, pack, unpack

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


@given(st.binary())
def test_bytes_arrive_as_bytes(data: bytes) -> None:
    """Also when they were a bytearray or a memoryview."""
    for given_as in (data, bytearray(data), memoryview(data)):
        assert pack(given_as) == (BYTES, data)
    assert unpack(BYTES, data) == data


@given(texts)
def test_text_arrives_as_text(data: str) -> None:
    """str is UTF-8 on the way."""
    how, raw = pack(data)
    assert how == TEXT
    assert unpack(how, raw) == data


@given(json)
def test_what_json_can_hold_arrives_as_it_was(data: Any) -> None:
    """With types kept: 1 is not 1.0, "1" is not 1, None is None."""
    how, raw = pack(data)
    arrived = unpack(how, raw)
    assert arrived == data
    assert repr(arrived) == repr(data)


def test_structs_and_dataclasses_go_and_come_by_type() -> None:
    """A sender gives the object; a reader without `type` sees a dict, one with it gets the object, validated."""
    for value, kind in ((User(1, "ann"), User), (Point(1, 2), Point)):
        how, raw = pack(value)
        assert how == STRUCTURED
        assert unpack(how, raw) == (
            msgspec.structs.asdict(value) if isinstance(value, User) else dataclasses.asdict(value)
        )
        assert unpack(how, raw, type=kind) == value


@pytest.mark.parametrize(
    ("data", "kind"),
    [({"id": "one"}, User), ({}, User), ("text", User), (b"bytes", User), ([1], Point), ({"x": 1}, Point), (1.5, int)],
)
def test_what_is_not_of_the_type_cannot_be_decoded(data: Any, kind: type) -> None:
    """The reason names the type that was expected."""
    how, raw = pack(data)
    with pytest.raises(CannotDecode, match=kind.__name__) as caught:
        unpack(how, raw, type=kind)
    assert caught.value.raw == raw


def test_types_apply_to_text_and_bytes_too() -> None:
    """type=str takes text, type=bytes takes bytes, and not the other way round."""
    assert unpack(*pack("x"), type=str) == "x"
    assert unpack(*pack(b"x"), type=bytes) == b"x"
    with pytest.raises(CannotDecode):
        unpack(*pack("x"), type=int)


@pytest.mark.parametrize("data", [object(), {1, object()}, "\ud800", {"a": "\udfff"}, 2**64, -(2**63) - 1, 1j])
def test_what_cannot_be_encoded_is_refused_before_it_is_sent(data: Any) -> None:
    """InvalidMessage names the type and says what to give instead."""
    with pytest.raises(InvalidMessage, match=type(data).__name__):
        pack(data)


def test_data_nested_too_deeply_is_refused() -> None:
    """Not a RecursionError somewhere inside."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidMessage):
        pack(deep)


@given(st.sampled_from([TEXT, STRUCTURED]), st.binary(max_size=50))
def test_damaged_payloads_raise_nothing_but_cannot_decode(how: int, raw: bytes) -> None:
    """Whatever the bytes are."""
    for kind in (None, User, int, list[str]):
        with contextlib.suppress(CannotDecode):
            unpack(how, raw, type=kind)


def test_formats_of_a_newer_zkms_are_named() -> None:
    """Rather than guessed at."""
    with pytest.raises(CannotDecode, match="newer zkms"):
        unpack(9, b"")


def test_a_codec_goes_both_ways_and_its_name_travels() -> None:
    """The format of a message is the codec's name."""
    codec = Zipped()
    assert isinstance(codec, Codec)
    how, raw = pack("hello", codec)
    assert how == "zipped"
    assert unpack(how, raw, codec=codec) == "hello"
    assert unpack(*pack('{"id": 1}', codec), type=str, codec=codec) == '{"id": 1}'


def test_a_reader_without_the_codec_is_told_its_name() -> None:
    """No codec, or another one."""
    how, raw = pack("hello", Zipped())
    other = Zipped()
    other.name = "other"
    for codec in (None, other):
        with pytest.raises(CannotDecode, match="zipped"):
            unpack(how, raw, codec=codec)


def test_a_codec_that_raises_is_reported_as_itself() -> None:
    """On both sides, with its own words."""
    with pytest.raises(InvalidMessage, match="zipped"):
        pack(object(), Zipped())
    with pytest.raises(CannotDecode, match="incorrect header"):
        unpack("zipped", b"not zipped", codec=Zipped())


def test_a_codec_must_return_bytes() -> None:
    """Anything else cannot travel."""
    codec = Zipped()
    codec.encode = lambda data: "text"  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(InvalidMessage, match="str, not bytes"):
        pack("x", codec)


@pytest.mark.parametrize("codec", [object(), "json", type("NoName", (Zipped,), {"name": ""})(), pickle])
def test_what_is_no_codec_is_refused(codec: Any) -> None:
    """A codec has a name, encode() and decode()."""
    with pytest.raises(InvalidArgument):
        check_codec(codec)


def test_nothing_is_ever_unpickled() -> None:
    """A pickle arrives as the bytes it is."""
    raw = pickle.dumps({"a": 1})
    assert unpack(*pack(raw)) == raw
