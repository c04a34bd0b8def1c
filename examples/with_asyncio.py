"""The same bus on an event loop: handlers and loops that await, a stream, and time-outs that lose nothing.

python with_asyncio.py [HOST:PORT]
"""

import asyncio
import os
import sys

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")


async def drop(message: zkms.Message) -> None:
    """A handler may await; the message is acknowledged when it returns."""
    await asyncio.sleep(0.01)
    print("dropped user", message.data)


async def main() -> None:
    """One bus for the whole program is enough."""
    async with zkms.aio.connect(HOSTS, root=ROOT) as bus:
        users = await bus.subscribe("users", drop)
        receipt = await bus.publish("users", 42)
        await receipt.wait(timeout=5.0)
        print("acked by", len(receipt.acked), "of 1")
        await users.unsubscribe()

        async with bus.subscribe("prices") as prices:
            try:
                await asyncio.wait_for(prices.get(), 0.1)
            except TimeoutError:
                print("no price yet")  # a wait that is cancelled takes no message with it

            async with bus.publisher("prices") as stream:
                for price in range(3):
                    await stream.send(price)

            async for message in prices:
                print("price", message.data)
                if message.data == 2:
                    break


asyncio.run(main())
