"""A durable subscription read by place: what lies between two places stays the same, and goes when it is acked."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from zkms_cleaner import Election, Sweeper
from zkms_spark.source.messages import Row, rows

from tests.support.buses import Connect
from zkms import Bus, Closed, SubscriptionInUse
from zkms.message import frame as frames
from zkms.replay.cursor import Cursor, CursorPlace, Missing
from zkms.server.server import Server
from zkms.testing import expire
from zkms.tree.entry import entry_prefix
from zkms.zookeeper.operations import Create, Delete

pytestmark = pytest.mark.on_one_server


@pytest.fixture
def cursor(connect: Connect) -> Cursor:
    """The reader of "users" under the name "etl"."""
    return opened(connect())


def opened(bus: Bus, **options: Any) -> Cursor:
    """Another reader of the same."""
    cursor = Cursor(bus.parts, "users", "etl", **options)
    cursor.open()
    return cursor


def read(bus: Bus, cursor: Cursor, start: CursorPlace, end: CursorPlace, *, strict: bool = True) -> list[Any]:
    """The data between two places, as Spark's tasks get them."""
    found = rows(bus.parts.session, bus.parts.tree, "users", cursor.pieces(start, end), end.at, strict=strict)
    return [row[0] if row[0] is not None else row[1] for row in found]


def all_rows(bus: Bus, cursor: Cursor, start: CursorPlace, end: CursorPlace, *, strict: bool = True) -> list[Row]:
    """The same with all columns."""
    return list(rows(bus.parts.session, bus.parts.tree, "users", cursor.pieces(start, end), end.at, strict=strict))


def seen(cursor: Cursor, *numbers: int) -> CursorPlace:
    """Wait until the cursor sees that these entries are there, and no others; the place behind them."""
    deadline = time.monotonic() + 30.0
    while cursor._look().numbers != [*numbers]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return cursor.end()


def sweep(bus: Bus, later: float) -> None:
    """Remove what has expired so many seconds from now."""
    lead = Election(bus.parts.session, bus.parts.tree, bus.client_id).lead()
    assert lead is not None
    Sweeper(bus.parts.session, bus.parts.tree, grace=0.0, wall_clock=lambda: time.time() + later).sweep(lead)
    bus.parts.session.multi([Delete(lead.path)])  # for the next time


def put(bus: Bus, raw: bytes) -> None:
    """As another program puts a frame of one message into the queue."""
    name = entry_prefix(1, len(raw))
    bus.parts.session.multi([Create(f"{bus.parts.tree.queue('etl', 'users')}/{name}", raw, sequence=True)])


def texts(first: int, last: int) -> list[str]:
    """What is published, and read."""
    return [str(number) for number in range(first, last)]


def test_what_lies_between_two_places_is_the_same_whatever_comes_later(bus: Bus, cursor: Cursor) -> None:
    """Places are in the middle of frames; another reader, after this one, finds the same."""
    begin = cursor.begin()
    bus.publish_many("users", texts(0, 10))
    bus.publish("users", "10")
    first = cursor.advance(begin, 4, wait=30.0)
    second = cursor.advance(first, 6)
    assert read(bus, cursor, begin, first) == texts(0, 4)
    assert read(bus, cursor, first, second) == texts(4, 10)
    bus.publish_many("users", texts(11, 20))
    assert read(bus, cursor, begin, first) == texts(0, 4)
    cursor.close()
    again = opened(bus)
    assert again.begin() == begin
    assert read(bus, again, first, second) == texts(4, 10)
    last = again.advance(second)
    assert read(bus, again, second, last) == texts(10, 20)
    assert again.advance(last) is last


def test_only_what_lies_before_the_acked_place_is_removed(bus: Bus, cursor: Cursor, connect: Connect) -> None:
    """Also inside a frame: an ordinary reader of the subscription goes on there."""
    begin = cursor.begin()
    for first in (0, 5, 10):
        bus.publish_many("users", texts(first, first + 5))
    place = cursor.advance(begin, 7, wait=30.0)
    rest = cursor.advance(place)
    cursor.ack(place)
    assert bus.queues()[0].entries == 2
    assert read(bus, cursor, place, rest) == texts(7, 15)
    cursor.ack(place)  # Spark may say it again
    cursor.close()
    reader = connect().subscribe("users", name="etl")
    assert [message.data for message in reader.fetch(20, timeout=30)] == texts(7, 15)


def test_what_an_ordinary_reader_has_acked_is_left_out(bus: Bus, connect: Connect) -> None:
    """One by one, in the middle of a frame."""
    before = connect()
    subscription = before.subscribe("users", name="etl")
    bus.publish_many("users", texts(0, 8))
    messages = subscription.fetch(8, timeout=30)
    assert len(messages) == 8
    for number in (0, 1, 4):
        messages[number].ack()
    before.close()
    cursor = opened(bus)
    begin = cursor.begin()
    middle, end = cursor.advance(begin, 4), cursor.end()
    assert read(bus, cursor, begin, middle) == ["2", "3", "5"]
    cursor.ack(middle)
    assert read(bus, cursor, middle, end) == ["6", "7"]
    cursor.ack(end)
    assert bus.queues()[0].entries == 0


def test_one_reads_at_a_time(bus: Bus, cursor: Cursor, connect: Connect) -> None:
    """A second reader is told who has it; one that takes over is not disturbed by what the first acks."""
    begin = cursor.begin()
    bus.publish_many("users", texts(0, 5))
    place = cursor.advance(begin, wait=30.0)
    other = Cursor(connect().parts, "users", "etl")
    with pytest.raises(SubscriptionInUse, match="is being read by client"):
        other.open(patience=0.0)
    other.open(takeover=True)
    with pytest.raises(Closed, match="not read here any more"):
        cursor.ack(place)
    assert read(bus, other, begin, place) == texts(0, 5)


def test_the_next_reader_waits_until_the_killed_one_is_known_to_be_gone(bus: Bus, connect: Connect) -> None:
    """Its session has to end first: until then nobody can know."""
    killed = connect()
    place = opened(killed).begin()
    bus.publish("users", "0")
    killed.parts.session.close()  # as ZooKeeper ends it, with nothing given back
    again = opened(connect())
    assert read(bus, again, place, again.advance(place)) == ["0"]


def test_a_cursor_goes_on_after_its_session_has_expired(
    bus: Bus, connect: Connect, eventually: Callable[..., None]
) -> None:
    """It becomes a member again, and what it has claimed is still its own."""
    reader = connect()
    cursor = opened(reader)
    begin = cursor.begin()
    bus.publish_many("users", texts(0, 5))
    generation = reader.parts.session.generation
    expire(reader)
    eventually(lambda: reader.parts.session.generation > generation, timeout=60, what="the next session")
    place = cursor.advance(begin, wait=30.0)
    cursor.ack(place)
    assert bus.parts.durable_registration.members("users", "etl") == [reader.client_id]
    assert bus.queues()[0].entries == 0


def test_what_others_have_removed_is_said_to_be_missing(bus: Bus, cursor: Cursor) -> None:
    """With the numbers; or it is a warning, for those who want to go on."""
    begin = cursor.begin()
    for number in range(3):
        bus.publish("users", str(number))
    queue = bus.parts.tree.queue("etl", "users")
    [second] = [name for name in bus.parts.session.children(queue)[0] if name.endswith("1")]
    bus.parts.session.multi([Delete(f"{queue}/{second}")])
    end = cursor.advance(begin, wait=30.0)
    with pytest.raises(Missing, match=r"1 entries from number 0 to 2 .* by another reader of this name, or by hand"):
        cursor.pieces(begin, end)
    cursor.close()
    lenient = opened(bus, strict=False)
    assert read(bus, lenient, begin, end, strict=False) == ["0", "2"]


def test_a_subscription_that_was_made_anew_is_another_one(bus: Bus, cursor: Cursor, connect: Connect) -> None:
    """Its numbers begin again: a place in the old one means nothing."""
    bus.publish("users", "0")
    place = cursor.advance(cursor.begin(), wait=30.0)
    cursor.close()
    bus.subscribe("users", name="etl").unsubscribe()
    again = opened(bus)
    with pytest.raises(Missing, match="given up, and made anew"):
        again.advance(place)
    again.close()
    lenient = opened(connect(), strict=False)
    bus.publish("users", "1")
    end = lenient.advance(place, wait=30.0)
    assert read(bus, lenient, place, end, strict=False) == ["1"]


def test_what_has_expired_is_left_out_each_time_or_never(bus: Bus, cursor: Cursor) -> None:
    """It is decided when the batch is: a message that expires while the batch is done again belongs to it still."""
    begin = cursor.begin()
    bus.publish("users", "short", ttl=3600.0)
    bus.publish("users", "long")
    early = cursor.advance(begin, wait=30.0)
    end = cursor.end()
    soon, later = (CursorPlace(queue=end.queue, entry=2, at=int(time.time() + seconds)) for seconds in (0, 7200))
    assert early.at <= soon.at
    assert read(bus, cursor, begin, soon) == ["short", "long"]
    assert read(bus, cursor, begin, later) == ["long"]


def test_what_cannot_be_decoded_is_a_row_with_the_reason_and_its_bytes(bus: Bus, cursor: Cursor) -> None:
    """Never lost, and it stops nothing; also where a batch ends in its middle."""
    begin = cursor.begin()
    queue = bus.parts.tree.queue("etl", "users")
    bus.parts.session.multi([Create(f"{queue}/f.2.7.", b"garbage", sequence=True)])
    bus.publish("users", "1")
    first = cursor.advance(begin, 1, wait=30.0)
    end = cursor.advance(first)
    found = [
        list(rows(bus.parts.session, bus.parts.tree, "users", cursor.pieces(*each), end.at, strict=True))
        for each in ((begin, first), (first, end))
    ]
    [[damaged], [whole]] = found
    assert (damaged[1], damaged[-1], damaged[3]) == (b"garbage", "not written by zkms", "users")
    assert (whole[0], whole[-1]) == ("1", None)


def test_what_json_cannot_hold_is_a_row_of_its_own_with_the_reason(bus: Bus, cursor: Cursor) -> None:
    """Each of these may be published, and is in the middle of a frame: its neighbours are what they were."""
    begin = cursor.begin()
    odd: list[Any] = [{None: 1}, {(1, 2): 3}, [msgspec.msgpack.Ext(5, b"x")]]
    bus.publish_many("users", ["before", *odd, "after"])
    end = seen(cursor, 0)
    before, *found, after = all_rows(bus, cursor, begin, end)
    assert (before[0], after[0]) == ("before", "after")
    assert [row[:3] for row in found] == [(None, msgspec.msgpack.encode(each), "msgpack") for each in odd]
    assert all(row[-1].startswith("JSON cannot hold it: ") for row in found)
    assert [row[9] for row in found] == [before[9] + 1, before[9] + 2, before[9] + 3], "their numbers"


def test_data_of_any_depth_stop_nothing(bus: Bus, cursor: Cursor) -> None:
    """Where Python's stack ends: what could still be decoded is JSON or MessagePack, and the rest is its bytes."""
    begin = cursor.begin()
    depths = range(900, 1000)
    for depth in depths:
        packed = b"\x91" * depth + b"\xc0"
        put(bus, frames.encode("p", 1, 1.0, [frames.Packed(packed, len(packed))]))
    end = seen(cursor, *range(len(depths)))
    kinds = [row[2] for row in all_rows(bus, cursor, begin, end)]
    assert len(kinds) == len(depths)
    assert {*kinds} >= {"json", "bytes"}


@pytest.mark.parametrize("at", [1e300, float("nan"), -1e12, frames.LAST_SECOND])
def test_a_moment_that_no_calendar_has_stops_nothing(bus: Bus, cursor: Cursor, at: float) -> None:
    """It is a damaged entry, as for any reader."""
    begin = cursor.begin()
    put(bus, frames.encode("p", 1, at, [frames.pack("x")]))
    bus.publish("users", "behind it")
    end = seen(cursor, 0, 1)
    damaged, behind = all_rows(bus, cursor, begin, end)
    assert (damaged[0], damaged[2]) == (None, "bytes")
    assert damaged[-1].startswith("malformed frame")
    assert behind[0] == "behind it"


def test_an_entry_that_may_not_be_read_is_missing_and_the_next_one_is_not(
    bus: Bus, cursor: Cursor, zookeeper: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """An ordinary reader announces a gap, and goes on."""
    begin = cursor.begin()
    other = KazooClient(zookeeper.hosts)
    other.start()
    entry = f"{bus.parts.tree.queue('etl', 'users')}/f.1.7."
    other.create(entry, b"private", sequence=True, acl=[make_digest_acl("other", "secret", all=True)])
    other.stop()
    other.close()
    bus.publish("users", "behind it")
    end = seen(cursor, 0, 1)
    with pytest.raises(Missing, match=r"entry 0 cannot be read here: .* not allowed"):
        read(bus, cursor, begin, end)
    with caplog.at_level(logging.WARNING, "zkms.spark"):
        assert read(bus, cursor, begin, end, strict=False) == ["behind it"]
    assert "entry 0 cannot be read here" in caplog.text
    cursor.ack(end)
    assert bus.queues()[0].entries == 0


def test_what_another_reader_took_is_missing_though_younger_messages_have_expired(bus: Bus, cursor: Cursor) -> None:
    """Only those that the cleaner has removed count as expired."""
    begin = cursor.begin()
    bus.publish_many("users", ["taken"])
    bus.publish("users", "over", ttl=60.0)
    bus.publish("users", "stays")
    bus.publish("users", "over too", ttl=60.0)
    queue = bus.parts.tree.queue("etl", "users")
    [first] = [name for name in bus.parts.session.children(queue)[0] if name.endswith(".0000000000")]
    bus.parts.session.multi([Delete(f"{queue}/{first}")])
    sweep(bus, later=120)
    end = seen(cursor, 2)
    with pytest.raises(Missing, match=r"1 entries from number 0 to 3 .* by another reader of this name, or by hand"):
        cursor.pieces(begin, end)
    behind = CursorPlace(queue=end.queue, entry=1)
    assert read(bus, cursor, behind, end) == ["stays"]


def test_all_that_expired_while_no_query_ran_is_left_out(
    bus: Bus, cursor: Cursor, caplog: pytest.LogCaptureFixture
) -> None:
    """However many times the cleaner came by, and whatever else it left a reason for."""
    begin = cursor.begin()
    for minutes in range(1, 6):
        bus.publish("users", str(minutes), ttl=60.0 * minutes)
        bus.publish("users", f"between {minutes}")
    for minutes in range(1, 4):
        sweep(bus, later=60.0 * minutes + 30)
    end = seen(cursor, 1, 3, 5, 6, 7, 8, 9)
    with caplog.at_level(logging.WARNING, "zkms.cursor"):
        found = read(bus, cursor, begin, end)
    assert found == ["between 1", "between 2", "between 3", "4", "between 4", "5", "between 5"]
    assert "3 entries are left out, expired" in caplog.text


def test_an_entry_that_expires_between_plan_and_read_is_left_out(
    bus: Bus, cursor: Cursor, caplog: pytest.LogCaptureFixture
) -> None:
    """The cleaner was faster than the task: nobody has taken it."""
    begin = cursor.begin()
    bus.publish("users", "over" * 500, ttl=60.0)
    bus.publish("users", "stays" * 500)
    end = seen(cursor, 0, 1)
    pieces = cursor.pieces(begin, end)
    sweep(bus, later=120)
    with caplog.at_level(logging.WARNING, "zkms.spark"):
        found = [row[0] for row in rows(bus.parts.session, bus.parts.tree, "users", pieces, end.at, strict=True)]
    assert found == ["stays" * 500]
    assert "entry 0 is left out, expired" in caplog.text


def test_an_entry_that_is_taken_between_plan_and_read_is_said_to_be_missing(
    bus: Bus, cursor: Cursor, caplog: pytest.LogCaptureFixture
) -> None:
    """As an error, or as a warning: never without a word."""
    begin = cursor.begin()
    bus.publish("users", "taken" * 500)
    bus.publish("users", "stays" * 500)
    end = seen(cursor, 0, 1)
    pieces = cursor.pieces(begin, end)
    bus.parts.session.multi([Delete(pieces[0].path)])

    def found(*, strict: bool) -> list[Any]:
        return [row[0] for row in rows(bus.parts.session, bus.parts.tree, "users", pieces, end.at, strict=strict)]

    with pytest.raises(Missing, match="entry 0 was removed by somebody"):
        found(strict=True)
    with caplog.at_level(logging.WARNING, "zkms.spark"):
        assert found(strict=False) == ["stays" * 500]
    assert "entry 0 was removed by somebody before it was read here; going on" in caplog.text


def lines(trail: Path, *events: str) -> list[dict[str, Any]]:
    """What a trail says of these events, in order."""
    found = [json.loads(line) for path in sorted(trail.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    return [line for line in found if line["event"] in events]


def told(line: dict[str, Any]) -> list[int]:
    """The numbers of the messages that a line is about."""
    return [line["seq"] + place for place in line.get("places", range(line["n"]))]


def test_what_is_acked_is_in_the_trail_once(
    bus: Bus, connect: Connect, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """However often it was read: delivered and acked when that is stored, in parts of a frame, and never twice."""
    reader = connect(trail=tmp_path, producer="reader")
    cursor = opened(reader)
    begin = cursor.begin()
    bus.publish_many("users", texts(0, 10))
    bus.publish("users", "gone", ttl=0.001)
    first = cursor.advance(begin, 4, wait=30.0)
    over = time.time() + 0.001
    eventually(lambda: int(time.time()) > over)  # a place knows whole seconds: what had expired by then is left out
    last = cursor.advance(first, 7)
    for _ in range(2):
        assert read(bus, cursor, begin, first) == texts(0, 4)
    cursor.ack(first)
    cursor.ack(first)
    assert read(bus, cursor, first, last) == texts(4, 10)
    cursor.ack(last)
    cursor.ack(last)
    cursor.close()
    reader.close()
    ((claimed,), delivered) = lines(tmp_path, "subscribed")[-1:], lines(tmp_path, "delivered")
    assert (claimed["partition"], claimed["sub"]) == (0, "etl")
    numbers = [number for line in delivered for number in told(line)]
    assert numbers == list(range(numbers[0], numbers[0] + 10))
    assert {(line["kind"], line["sub"], line["epoch"]) for line in delivered} == {("durable", "etl", claimed["epoch"])}
    acked = lines(tmp_path, "acked")
    assert [number for line in acked for number in told(line)] == numbers
    assert all(line["zxid"] > claimed["zxid"] for line in acked)
    (expired,) = lines(tmp_path, "expired")
    assert told(expired) == [numbers[-1] + 1]


def test_an_ack_that_is_carried_out_twice_is_told_once(bus: Bus, connect: Connect, tmp_path: Path) -> None:
    """As after an answer that did not come in time: the entries are taken for being there still."""
    reader = connect(trail=tmp_path)
    cursor = opened(reader)
    begin = cursor.begin()
    bus.publish_many("users", texts(0, 3))
    end = cursor.advance(begin, wait=30.0)
    passage, seen = cursor._passage, cursor._look()
    assert passage is not None
    pieces = cursor.pieces(begin, end)
    again = passage.look(pieces, end.at)
    cursor.ack(end)
    for tell in again.values():
        tell(None)
    reader.close()
    assert len(seen.entries) == len(lines(tmp_path, "delivered")) == len(lines(tmp_path, "acked")) == 1


def test_what_others_removed_is_a_gap_in_the_trail(bus: Bus, connect: Connect, tmp_path: Path) -> None:
    """The reader is told, and so is the trail."""
    reader = connect(trail=tmp_path)
    cursor = opened(reader, strict=False)
    begin = cursor.begin()
    for text in texts(0, 3):
        bus.publish("users", text)
    end = cursor.advance(begin, wait=30.0)
    bus.parts.session.multi([Delete(cursor.pieces(begin, end)[1].path)])
    cursor._news.set()
    assert read(bus, cursor, begin, end, strict=False) == ["0", "2"]
    cursor.ack(end)
    reader.close()
    (gap,) = lines(tmp_path, "gap")
    assert "removed and not read here" in gap["reason"]
    assert len(lines(tmp_path, "delivered")) == 2
