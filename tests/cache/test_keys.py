"""Keys name the same entry on every node, or are refused."""

from __future__ import annotations

import enum
from decimal import Decimal
from typing import Any

import pytest
from cachetools.keys import hashkey
from hypothesis import given
from hypothesis import strategies as st

from zkms.cache.keys import InvalidKey, check_key, check_tags, decode_key, encode_key
from zkms.errors import InvalidArgument, ZkmsError

SIMPLE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(max_size=100)
)
KEYS = st.recursive(SIMPLE, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


class Colour(enum.IntEnum):
    """A key that people use."""

    RED = 1


class Name(str):
    """A str that thinks it is something else."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


@given(KEYS)
def test_a_key_is_the_same_after_a_journey(key: Any) -> None:
    """Equal, of the same types, with the same hash."""
    plain = check_key(key)
    back = decode_key(encode_key(plain))
    assert back == plain == key
    assert type(back) is type(plain)
    assert hash(back) == hash(key)
    assert repr(back) == repr(plain)


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (Colour.RED, 1),
        ((Colour.RED, "x"), (1, "x")),
        (Name("ada"), "ada"),
        (hashkey(1, "a"), (1, "a")),
        (2**80, 2**80),
        (-(2**70), -(2**70)),
        (True, True),
    ],
)
def test_derived_types_are_reduced_to_their_base(key: Any, plain: Any) -> None:
    """What travels is plain, whatever the derived type does to equality."""
    reduced = check_key(key)
    assert reduced == plain
    assert type(reduced) is type(plain)
    assert decode_key(encode_key(reduced)) == plain


@pytest.mark.parametrize(
    "key", [[1], {"a": 1}, {1}, object(), Decimal(1), float("nan"), (1, [2]), "\ud800", "x" * 20_000, lambda: None]
)
def test_a_key_that_cannot_travel_is_refused(key: Any) -> None:
    """Unhashable, of another type, not equal to itself, not UTF-8, or too long: with words that say what to do."""
    with pytest.raises(InvalidKey, match="invalid cache key") as caught:
        check_key(key)
    assert isinstance(caught.value, (ZkmsError, ValueError))


def test_a_tuple_without_end_is_refused() -> None:
    """Nested a hundred times."""
    key: Any = ()
    for _ in range(100):
        key = (key,)
    with pytest.raises(InvalidKey, match="nested"):
        check_key(key)


def test_a_key_with_a_broken_repr_is_refused_in_words() -> None:
    """The error does not fail for its own sake."""

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(InvalidKey, match="Broken"):
        check_key(Broken())


@pytest.mark.parametrize("tags", [1, [1], [""], "", [None]])
def test_tags_are_text(tags: Any) -> None:
    """One, or several."""
    with pytest.raises(InvalidArgument, match="tag"):
        check_tags(tags)
    assert check_tags("a") == ("a",)
    assert check_tags(["a", Name("b")]) == ("a", "b")
