"""The bus on an event loop: how it reads, what runs where, and that it never blocks the loop or grows threads."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkms
import zkms.aio
from zkms import AlreadySubscribed, InvalidArgument, Message, NoSubscribers, NotSubscribed
from zkms.aio.calls import WORKERS, Calls
from zkms.server.server import Server

from .conftest import Connect, run, until


def test_it_reads_as_the_contract_says(connect: Connect) -> None:
    """`async with` connect, publish, and `async for` straight over subscribe()."""

    async def main() -> list[Any]:
        heard = []
        async with connect() as bus, connect() as other:

            async def publish() -> None:
                while not await other.subscriptions("users"):
                    await asyncio.sleep(0.01)
                for number in range(3):
                    await other.publish("users", number)

            publishing = asyncio.create_task(publish())
            async for message in bus.subscribe("users"):
                heard.append(message.data)
                if len(heard) == 3:
                    break
            await publishing
        return heard

    assert run(main()) == [0, 1, 2]


def test_a_subscription_can_be_awaited_entered_or_left_alone(connect: Connect) -> None:
    """Whichever way: what this bus publishes after subscribe() is heard."""

    async def main() -> None:
        async with connect() as bus:
            sub = await bus.subscribe("awaited")
            await bus.publish("awaited", 1)
            assert (await sub.get(timeout=10)).data == 1
            async with bus.subscribe("entered") as entered:
                await bus.publish("entered", 2)
                assert (await entered.get(timeout=10)).data == 2
            with pytest.raises(NoSubscribers):
                await bus.publish("entered", 3)
            with pytest.raises(NotSubscribed):
                await entered.get()
            heard: list[Any] = []
            bus.subscribe("left alone", lambda message: heard.append(message.data))
            await bus.publish("left alone", 4)
            await bus.publish_many("left alone", [5, 6])
            await until(lambda: heard == [4, 5, 6])
            assert {info.topic for info in await bus.topics()} >= {"awaited", "left alone"}
            assert len(await bus.queues()) == 2
            assert [info.client for info in await bus.clients()] == [bus.client_id]

    run(main())


@pytest.mark.parametrize(
    "method",
    [
        *("publish", "publish_many", "publisher", "request", "subscribe", "create_group", "transaction"),
        *("topics", "queues", "delayed", "clients", "close"),
    ],
)
def test_the_arguments_are_those_of_the_threaded_bus(method: str) -> None:
    """What one has, the other has: whoever adds an argument to one adds it to both."""
    threaded = inspect.signature(getattr(zkms.Bus, method)).parameters
    assert list(inspect.signature(getattr(zkms.aio.Bus, method)).parameters) == list(threaded)


def test_connect_takes_what_the_threaded_one_takes() -> None:
    """With the same defaults."""
    threaded, asynchronous = inspect.signature(zkms.connect), inspect.signature(zkms.aio.connect)
    assert list(asynchronous.parameters.values()) == list(threaded.parameters.values())


@pytest.mark.parametrize("name", zkms.aio.__all__)
def test_every_public_name_is_documented_and_typed(name: str) -> None:
    """As those of zkms are."""
    thing = getattr(zkms.aio, name)
    assert inspect.getdoc(thing)
    members = vars(thing) if inspect.isclass(thing) else {name: thing}
    for member, value in members.items():
        value = value.fget if isinstance(value, property) else value
        if inspect.isfunction(value) and not member.startswith("_"):
            assert value.__doc__, f"{name}.{member} has no docstring"
            signature = inspect.signature(value)
            assert signature.return_annotation is not inspect.Signature.empty
            assert all(p.annotation is not p.empty for p in signature.parameters.values() if p.name != "self")


# -- handlers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "plain"])
def test_handlers_run_on_the_event_loop_in_order(connect: Connect, asynchronous: bool) -> None:
    """One message after the other, also if the handler waits in between; acked when it has returned."""

    async def main() -> None:
        heard: list[int] = []
        inside = 0

        async def handler(message: Message) -> None:
            nonlocal inside
            inside += 1
            assert inside == 1
            if message.data % 100 == 0:
                await asyncio.sleep(0.001)
            heard.append(message.data)
            inside -= 1

        def plain(message: Message) -> None:
            assert threading.current_thread() is threading.main_thread()
            heard.append(message.data)

        async with connect() as bus, connect() as publisher:
            sub = await bus.subscribe("users", handler if asynchronous else plain)
            receipts = await publisher.publish_many("users", range(1000))
            await until(lambda: len(heard) == 1000)
            assert heard == list(range(1000))
            assert (await receipts[-1].wait(timeout=10)).acked == (sub.id,)

    run(main())


def test_callbacks_may_be_coroutines_and_come_in_order(connect: Connect) -> None:
    """What cannot be decoded is told between the messages around it, and a callback that raises stops nothing."""

    async def main() -> None:
        heard: list[Any] = []

        async def handler(message: Message) -> None:
            await asyncio.sleep(0)
            heard.append(message.data)
            if message.data == 3:
                raise LookupError("three")

        async def failed(error: Exception, message: Message | None) -> None:
            await asyncio.sleep(0)
            heard.append("cannot decode" if message is None else str(error))
            raise RuntimeError("a broken callback")

        async with connect() as bus:
            bus.subscribe("users", handler, type=int, on_error=failed)
            await bus.publish_many("users", [1, "two", 3, 4])
            await until(lambda: 4 in heard)
            assert heard == [1, "cannot decode", 3, "three", 4]

    run(main())


def test_what_is_not_ours_is_set_aside_and_reported(connect: Connect, zookeeper: Server) -> None:
    """On a worker, as that asks ZooKeeper; what comes behind it is delivered after the report."""

    async def main() -> None:
        heard: list[Any] = []
        async with connect() as bus:
            sub = await bus.subscribe(
                "users",
                lambda message: heard.append(message.data),
                on_error=lambda error, _message: heard.append(type(error).__name__),
            )
            client = KazooClient(zookeeper.hosts)
            await asyncio.to_thread(client.start, 20)
            queue = bus.threaded.parts.tree.queue(sub.id, "users")
            await bus.publish("users", "before")
            for name in ("stranger", "f.1.7."):
                await asyncio.to_thread(client.create, f"{queue}/{name}", b"garbage", sequence=True)
            await bus.publish("users", "after")
            await until(lambda: "after" in heard)
            await asyncio.to_thread(client.stop)
            client.close()
        assert heard[0] == "before"
        assert heard.count("CannotDecode") == 2

    run(main())


def test_a_handler_may_use_the_bus(connect: Connect) -> None:
    """Publish, subscribe, unsubscribe itself, even close the bus: nobody waits for himself."""

    async def main() -> None:
        done = asyncio.Event()
        bus = await connect()

        async def relay(message: Message) -> None:
            await bus.publish("second", message.data)

        async def last(message: Message) -> None:
            await second.unsubscribe()
            await second.unsubscribe()
            await bus.subscribe("third", close)
            await bus.publish("third", "end")

        async def close(message: Message) -> None:
            await bus.close()
            await bus.close()
            done.set()

        began = time.monotonic()
        bus.subscribe("first", relay)
        second = bus.subscribe("second", last)
        await bus.publish("first", "x")
        await asyncio.wait_for(done.wait(), 30)
        assert time.monotonic() - began < 20
        with pytest.raises(zkms.Closed):
            await bus.publish("first", 1)

    run(main())


def test_something_the_handler_awaits_may_be_cancelled(connect: Connect) -> None:
    """That is the handler's error, and the subscription goes on."""

    async def main() -> None:
        errors: list[Exception] = []
        heard: list[Any] = []

        async def handler(message: Message) -> None:
            if message.data == 1:
                task = asyncio.create_task(asyncio.sleep(60))
                task.cancel()
                await task
            heard.append(message.data)

        async with connect() as bus:
            bus.subscribe("users", handler, on_error=lambda error, _message: errors.append(error))
            await bus.publish_many("users", range(3))
            await until(lambda: heard == [0, 2])
            assert "Cancelled" in str(errors[0])

    run(main())


def test_whatever_a_handler_raises_the_next_message_is_handled(connect: Connect) -> None:
    """Also what is no Exception, from a handler or from a callback."""

    class Odd(BaseException):
        pass

    async def main() -> None:
        errors: list[str] = []
        heard: list[Any] = []

        def on_error(error: Exception, _message: Message | None) -> None:
            errors.append(str(error))
            raise Odd("again")

        async def handler(message: Message) -> None:
            heard.append(message.data)
            if message.data == 1:
                raise Odd("once")

        async with connect() as bus:
            bus.subscribe("users", handler, on_error=on_error)
            await bus.publish_many("users", range(3))
            await until(lambda: heard == [0, 1, 2])
            assert errors == ["Odd('once')"]

    run(main())


def test_a_delivery_that_is_cancelled_from_outside_unsubscribes(connect: Connect) -> None:
    """As by a program that cancels all tasks: nobody waits for the acks of one who takes no more messages."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            sub = await bus.subscribe("users", lambda message: None)
            assert sub.task is not None
            sub.task.cancel()
            await until(lambda: sub.over)
            with pytest.raises(NoSubscribers):
                await other.publish("users", 1)
            await bus.subscribe("users", lambda message: None)

    run(main())


def test_an_async_for_that_is_left_gives_its_subscription_up(connect: Connect) -> None:
    """If it went straight into what subscribe() returned; one that was awaited stays, for whoever has it in hand."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            publishing = asyncio.create_task(publish_on(other))
            async for message in bus.subscribe("users"):
                assert message.topic == "users"
                break
            with pytest.raises(ZeroDivisionError):
                await fail(bus)
            async with bus.subscribe("users") as held:
                async for _ in held:
                    break
                assert await held.get(timeout=30) is not None
            publishing.cancel()
            await until(lambda: bus._subscriptions["users", None].over)
            assert await other.subscriptions("users") == []

    async def fail(bus: zkms.aio.Bus) -> None:
        async for message in bus.subscribe("users"):
            message.data / 0

    async def publish_on(bus: zkms.aio.Bus) -> None:
        while True:
            await bus.publish("users", 1, if_nobody="drop")
            await asyncio.sleep(0.01)

    run(main())


# -- publish -----------------------------------------------------------------------------------------------------------


def test_publishes_that_are_awaited_together_share_transactions(connect: Connect) -> None:
    """Each has its own number and receipt, in the order of the calls, and the subscriber hears them in that order."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            sub = await other.subscribe("users", ack="manual")
            receipts = await asyncio.gather(*(bus.publish("users", number) for number in range(500)))
            assert [receipt.seq for receipt in receipts] == list(range(receipts[0].seq, receipts[0].seq + 500))
            (queue,) = await bus.queues()
            assert 0 < queue.entries < 250
            messages: list[Message] = []
            while len(messages) < 500:
                messages += await sub.fetch(500, timeout=10)
            assert [message.data for message in messages] == list(range(500))

    run(main())


def test_one_that_fails_does_not_fail_those_that_travel_with_it(connect: Connect) -> None:
    """What cannot be sent is refused before, and limits of queues are kept by frames that fit."""

    async def main() -> None:
        async with connect() as bus:
            sub = await bus.subscribe("users", limit=5)
            calls = [bus.publish("users", object() if number % 10 == 3 else number) for number in range(30)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(result, zkms.InvalidMessage) for result in results] == [n % 10 == 3 for n in range(30)]
            assert await sub.get(timeout=10) is not None
            nobody = await asyncio.gather(bus.publish("nobody", 1), bus.publish("users", 2), return_exceptions=True)
            assert isinstance(nobody[0], NoSubscribers)
            assert isinstance(nobody[1], zkms.aio.Receipt)

    run(main())


def test_publish_many_takes_asynchronous_iterables(connect: Connect) -> None:
    """Keys are computed, and there is a receipt for each message."""

    async def numbers() -> AsyncIterator[int]:
        for number in range(20):
            await asyncio.sleep(0)
            yield number

    async def main() -> None:
        async with connect() as bus:
            sub = await bus.subscribe("users")
            receipts = await bus.publish_many("users", numbers(), key=str)
            assert len(receipts) == 20
            messages = await sub.fetch(20, timeout=10)
            assert [(m.data, m.key) for m in messages] == [(n, str(n)) for n in range(20)]
            assert (await receipts[0].wait(timeout=10)).acked == (sub.id,)

    run(main())


# -- the loop and the threads ------------------------------------------------------------------------------------------


def watch_for_blocking(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note every wait of the threading module's and every sleep on the main thread, where the event loop runs."""
    blocked: list[str] = []
    wait, sleep = threading.Condition.wait, time.sleep

    def starts_a_thread() -> bool:  # waits for moments until that runs
        frame = sys._getframe(2)
        while frame is not None:
            if frame.f_code is threading.Thread.start.__code__:
                return True
            frame = frame.f_back
        return False

    def note(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            looks_only = 0 in (*args[1:], *kwargs.values())
            if threading.current_thread() is threading.main_thread() and not looks_only and not starts_a_thread():
                frame = sys._getframe(1)
                blocked.append(f"{call.__qualname__} from {frame.f_code.co_filename}:{frame.f_lineno}")
            return call(*args, **kwargs)

        return noted

    monkeypatch.setattr(threading.Condition, "wait", note(wait))
    monkeypatch.setattr(time, "sleep", note(sleep))
    return blocked


async def use_everything(connect: Connect) -> None:
    """Whatever may have to wait for ZooKeeper, a full queue among it."""
    gaps: list[zkms.Gap] = []
    heard: list[Any] = []
    async with connect() as bus, connect() as other:
        async with bus.subscribe("users", ack="manual") as sub:
            receipt = await other.publish("users", 1)
            assert (await receipt.wait(timeout=0)).pending == (sub.id,)
            message = await sub.get(timeout=10)
            message.ack()
            assert (await receipt.wait(timeout=10)).acked == (sub.id,)
            assert await sub.get(timeout=0.05) is None
        async with bus.subscribe("few", limit=10, on_gap=gaps.append) as few:
            for number in range(15):
                await other.publish("few", number, if_nobody="drop")
            async with asyncio.timeout(30):
                while not gaps:
                    await few.get(timeout=0.5)
        await bus.subscribe("many", lambda message: heard.append(message.data))
        await other.publish_many("many", range(10_000))
        await until(lambda: len(heard) == 10_000)
        assert await bus.topics()
        assert await bus.subscriptions("many")
        assert await bus.queues()
        assert await bus.clients()


def test_nothing_blocks_the_event_loop(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock is waited for, no answer, no thread: other tasks run all the while."""
    blocked: list[str] = []

    async def main() -> None:
        nonlocal blocked
        blocked = watch_for_blocking(monkeypatch)
        await use_everything(connect)
        monkeypatch.undo()  # asyncio.run() itself waits for its threads at the end

    run(main())
    assert blocked == []


def test_without_the_workers_blocking_would_be_noticed(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking the mechanism on purpose: calls that are made on the loop are found."""
    blocked: list[str] = []

    def at_once(self: Calls, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future

    async def main() -> None:
        nonlocal blocked
        async with connect() as bus:
            monkeypatch.setattr(Calls, "submit", at_once)
            blocked = watch_for_blocking(monkeypatch)
            await bus.topics()
            monkeypatch.undo()

    run(main())
    assert blocked


def test_messages_and_subscriptions_cost_no_threads(connect: Connect) -> None:
    """However many there are, and however many wait: a few workers for the bus, and that is all."""

    async def main() -> None:
        async with connect() as bus:
            before = threading.active_count()
            heard = 0

            async def handler(message: Message) -> None:
                nonlocal heard
                heard += 1
                await asyncio.sleep(0)

            most = 0
            await asyncio.gather(*(bus.subscribe(f"topic {number}", handler) for number in range(30)))
            for _ in range(5):
                publishes = [bus.publish(f"topic {number % 30}", number) for number in range(300)]
                receipts = await asyncio.gather(*publishes)
                waits = asyncio.gather(*(receipt.wait(timeout=30) for receipt in receipts))
                most = max(most, threading.active_count())
                await waits
                most = max(most, threading.active_count())
            await until(lambda: heard == 1500)
            assert most - before <= WORKERS + 1 + 2  # with the sender, and the core's own for publishing and recovery

    run(main())


def test_one_wake_up_is_enough_for_many_messages(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes while the taker is awake is found by it: the loop is not called for every message."""
    rung = 0
    post = Calls.post

    def count(self: Calls, step: Callable[..., None], *args: object) -> None:
        nonlocal rung
        rung += step.__name__ == "_ring"
        post(self, step, *args)

    monkeypatch.setattr(Calls, "post", count)

    async def main() -> None:
        async with connect() as bus, connect() as other:
            sub = await bus.subscribe("users", ack="manual")
            for _ in range(10):
                await asyncio.gather(*(other.publish("users", number) for number in range(50)))
            assert rung == 0, "nobody slept, and somebody was woken"
            assert len([await sub.get(timeout=10) for _ in range(500)]) == 500
            assert rung <= 100

    run(main())


@pytest.mark.parametrize("way", ["handler", "get", "iterate"])
def test_a_stream_of_messages_leaves_the_loop_to_others(connect: Connect, way: str) -> None:
    """Whoever always finds a message lets other tasks run in between all the same."""

    async def main() -> None:
        async with connect() as bus, connect() as other:
            ticks = 0
            done = asyncio.Event()

            async def tick() -> None:
                nonlocal ticks
                while not done.is_set():
                    ticks += 1
                    await asyncio.sleep(0)

            def burn(message: Message) -> None:
                began = time.perf_counter()
                while time.perf_counter() - began < 0.001:
                    pass
                if message.data == 299:
                    done.set()

            sub = await bus.subscribe("users", burn if way == "handler" else None)
            await other.publish_many("users", range(300))
            ticking = asyncio.create_task(tick())
            if way == "get":
                while not done.is_set():
                    burn(await sub.get(timeout=10))
            elif way == "iterate":
                async for message in sub:
                    burn(message)
                    if done.is_set():
                        break
            await ticking
            assert ticks > 10

    run(main())


# -- bad use -----------------------------------------------------------------------------------------------------------


def test_bad_arguments_are_refused(connect: Connect) -> None:
    """At the call, or where it is awaited; the topic can be subscribed to right after."""

    async def main() -> None:
        async with connect() as bus:
            with pytest.raises(InvalidArgument):
                bus.subscribe("users", 5)
            with pytest.raises(zkms.InvalidTopic):
                bus.subscribe("")
            for bad in ({"ack": "sometimes"}, {"limit": 0}, {"prefetch": 1.5}, {"codec": ...}):
                with pytest.raises(InvalidArgument):
                    await bus.subscribe("users", **bad)
            sub = await bus.subscribe("users")
            with pytest.raises(AlreadySubscribed):
                bus.subscribe("users")
            with pytest.raises(InvalidArgument):
                await sub.fetch(0)
            with pytest.raises(InvalidArgument):
                await bus.publish("users", 1, if_nobody="perhaps")
            with pytest.raises(InvalidArgument):
                await bus.publish_many("users", [1], timeout=float("nan"))

    run(main())


def test_a_bus_is_opened_by_await_or_by_async_with(connect: Connect) -> None:
    """Not twice by the same, and arguments are checked before."""

    async def main() -> None:
        opening = connect()
        async with opening:
            with pytest.raises(InvalidArgument, match="again"):
                async with opening:
                    pass
        with pytest.raises(InvalidArgument):
            connect(session_timeout=0)
        with pytest.raises(zkms.ConnectionLost, match="no ZooKeeper answered"):
            await zkms.aio.connect("127.0.0.1:1", connect_timeout=0.5)

    run(main())
