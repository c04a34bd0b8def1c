"""What an actor is told, and what it answers: JSON, one object a line."""

from __future__ import annotations

from typing import Literal

import msgspec

from zkms.bench.algorithms.algorithm import BenchPlace

TallyKind = Literal["count", "time", "hold", "unpack"]


class Subscribe(msgspec.Struct, tag=True):
    """Be so many subscribers, numbered from `first`."""

    algorithm: str
    place: BenchPlace
    first: int
    count: int
    tally: TallyKind = "count"
    session_timeout: float = 30.0


class Connect(msgspec.Struct, tag=True):
    """Be a publisher."""

    algorithm: str
    place: BenchPlace


class Expect(msgspec.Struct, tag=True):
    """Each of your subscribers will get so many messages."""

    messages: int


class Await(msgspec.Struct, tag=True):
    """Answer when they have, and have acked them."""

    timeout: float


class Release(msgspec.Struct, tag=True):
    """Let those pass that are held back."""


class Publish(msgspec.Struct, tag=True):
    """Publish so many messages of so many bytes, and answer when they are stored and, where you can know, acked.

    With `rate` one after the other, so many a second; with `threads` from so many at once; else as fast as you can, and
    `pack` messages in one by hand.
    """

    messages: int
    size: int = 100
    rate: float = 0.0
    threads: int = 0
    pack: int = 1
    settle: bool = True
    timeout: float = 120.0


class Stop(msgspec.Struct, tag=True):
    """Close what is open, and end."""


Order = Subscribe | Connect | Expect | Await | Release | Publish | Stop


class Usage(msgspec.Struct):
    """What a process has used so far: seconds of CPU, bytes of memory now and at the most since the last Expect."""

    cpu: float
    memory: int
    peak: int


class Ready(msgspec.Struct, tag=True):
    """It is done."""

    names: list[str] = []
    usage: Usage | None = None


class Tallied(msgspec.Struct, tag=True):
    """All have got and acked what was expected, and when that was."""

    settled_at: float
    messages: int
    usage: Usage
    latencies: list[float] = []


class Published(msgspec.Struct, tag=True):
    """All is stored, and acked as far as a publisher can know; `frame` is how many messages travelled together."""

    began_at: float
    stored_at: float
    settled_at: float
    usage_before: Usage
    usage: Usage
    frame: int = 1
    late: int = 0
    """Messages that were due while the one before was still on its way."""


class Failed(msgspec.Struct, tag=True):
    """It could not be done."""

    reason: str


Answer = Ready | Tallied | Published | Failed
order_decoder = msgspec.json.Decoder(Order)
answer_decoder = msgspec.json.Decoder(Answer)
encode = msgspec.json.Encoder().encode
