"""Checks of arguments that several rooms take."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from zkms.errors import InvalidArgument

FOREVER = 1e9
"""Seconds that every clock can count; longer times, also infinity, are cut to this."""


@runtime_checkable
class Codec(Protocol):
    """A serialiser; its `name` is stored with each message, so that a reader without it fails clearly."""

    name: str

    def encode(self, data: Any) -> bytes:
        """Return the bytes to send; raise to refuse the data."""
        ...

    def decode(self, raw: bytes) -> Any:
        """Return the data that `encode` was given; raise to report the message through `on_error`."""
        ...


def check_codec(codec: Codec | None) -> Codec | None:
    """Return `codec`, or raise `InvalidArgument` if it is not one."""
    if codec is not None and not (isinstance(codec, Codec) and isinstance(codec.name, str) and codec.name):
        raise InvalidArgument(f"codec {codec!r:.80} needs a non-empty str `name`, `encode(data)` and `decode(raw)`")
    return codec


def check_seconds(what: str, value: object) -> float:
    """Return `value` as a number of seconds, at most `FOREVER`, else raise `InvalidArgument`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:  # not a number
        raise InvalidArgument(f"{what} must be a number of seconds, not {value!r:.60}")
    return float(min(value, FOREVER))


def check_count(what: str, value: object) -> int:
    """Return a whole number of at least 1, else raise `InvalidArgument`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgument(f"{what} must be a whole number of at least 1, not {value!r:.60}")
    return value


def check_positive(what: str, value: object) -> float:
    """Return a number of seconds above 0, else raise `InvalidArgument`."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise InvalidArgument(f"{what} must be a number of seconds above 0, not {value!r:.60}")
    return float(value)


def check_options(function: str, options: Mapping[str, object], known: Collection[str]) -> None:
    """`TypeError`, in Python's own words, if a function was given an option that it does not have."""
    for option in options:
        if option not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {option!r}")
