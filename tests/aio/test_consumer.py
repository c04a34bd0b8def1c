"""Durable subscriptions and groups on an event loop: what tests/consume, which runs on asyncio too, does not show."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

import zkms
import zkms.aio
from zkms import AlreadyAcked, InvalidArgument, LostOwnership, NotSubscribed, SubscriptionInUse
from zkms.aio import Message
from zkms.aio.calls import WORKERS
from zkms.consume.dispatcher import Dispatcher

from .conftest import Connect, run, until


async def taken(sub: zkms.aio.Consumer, count: int) -> list[Message]:
    """So many messages."""
    messages: list[Message] = []
    async with asyncio.timeout(30):
        while len(messages) < count:
            messages += await sub.fetch(count - len(messages))
    return messages


# -- how it reads ------------------------------------------------------------------------------------------------------


def test_it_reads_as_a_live_one_and_acks_are_awaited(connect: Connect) -> None:
    """await, async with, async for; `await message.ack()` returns when it is stored."""

    async def main() -> None:
        async with connect() as bus:
            async with bus.subscribe("orders", name="audit") as sub:
                assert sub.created
                assert (sub.id, sub.kind, sub.partitions) == ("audit", "durable", [0])
                await bus.publish_many("orders", range(6))
                message = await sub.get(timeout=30)
                assert message is not None
                await message.ack()
                with pytest.raises(AlreadyAcked):
                    await message.ack()
                two = await taken(sub, 2)
                await sub.ack(two)
                async for message in sub:
                    if message.data == 4:
                        break  # not acked: the loop did not come back
            again = await bus.subscribe("orders", name="audit")
            assert not again.created
            assert [message.data for message in await taken(again, 2)] == [4, 5]
            await again.unsubscribe()
            assert await bus.subscriptions("orders") == []
            with pytest.raises(NotSubscribed):
                await again.get()
            with pytest.raises(NotSubscribed):
                await again.unsubscribe()

    run(main())


def test_an_ack_that_nobody_awaits_is_made_all_the_same(connect: Connect) -> None:
    """It begins with the call; awaiting it tells when it is stored."""

    async def main() -> None:
        async with connect() as bus, bus.subscribe("orders", name="audit") as sub:
            receipt = await bus.publish("orders", 1)
            message = await sub.get(timeout=30)
            assert message is not None
            message.ack()
            await receipt.wait(30)
            assert receipt.acked == ("audit",)

    run(main())


def test_live_messages_are_acked_in_the_same_words(connect: Connect) -> None:
    """A program need not know which kind of subscription a message came from."""

    async def main() -> None:
        async with connect() as bus, bus.subscribe("users", ack="manual") as users:
            receipt = await bus.publish("users", 1)
            message = await users.get(timeout=30)
            assert message is not None
            await message.ack()
            await receipt.wait(30)
            assert len(receipt.acked) == 1
            with pytest.raises(InvalidArgument, match="is live"):
                await message.nak()

    run(main())


def test_a_second_reader_is_told_and_the_first_loses_what_is_taken_over(connect: Connect) -> None:
    """The errors are those of the threaded bus."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            sub = await bus.subscribe("orders", name="audit")
            await bus.publish("orders", 1)
            held = await sub.get(timeout=30)
            assert held is not None
            with pytest.raises(SubscriptionInUse):
                await other.subscribe("orders", name="audit")
            heir = await other.subscribe("orders", name="audit", takeover=True)
            with pytest.raises(LostOwnership):
                await held.ack()
            message = await heir.get(timeout=30)
            assert message is not None
            assert message.data == 1

    run(main())


# -- handlers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "plain"])
def test_what_a_handler_fails_at_is_tried_again_and_then_dead(connect: Connect, asynchronous: bool) -> None:
    """Each failure is told to on_error, on the loop; messages behind it wait, and come after."""

    async def main() -> None:
        seen: list[tuple[Any, int]] = []
        told: list[tuple[str, Any]] = []
        here = threading.get_ident()

        def plain(message: Message) -> None:
            assert threading.get_ident() == here
            seen.append((message.data, message.attempts))
            if message.data == "bad":
                raise ValueError("cannot be done")

        async def waiting(message: Message) -> None:
            await asyncio.sleep(0)
            plain(message)

        async def on_error(error: Exception, message: zkms.Message | None) -> None:
            assert threading.get_ident() == here
            told.append((str(error), None if message is None else message.data))

        async with connect() as bus:
            handler = waiting if asynchronous else plain
            await bus.subscribe("jobs", handler, name="worker", max_attempts=2, backoff=0.01, on_error=on_error)
            await bus.publish_many("jobs", ["good", "bad", "last"])
            await until(lambda: len(seen) == 4)
            assert seen == [("good", 1), ("bad", 1), ("bad", 2), ("last", 1)]
            await until(lambda: len(told) == 2)
            assert told == [("cannot be done", "bad")] * 2

    run(main())


def test_a_handler_is_never_entered_twice_and_gets_what_is_manual(connect: Connect) -> None:
    """With ack="manual", acks come when the program says so, from any task."""

    async def main() -> None:
        kept: list[Message] = []
        inside = 0

        async def handler(message: Message) -> None:
            nonlocal inside
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.001)
            kept.append(message)
            inside -= 1

        async with connect() as bus:
            await bus.create_group("jobs", "workers", partitions=2)
            sub = await bus.subscribe("jobs", handler, group="workers", ack="manual")
            receipts = await bus.publish_many("jobs", range(20), key=str)
            await until(lambda: len(kept) == 20)
            await asyncio.gather(*(message.ack() for message in kept[:10]))
            await sub.ack(kept[10:])
            await receipts[-1].wait(30)
            assert not receipts[-1].pending

    run(main())


def test_closing_waits_for_the_handler_and_cancels_one_that_hangs(connect: Connect) -> None:
    """What it was at is delivered again."""

    async def main() -> None:
        began = asyncio.Event()
        cancelled = asyncio.Event()

        async def hang(_message: Message) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with connect() as bus:
            sub = await bus.subscribe("jobs", hang, name="worker")
            await bus.publish("jobs", 1)
            await began.wait()
            await sub.close(timeout=0.1)
            assert cancelled.is_set()
            again = await bus.subscribe("jobs", name="worker")
            message = await again.get(timeout=30)
            assert message is not None
            assert message.data == 1

    run(main())


def test_a_time_to_run_that_is_over_takes_the_message_back(connect: Connect) -> None:
    """touch() prolongs it; afterwards the message is another's."""

    async def main() -> None:
        async with connect() as bus, bus.subscribe("jobs", group="w", partitions=1, ttr=1.0, backoff=0.01) as sub:
            await bus.publish("jobs", 1)
            first = await sub.get(timeout=30)
            assert first is not None
            await first.touch()
            second = await sub.get(timeout=30)
            assert second is not None
            assert (second.data, second.attempts) == (1, 2)
            with pytest.raises(LostOwnership):
                await first.ack()
            await second.ack()

    run(main())


# -- cancellation ------------------------------------------------------------------------------------------------------


def test_a_get_that_is_cancelled_takes_nothing(connect: Connect) -> None:
    """However it meets the message's arrival: every message comes once, in order."""

    async def main() -> None:
        async with connect() as bus, bus.subscribe("orders", name="audit") as sub:
            got: list[int] = []

            async def publish() -> None:
                for number in range(100):
                    await bus.publish("orders", number)

            publishing = asyncio.create_task(publish())
            while len(got) < 100:
                try:
                    message = await asyncio.wait_for(sub.get(), 0.002)
                except TimeoutError:
                    continue
                assert message is not None
                got.append(message.data)
                await message.ack()
            await publishing
            assert got == list(range(100))
            assert await sub.get(timeout=0) is None

    run(main())


async def cancelled_while_reserving(bus: zkms.aio.Bus, monkeypatch: pytest.MonkeyPatch) -> zkms.aio.Consumer:
    """A get() was cancelled that had taken a message, and waited until that was noted."""
    sub = await bus.subscribe("jobs", group="w", partitions=1, ttr=600.0)
    await until(lambda: sub.partitions == [0])
    await bus.publish_many("jobs", [1, 2], key=str)
    never: Future[None] = Future()
    with monkeypatch.context() as patch:
        take = Dispatcher.take_some
        patch.setattr(Dispatcher, "take_some", lambda dispatcher, _most: (take(dispatcher, 1)[0], never))
        getting = asyncio.create_task(sub.get())
        dispatcher = bus.threaded.parts.subscriptions.consumers["jobs", "w"].dispatchers[0]
        await until(lambda: dispatcher.in_flight == 1)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting
    return sub


def test_what_a_cancelled_get_had_taken_is_given_back_at_once(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when its time to run is over: the next get() has it, as the first attempt."""

    async def main() -> None:
        async with connect() as bus:
            sub = await cancelled_while_reserving(bus, monkeypatch)
            assert bus.threaded.parts.subscriptions.consumers["jobs", "w"].dispatchers[0].in_flight == 0
            messages = await taken(sub, 2)
            assert [(message.data, message.attempts) for message in messages] == [(1, 1), (2, 1)]

    run(main())


def test_without_giving_back_it_would_be_missing(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking it on purpose: the message stays in nobody's hands."""

    async def main() -> None:
        async with connect() as bus:
            monkeypatch.setattr(Dispatcher, "put_back", lambda _self, _message: None)
            sub = await cancelled_while_reserving(bus, monkeypatch)
            assert [message.data for message in await taken(sub, 1)] == [2]

    run(main())


def test_an_await_that_is_cancelled_keeps_the_place_and_frees_it_for_others(connect: Connect) -> None:
    """The subscription is closed in the background."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            opening = asyncio.create_task(asyncio.wait_for(bus.subscribe("orders", name="audit"), 30))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            sub = await bus.subscribe("orders", name="audit")  # waits for that
            await sub.close()
            await other.subscribe("orders", name="audit")

    run(main())


# -- limits ------------------------------------------------------------------------------------------------------------


def test_no_more_than_prefetch_is_in_hand_and_an_ack_makes_room(connect: Connect) -> None:
    """A get() that waits for room is woken by the ack of another task."""

    async def main() -> None:
        async with connect() as bus, bus.subscribe("orders", name="audit", prefetch=2) as sub:
            await bus.publish_many("orders", range(5))
            first, _second = await taken(sub, 2)
            assert await sub.get(timeout=0.1) is None
            getting = asyncio.create_task(sub.get())
            await asyncio.sleep(0)
            await first.ack()
            third = await asyncio.wait_for(getting, 30)
            assert third is not None
            assert third.data == 2

    run(main())


def test_messages_of_a_group_add_no_threads(connect: Connect) -> None:
    """Those that are there are the bus's few, and one for each subscription that keeps it a member."""

    async def main() -> None:
        done = 0

        async def handler(_message: Message) -> None:
            nonlocal done
            done += 1

        async with connect() as bus:
            await bus.subscribe("jobs", handler, group="workers", partitions=4)
            before = threading.active_count()
            await bus.publish_many("jobs", range(2000), key=str)
            await until(lambda: done == 2000)
            assert threading.active_count() <= before + WORKERS + 1

    run(main())


# -- transactions ------------------------------------------------------------------------------------------------------


def test_what_is_acked_and_what_is_published_is_one(connect: Connect) -> None:
    """At the end of the block both are stored; of one that raises, nothing is."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            orders, invoices = bus.subscribe("orders", name="billing"), other.subscribe("invoices", name="post")
            await orders
            await invoices
            await bus.publish_many("orders", [1, 2])
            first, second = await taken(orders, 2)
            async with bus.transaction() as tx:
                tx.ack(first)
                tx.publish("invoices", "of 1")
            assert [receipt.pending for receipt in tx.receipts] == [("post",)]
            with pytest.raises(KeyError):
                await fails(bus, second)
            assert [message.data for message in await taken(invoices, 1)] == ["of 1"]
            assert await invoices.get(timeout=0.2) is None
            await second.ack()
            with pytest.raises(AlreadyAcked):
                bus.transaction().ack(first)

    async def fails(bus: zkms.aio.Bus, message: Message) -> None:
        async with bus.transaction() as tx:
            tx.ack(message)
            tx.publish("invoices", "never")
            raise KeyError

    run(main())
