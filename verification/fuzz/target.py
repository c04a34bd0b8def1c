"""Something that takes bytes from outside: what it may answer is its result, or an error that it documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

LONGEST = 5.0
"""Seconds that one input may take, on a busy machine."""
MOST_BYTES = 64 * 1024 * 1024
"""Memory that one input may claim: none of them is longer than a few KB."""


class Target(NamedTuple):
    """`check` raises if an input does what none may do: any exception but those that it expects itself."""

    name: str
    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    """What a mutator puts in now and then, as no chance would find it."""
    weight: float = 1.0
    """How many of the inputs that are asked for it gets; less for one that is slow."""


def text_of(data: bytes) -> str:
    """Any text, also of what UTF-8 cannot hold."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape")


def all_targets() -> Iterator[Target]:
    """Every target there is."""
    from verification.fuzz import arguments, frames, names, records, trails, web, wire

    for module in (frames, names, records, wire, trails, arguments, web):
        yield from module.TARGETS
