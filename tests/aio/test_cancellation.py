"""Cancelling at every await: nothing is lost, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import zkms
import zkms.aio
from zkms import Message
from zkms.aio import connecting
from zkms.aio.feeds import LiveFeed
from zkms.server.server import Server

from .conftest import Connect, run, until


async def cancelled(task: asyncio.Task[Any]) -> bool:
    """Cancel a task and wait for its end; whether it was cancelled and had no result."""
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


async def after_turns(turns: int) -> None:
    """Let the loop go round so many times."""
    for _ in range(turns):
        await asyncio.sleep(0)


# -- get ---------------------------------------------------------------------------------------------------------------


async def check_cancelled_gets_lose_nothing(connect: Connect) -> None:
    """Fail unless every message is got once, in order, although most calls are cancelled at some moment."""
    chance = random.Random(1)
    async with connect() as bus, connect() as other:
        sub = await bus.subscribe("users", prefetch=50)
        publishing = asyncio.create_task(_publish_slowly(other, 400))
        got: list[int] = []
        async with asyncio.timeout(60):
            while len(got) < 400:
                task = asyncio.create_task(sub.fetch(chance.choice([1, 1, 3]), timeout=2))
                if chance.random() < 0.7:
                    await after_turns(chance.randrange(6))
                    if chance.random() < 0.3:
                        await asyncio.sleep(0.001)
                    task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    if not task.result() and publishing.done():
                        break  # there are no more
                    got += [message.data for message in task.result()]
        await publishing
        assert got == list(range(400))


async def _publish_slowly(bus: zkms.aio.Bus, count: int) -> None:
    for number in range(0, count, 4):
        await bus.publish("users", number)
        await bus.publish_many("users", range(number + 1, number + 4))


def test_a_cancelled_get_loses_no_message(connect: Connect) -> None:
    """At whatever moment it is cancelled: the next one gets it."""
    run(check_cancelled_gets_lose_nothing(connect))


def test_an_await_after_taking_would_lose_messages(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking the mechanism on purpose: a pause between taking an entry and returning it is noticed."""
    following = LiveFeed.next

    async def paused(self: LiveFeed, deadline: float | None) -> Any:
        unpacked = await following(self, deadline)
        await after_turns(2)
        return unpacked

    monkeypatch.setattr(LiveFeed, "next", paused)
    with pytest.raises(AssertionError):
        run(check_cancelled_gets_lose_nothing(connect))


def test_a_cancelled_get_loses_no_gap(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a worker to open is waited for by the next call, and its callback is called once."""

    async def main() -> None:
        gaps: list[zkms.Gap] = []
        async with connect() as bus, connect() as other:
            sub = await bus.subscribe("few", limit=10, on_gap=gaps.append)
            for number in range(15):
                await other.publish("few", number)
            got: list[int] = []
            async with asyncio.timeout(60):
                while not gaps:
                    task = asyncio.create_task(sub.get())
                    await after_turns(3)
                    await cancelled(task)
                    if not task.cancelled():
                        got.append(task.result().data)
            await other.publish("few", "after")
            assert (await sub.get(timeout=10)).data == "after"
            assert got == list(range(10))
            assert len(gaps) == 1

    run(main())


def test_a_callback_that_has_begun_goes_on_when_a_get_is_cancelled(connect: Connect) -> None:
    """A gap must not get lost because whoever happened to wait for the next message gave up."""

    async def main() -> None:
        began, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def on_gap(_gap: zkms.Gap) -> None:
            began.set()
            await go.wait()
            ended.set()

        async with connect() as bus, connect() as other:
            sub = await bus.subscribe("few", limit=10, on_gap=on_gap)
            for number in range(15):
                await other.publish("few", number)
            taking = asyncio.create_task(take_until(sub, "after"))
            await asyncio.wait_for(began.wait(), 30)
            await cancelled(taking)
            taking = asyncio.create_task(take_until(sub, "after"))
            await other.publish("few", "after")
            await after_turns(5)
            assert not taking.done(), "what came after the gap is handed out after its callback"
            go.set()
            await asyncio.wait_for(taking, 30)
            assert ended.is_set()

    async def take_until(sub: zkms.aio.Subscription, last: str) -> None:
        while (message := await sub.get()) is not None and message.data != last:
            pass

    run(main())


def test_a_cancelled_async_for_can_be_taken_up_again(connect: Connect) -> None:
    """The message that was in the loop's hands is acked when it comes back; none is skipped."""

    async def main() -> None:
        got: list[int] = []
        async with connect() as bus, connect() as other:
            sub = await bus.subscribe("users")

            async def consume() -> None:
                async for message in sub:
                    got.append(message.data)
                    await asyncio.sleep(0)

            receipts = []
            for number in range(20):
                consuming = asyncio.create_task(consume())
                receipts.append(await other.publish("users", number))
                await until(lambda count=number: len(got) > count)
                assert await cancelled(consuming)
            assert got == list(range(20))
            assert [bool((await receipt.wait(timeout=10)).acked) for receipt in receipts[:-1]] == [True] * 19

    run(main())


def test_a_get_whose_time_is_over_takes_none(connect: Connect) -> None:
    """asyncio.timeout() and wait_for() around it as well as its own."""

    async def main() -> None:
        async with connect() as bus:
            sub = await bus.subscribe("users")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sub.get(), 0.05)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await sub.get()
            waiting = [asyncio.create_task(sub.get(timeout=0.1)) for _ in range(5)]
            assert await asyncio.gather(*waiting) == [None] * 5
            await bus.publish("users", "still here")
            assert (await sub.get(timeout=10)).data == "still here"

    run(main())


def test_several_tasks_share_a_subscription(connect: Connect) -> None:
    """Each message goes to one of them, also while some are cancelled."""

    async def main() -> None:
        got: list[int] = []
        async with connect() as bus:
            sub = await bus.subscribe("users")

            async def take() -> None:
                while True:
                    got.append((await sub.get()).data)
                    await asyncio.sleep(0)

            tasks = [asyncio.create_task(take()) for _ in range(6)]
            await bus.publish_many("users", range(500))
            await asyncio.gather(*(cancelled(task) for task in tasks[:3]))
            await bus.publish_many("users", range(500, 1000))
            await until(lambda: len(got) == 1000)
            assert sorted(got) == list(range(1000))
            await asyncio.gather(*(cancelled(task) for task in tasks[3:]))

    run(main())


# -- opening -----------------------------------------------------------------------------------------------------------


def threads() -> set[threading.Thread]:
    """Those that run now, but for asyncio's own."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio")}


@pytest.mark.parametrize("seconds", [0, 0.001, 0.01, 0.03, 0.1], ids=str)
def test_connecting_can_be_cancelled_at_any_moment(connect: Connect, seconds: float) -> None:
    """No client in ZooKeeper, no thread in the process."""

    async def main() -> None:
        before = threads()
        async with connect() as witness:
            with_witness = threads()

            async def use() -> None:
                async with connect():
                    await asyncio.sleep(60)

            using = asyncio.create_task(use())
            await asyncio.sleep(seconds)
            assert await cancelled(using)
            await until(lambda: threads() <= with_witness, "the threads' end")
            async with asyncio.timeout(30):
                while [info.client for info in await witness.clients()] != [witness.client_id]:
                    await asyncio.sleep(0.01)
        await until(lambda: threads() <= before, "the witness's end")

    run(main())


def test_connecting_to_a_server_that_says_nothing_can_be_cancelled() -> None:
    """It does not take the time that connecting would have had."""

    async def main() -> None:
        before = threads()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), zkms.aio.connect(f"127.0.0.1:{port}", connect_timeout=60):
                    pass
            assert time.monotonic() - began < 30
        await until(lambda: threads() <= before, "the threads' end")

    run(main())


def test_without_the_undoing_a_connection_would_stay(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking the mechanism on purpose: then the client is seen in ZooKeeper."""
    opened: list[zkms.Bus] = []
    go = threading.Event()
    make = connecting._Opener.open

    def slowly(self: connecting._Opener) -> zkms.Bus:
        bus = make(self)
        opened.append(bus)
        assert go.wait(60)
        return bus

    async def main() -> None:
        async with connect() as witness:
            monkeypatch.setattr(connecting._Opener, "open", slowly)
            monkeypatch.setattr(connecting._Opener, "undo", lambda _self, _job: go.set())
            opening = asyncio.create_task(_open(connect))
            await until(lambda: opened)
            assert await cancelled(opening)
            assert len(await witness.clients()) == 2
            await asyncio.to_thread(opened[0].close)

    run(main())


async def _open(connect: Connect) -> zkms.aio.Bus:
    return await connect()


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 40])
@pytest.mark.parametrize("handler", [None, print], ids=["pull", "push"])
def test_subscribing_can_be_cancelled_at_any_moment(connect: Connect, turns: int, handler: Any) -> None:
    """No registration and no queue stays, and the topic can be subscribed to right after."""

    async def main() -> None:
        async with connect() as bus:

            async def subscribe() -> None:
                async with bus.subscribe("users", handler):
                    await asyncio.sleep(60)

            for _ in range(5):
                task = asyncio.create_task(subscribe())
                await after_turns(turns)
                assert await cancelled(task)
            async with bus.subscribe("users") as sub:
                assert [info.subscription for info in await bus.subscriptions("users")] == [sub.id]
                assert [info.subscription for info in await bus.queues()] == [sub.id]
            assert await bus.queues() == []

    run(main())


# -- publishing and receipts -------------------------------------------------------------------------------------------


def test_a_publish_that_is_cancelled_before_it_is_sent_never_is(connect: Connect) -> None:
    """And those that travel with it are."""

    async def main() -> None:
        async with connect() as bus:
            sub = await bus.subscribe("users")
            first = asyncio.create_task(bus.publish("users", "first"))
            await after_turns(3)
            others = [asyncio.create_task(bus.publish("users", number)) for number in range(10)]
            await after_turns(1)
            for task in others[::2]:
                task.cancel()
            await asyncio.gather(first, *others, return_exceptions=True)
            stored = [number for number, task in enumerate(others) if not task.cancelled()]
            assert stored == [1, 3, 5, 7, 9]
            await bus.publish("users", "last")
            got = [(await sub.get(timeout=10)).data]
            while got[-1] != "last":
                got.append((await sub.get(timeout=10)).data)
            # One of the cancelled may have been on its way: then it is stored, and that is all it means.
            assert [data for data in got if data in stored] == stored
            assert got[0] == "first"

    run(main())


def test_publish_many_sends_no_more_when_it_is_cancelled(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had sent is stored, whole frames of it."""
    monkeypatch.setattr("zkms.publish.budget.MAX_PER_FRAME", 10)

    async def main() -> None:
        taken = 0

        async def endless() -> AsyncIterator[int]:
            nonlocal taken
            while True:
                yield taken
                taken += 1
                await asyncio.sleep(0)

        async with connect() as bus:
            sub = await bus.subscribe("users")
            publishing = asyncio.create_task(bus.publish_many("users", endless()))
            await until(lambda: taken > 50)
            assert await cancelled(publishing)
            await bus.publish("users", "last")
            got: list[Any] = []
            while "last" not in got:
                got.append((await sub.get(timeout=10)).data)
            assert got[:-1] == list(range(len(got) - 1))
            assert (len(got) - 1) % 10 == 0
            assert len(got) <= taken + 1

    run(main())


def test_waiting_for_a_receipt_can_be_cancelled_and_begun_again(connect: Connect) -> None:
    """By several tasks at once."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            sub = await other.subscribe("users", ack="manual")
            receipt = await bus.publish("users", 1)
            for turns in range(8):
                task = asyncio.create_task(receipt.wait())
                await after_turns(turns * 2)
                assert await cancelled(task)
            waiting = [asyncio.create_task(receipt.wait(timeout=30)) for _ in range(10)]
            message = await sub.get(timeout=10)
            await asyncio.sleep(0.02)
            message.ack()
            assert {each.acked for each in await asyncio.gather(*waiting)} == {(sub.id,)}

    run(main())


# -- closing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 2, 5, 20])
def test_closing_goes_on_when_it_is_cancelled(connect: Connect, turns: int) -> None:
    """Nothing of the bus stays in ZooKeeper, however impatient the one who closed it."""

    async def main() -> None:
        async with connect() as witness:
            bus = await connect()
            sub = await bus.subscribe("users")
            unsubscribing = asyncio.create_task(sub.unsubscribe())
            await after_turns(turns)
            await cancelled(unsubscribing)
            await bus.subscribe("prices", lambda message: None)
            closing = asyncio.create_task(bus.close())
            await after_turns(turns)
            await cancelled(closing)
            async with asyncio.timeout(30):
                while await witness.queues() or len(await witness.clients()) > 1:
                    await asyncio.sleep(0.01)
            with pytest.raises(zkms.Closed):
                await bus.topics()
            await bus.close()

    run(main())


def test_a_program_that_is_interrupted_leaves_nothing_behind(connect: Connect) -> None:
    """Its main task is cancelled in the middle of a stream: `async with` closes all."""

    async def main() -> None:
        before = threads()
        async with connect() as witness:
            heard: list[Any] = []

            async def listen(users: zkms.aio.Subscription) -> None:
                async for message in users:
                    heard.append(message)  # noqa: PERF401 - to be looked at in between

            async def program() -> None:
                async with connect() as bus, bus.subscribe("users") as users, asyncio.TaskGroup() as group:
                    group.create_task(_publish_slowly(bus, 100_000))
                    group.create_task(listen(users))

            running = asyncio.create_task(program())
            await until(lambda: len(heard) > 20)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            assert [info.client for info in await witness.clients()] == [witness.client_id]
            assert await witness.queues() == []
        await until(lambda: threads() <= before, "the threads' end")

    run(main())


def test_a_busy_handler_is_cancelled_when_its_time_is_over(connect: Connect) -> None:
    """It can clean up; the subscription is given up whether it does or not."""

    async def main() -> None:
        ends: list[str] = []
        begun = asyncio.Event()

        async def polite(message: Message) -> None:
            begun.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                ends.append("cleaned up")
                raise

        async def stubborn(message: Message) -> None:
            begun.set()
            while "let go" not in ends:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)

        async with connect() as bus:
            for handler in (polite, stubborn):
                sub = await bus.subscribe("users", handler)
                begun.clear()
                await bus.publish("users", 1)
                await begun.wait()
                began = time.monotonic()
                await sub.unsubscribe(timeout=0.1)
                assert time.monotonic() - began < 20
                assert await bus.queues() == []
            assert ends == ["cleaned up"]
            ends.append("let go")

    run(main())


def test_back_pressure_is_kept(connect: Connect, zookeeper: Server) -> None:
    """A handler that is slow leaves messages in ZooKeeper: no more than `prefetch` are taken out of it."""

    async def main() -> None:
        go = asyncio.Event()
        heard: list[int] = []

        async def handler(message: Message) -> None:
            await go.wait()
            heard.append(message.data)

        async with connect() as bus, connect() as other:
            sub = await bus.subscribe("users", handler, prefetch=10)
            for number in range(100):
                await other.publish("users", number)
            assert sub._source is not None
            await until(lambda: len(sub._source.inbox._items) > 5)
            await asyncio.sleep(0.1)
            assert len(sub._source.inbox._items) <= 10
            go.set()
            await until(lambda: len(heard) == 100)
            assert heard == list(range(100))

    run(main())
