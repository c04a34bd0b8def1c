"""The name of a queue's entry, which describes the entry without a read.

It is `KIND.COUNT.BYTES.SEQUENCE`: a listing says how many messages an entry holds and how large it is, so limits and
prefetch need no reads. A small frame is in the name itself, `m.COUNT.BYTES.FRAME.SEQUENCE`: the watch event contains
all that its reader needs. A pointer's name is `b.COUNT.BYTES.NUMBER.PRODUCER.SEQUENCE`, and says where the body is. The
kind may follow `pPRIORITY.` and `xSECONDS.`, the time when the last of its messages expires. ZooKeeper appends the
ten-digit sequence.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

MAX_PRIORITY = 9
_ENTRY = re.compile(r"([fg])\.(\d{1,9})\.(\d{1,9})\.(\d{10})", re.ASCII)
_CARRIER = re.compile(r"m\.(\d{1,9})\.(\d{1,9})\.([A-Za-z0-9_-]{1,1000})\.(\d{10})", re.ASCII)
_TERMS = re.compile(r"(?:p([1-9])\.)?(?:x(\d{1,12})\.)?", re.ASCII)
_POINTER = re.compile(r"b\.(\d{1,9})\.(\d{1,9})\.(\d{1,18})\.(.+)\.(\d{10})", re.ASCII)


class Entry(NamedTuple):
    """A queue entry as its name describes it."""

    sequence: int
    name: str
    messages: int = 0
    size: int = 0
    gap: bool = False
    foreign: bool = False
    body: tuple[str, int] | None = None
    """Producer and number of the body that a pointer points to."""
    carrier: bool = False
    """Whether the name contains the frame: see `carried`."""
    priority: int = 0
    expires: int = 0
    """When the last of its messages expires, in seconds since the epoch; 0 for never."""


def entry_prefix(
    count: int,
    size: int,
    *,
    gap: bool = False,
    body: tuple[str, int] | None = None,
    carried: bytes | None = None,
    priority: int = 0,
    expires: int = 0,
) -> str:
    """Return the name to create an entry with; ZooKeeper appends the sequence."""
    terms = (f"p{priority}." if priority else "") + (f"x{expires}." if expires else "")
    if terms:
        return terms + entry_prefix(count, size, gap=gap, body=body, carried=carried)
    if carried is not None:
        return f"m.{count}.{size}.{urlsafe_b64encode(carried).rstrip(b'=').decode()}."
    if body is not None:
        return f"b.{count}.{size}.{body[1]}.{body[0]}."
    return f"{'g' if gap else 'f'}.{count}.{size}."


def parse_entry(name: str) -> Entry:
    """Parse an entry's name; one that zkms did not make is `foreign`."""
    if name[:1] in ("p", "x") and (terms := _TERMS.match(name)) is not None and terms.end():
        entry = _parse_kind(name[terms.end() :])  # terms are not parsed again: many of them must not recurse deeply
        return entry._replace(name=name, priority=int(terms[1] or 0), expires=int(terms[2] or 0))
    return _parse_kind(name)


def _parse_kind(name: str) -> Entry:
    if name.startswith("m"):
        return _parse_carrier(name)
    match = _ENTRY.fullmatch(name)
    if match is None:
        return _parse_pointer(name)
    kind, count, size, sequence = match.groups()
    return Entry(int(sequence), name, int(count), int(size), gap=kind == "g")


def _parse_carrier(name: str) -> Entry:
    match = _CARRIER.fullmatch(name)
    if match is None:
        return Entry(-1, name, foreign=True)
    count, size, _, sequence = match.groups()
    return Entry(int(sequence), name, int(count), int(size), carrier=True)


def carried(name: str) -> bytes:
    """Return the frame in a carrier's name; b"" if zkms did not make the name."""
    text = name.rsplit(".", 2)[1]
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return b""


def _parse_pointer(name: str) -> Entry:
    match = _POINTER.fullmatch(name)
    if match is None or match[4] in (".", ".."):
        return Entry(-1, name, foreign=True)
    count, size, number, producer, sequence = match.groups()
    return Entry(int(sequence), name, int(count), int(size), body=(producer, int(number)))
