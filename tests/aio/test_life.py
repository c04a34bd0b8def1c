"""Closing in any order, and event loops that end before their bus does."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

import zkms
import zkms.aio
from tests.support.buses import Eventually
from zkms import Closed, Message, NotSubscribed, UsedInAnotherLoop
from zkms.server.server import Server
from zkms.testing import Proxy, expire

from .conftest import Connect, run, until


def test_whoever_waits_for_a_message_is_told_of_the_end(connect: Connect) -> None:
    """get() has None, `async for` ends, and later calls say why, whether subscription or bus was closed."""

    async def main() -> None:
        for whole_bus in (False, True):
            async with connect() as bus:
                sub = await bus.subscribe("users")

                async def iterate(sub: zkms.aio.Subscription = sub) -> list[Message]:
                    return [message async for message in sub]

                waiting = asyncio.gather(sub.get(), iterate(), sub.fetch(5), sub.get(timeout=60))
                await asyncio.sleep(0.05)
                await (bus.close() if whole_bus else sub.unsubscribe())
                assert await asyncio.wait_for(waiting, 20) == [None, [], [], None]
                with pytest.raises(NotSubscribed):
                    await sub.get()
                with pytest.raises(NotSubscribed):
                    await anext(aiter(sub))

    run(main())


def test_a_closed_bus_says_so(connect: Connect) -> None:
    """Every call, with one error; closing again is fine, also by several tasks at once."""

    async def main() -> None:
        bus = await connect()
        sub = await bus.subscribe("users", print)
        await asyncio.gather(bus.close(), bus.close(), sub.unsubscribe())
        await bus.close()
        await sub.close()
        for call in (
            lambda: bus.publish("users", 1),
            lambda: bus.publish_many("users", [1]),
            bus.topics,
            bus.clients,
            bus.queues,
            lambda: bus.subscriptions("users"),
        ):
            with pytest.raises(Closed):
                await call()
        with pytest.raises(Closed):
            bus.subscribe("users")

    run(main())


def test_what_is_left_open_in_a_block_may_be_closed_with_the_bus(connect: Connect) -> None:
    """Leaving the block afterwards is fine."""

    async def main() -> None:
        async with (
            connect() as bus,
            bus.subscribe("users"),
            bus.subscribe("prices", print),
            bus.publisher("users"),
            zkms.aio.Cache(bus, "users"),
        ):
            await bus.close()

    run(main())


def test_closing_finishes_what_is_in_hand(connect: Connect) -> None:
    """Publishes that were begun are stored, and the handler finishes its message."""

    async def main() -> None:
        async with connect() as witness:
            sub = await witness.subscribe("out", ack="manual")
            handling = asyncio.Event()
            handled: list[Any] = []

            async def handler(message: Message) -> None:
                handling.set()
                await asyncio.sleep(0.2)
                handled.append(message.data)

            bus = await connect()
            await bus.subscribe("in", handler)
            await witness.publish("in", "x")
            await handling.wait()
            publishes = [asyncio.create_task(bus.publish("out", number)) for number in range(200)]
            await asyncio.sleep(0)
            await bus.close()
            assert handled == ["x"]
            assert all(isinstance(result, zkms.aio.Receipt) for result in await asyncio.gather(*publishes))
            got: list[Message] = []
            while len(got) < 200:
                got += await sub.fetch(200, timeout=10)
            assert [message.data for message in got] == list(range(200))

    run(main())


def test_subscriptions_that_are_being_opened_are_closed_too(connect: Connect) -> None:
    """Nothing of them stays, and whoever awaits them is not left waiting."""

    async def main() -> None:
        async with connect() as witness:
            for turns in range(6):
                bus = await connect()
                subs = [bus.subscribe(f"topic {number}") for number in range(3)]

                async def opened(sub: zkms.aio.Subscription) -> zkms.aio.Subscription:
                    return await sub

                opening = [asyncio.create_task(opened(sub)) for sub in subs]
                for _ in range(turns):
                    await asyncio.sleep(0)
                await asyncio.wait_for(bus.close(), 30)
                await asyncio.wait_for(asyncio.gather(*opening, return_exceptions=True), 30)
                assert await witness.queues() == []

    run(main())


def test_an_expiry_is_survived_and_announced(connect: Connect) -> None:
    """As with threads: old messages, one gap, new messages."""

    async def main() -> None:
        heard: list[Any] = []

        async def gap(gap: zkms.Gap) -> None:
            heard.append("gap")

        async with connect() as bus, connect() as other:
            await bus.subscribe("users", lambda message: heard.append(message.data), on_gap=gap)
            await other.publish("users", "before")
            await until(lambda: heard == ["before"])
            await asyncio.to_thread(expire, bus.threaded)
            await until(lambda: "gap" in heard)
            await other.publish("users", "after")
            await until(lambda: "after" in heard)
            assert heard == ["before", "gap", "after"]

    run(main())


# -- the loop's end ----------------------------------------------------------------------------------------------------


def test_a_bus_belongs_to_its_event_loop(connect: Connect) -> None:
    """In another one every call says so, and close() works."""
    bus, sub, receipt = asyncio.run(_left_open(connect))

    async def elsewhere() -> None:
        for call in (
            lambda: bus.publish("users", 1),
            lambda: bus.publish_many("users", [1]),
            bus.topics,
            sub.get,
            lambda: anext(aiter(sub)),
            sub.unsubscribe,
            lambda: receipt.wait(timeout=1),
        ):
            with pytest.raises(UsedInAnotherLoop, match=r"closed.*connect"):
                await call()
        with pytest.raises(UsedInAnotherLoop):
            bus.subscribe("prices")
        await bus.close()
        await bus.close()

    run(elsewhere())
    assert bus.threaded.parts.session.state.value == "closed"


async def _left_open(connect: Connect) -> tuple[zkms.aio.Bus, zkms.aio.Subscription, zkms.aio.Receipt]:
    bus = await connect()
    sub = await bus.subscribe("users")
    return bus, sub, await bus.publish("users", 1)


def test_two_loops_that_run_at_once_have_a_bus_each(connect: Connect) -> None:
    """The bus of one cannot be closed from the other while its loop lives."""

    async def main() -> None:
        async with connect() as bus:

            async def meddle() -> None:
                with pytest.raises(UsedInAnotherLoop, match="not the running one"):
                    await bus.close()

            await asyncio.to_thread(lambda: asyncio.run(meddle()))
            await bus.subscribe("users")
            await bus.publish("users", 1)

    run(main())


def test_a_loop_that_is_closed_under_the_bus_is_noticed(
    connect: Connect, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The next message finds it: an error tells what to do, the client leaves, and its threads end."""
    before = set(threading.enumerate())

    async def leave() -> zkms.aio.Bus:
        bus = await connect()
        await bus.subscribe("users", lambda message: None)
        return bus

    bus = asyncio.run(leave())

    async def publish() -> None:
        async with connect() as other:
            with caplog.at_level(logging.ERROR, "zkms.aio"):
                await other.publish("users", "is anybody there?", if_nobody="drop")
                deadline = time.monotonic() + 30
                while len(await other.clients()) > 1:
                    assert time.monotonic() < deadline, "the client whose loop is gone stays"
                    await asyncio.sleep(0.02)

    run(publish())
    eventually(lambda: bus.threaded.parts.session.state.value == "closed")
    assert "the event loop was closed before the bus was" in caplog.text
    eventually(lambda: set(threading.enumerate()) <= before, what="the threads' end")


def test_a_publish_waits_for_a_subscription_only_as_long_as_it_may(connect: Connect, zookeeper: Server) -> None:
    """What this bus subscribes to before it publishes, it hears; but a silent ZooKeeper may never answer."""

    async def main() -> None:
        with Proxy(zookeeper.hosts) as proxy:
            async with connect(hosts=proxy.hosts, request_timeout=30.0) as bus:
                proxy.black_hole()
                bus.subscribe("users", lambda message: None)
                began = time.monotonic()
                with pytest.raises(zkms.ConnectionLost):
                    await bus.publish("users", 1, timeout=0.2)
                assert time.monotonic() - began < 10
                proxy.heal()

    run(main())
