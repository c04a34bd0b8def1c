"""bus.publisher() on an event loop: what tests/publish/test_topic_publisher.py does not show."""

from __future__ import annotations

import asyncio
import threading

import pytest

import zkms
from zkms import Closed, InvalidArgument
from zkms.server.server import Server
from zkms.testing import Proxy

from .conftest import Connect, run, until


def streams() -> list[str]:
    """Threads of publishers."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("zkms-stream-")]


def test_it_reads_as_the_contract_says(connect: Connect) -> None:
    """`async with`, send, and the result of each message where it is wanted."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            sub = await other.subscribe("prices")
            async with bus.publisher("prices", linger=0.001) as prices:
                sent = [await prices.send(number) for number in range(1000)]
                receipt = await sent[-1].result(timeout=20)
                assert sent[0].done()
            got = []
            while len(got) < 1000:
                got += [message.data for message in await sub.fetch(1000, timeout=10)]
            assert got == list(range(1000))
            assert (await receipt.wait(timeout=10)).acked == (sub.id,)
            assert receipt.seq == (await sent[0].result()).seq + 999
        assert streams() == []

    run(main())


def test_a_send_that_waits_for_room_can_be_cancelled(connect: Connect, zookeeper: Server) -> None:
    """It is not sent; those around it are, in order, and never more than `max_in_flight` at once."""

    async def main() -> None:
        with Proxy(zookeeper.hosts) as proxy:
            async with connect() as listener, connect(hosts=proxy.hosts) as bus:
                sub = await listener.subscribe("prices")
                async with bus.publisher("prices", max_in_flight=5, linger=0.0, timeout=60.0) as prices:
                    proxy.delay(0.1)
                    sends = [asyncio.create_task(prices.send(number)) for number in range(40)]
                    await asyncio.sleep(0.05)
                    waiting = [number for number, task in enumerate(sends) if not task.done()]
                    assert waiting[0] >= 5
                    for number in waiting[::3]:
                        sends[number].cancel()
                    await asyncio.wait(sends)
                    proxy.delay(0)
                kept = [number for number, task in enumerate(sends) if not task.cancelled()]
                assert len(kept) == 40 - len(waiting[::3])
                assert [(await sub.get(timeout=10)).data for _ in kept] == kept
                assert await sub.get(timeout=0.1) is None

    run(main())


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 30])
def test_opening_can_be_cancelled_at_any_moment(connect: Connect, turns: int) -> None:
    """No thread stays, and the bus closes as ever."""

    async def main() -> None:
        async with connect() as bus:

            async def publish() -> None:
                async with bus.publisher("prices"):
                    await asyncio.sleep(60)

            publishing = asyncio.create_task(publish())
            for _ in range(turns):
                await asyncio.sleep(0)
            publishing.cancel()
            await asyncio.wait([publishing])
            await until(lambda: streams() == [], "the end of the publisher's thread")

    run(main())


def test_a_publisher_is_opened_before_it_is_used(connect: Connect) -> None:
    """Once; and it ends with its bus."""

    async def main() -> None:
        bus = await connect()
        await bus.subscribe("prices")
        prices = bus.publisher("prices")
        with pytest.raises(Closed, match="async with"):
            await prices.send(1)
        await prices
        with pytest.raises(InvalidArgument, match="again"):
            await prices
        await prices.send(1)
        await prices.flush(timeout=20)
        with pytest.raises(zkms.InvalidMessage):
            await prices.send(object())
        await bus.close()
        with pytest.raises(Closed):
            await prices.send(2)
        await prices.close()

    run(main())
