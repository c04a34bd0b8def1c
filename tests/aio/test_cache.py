"""zkms.aio.Cache: loads that are awaited, shared and cancelled; the rules are those of zkms.Cache."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import zkms
import zkms.aio
from zkms import Closed, InvalidArgument, Timeout
from zkms.cache import RecursiveLoad
from zkms.cache.tickets import Tickets
from zkms.server.server import Server
from zkms.testing import Proxy

from .conftest import Connect, run, until

Key = Any


class Database:
    """What is cached: rows, and which of them were read, each after a pause."""

    def __init__(self) -> None:
        self.rows: dict[Key, Any] = {}
        self.reads: list[Key] = []
        self.ended: list[Key] = []
        self.go = asyncio.Event()
        self.go.set()

    async def load(self, key: Key) -> Any:
        """As a loader: the row as it was when the read began."""
        row = self.rows.get(key)
        self.reads.append(key)
        try:
            await self.go.wait()
        finally:
            self.ended.append(key)
        return row


@asynccontextmanager
async def two_nodes(connect: Connect) -> AsyncIterator[tuple[zkms.aio.Cache, zkms.aio.Cache]]:
    """The cache "users" on two buses, both trusted."""
    async with (
        connect() as one,
        connect() as two,
        zkms.aio.Cache(one, "users") as first,
        zkms.aio.Cache(two, "users") as second,
    ):
        yield await trusted(first), await trusted(second)


async def trusted(cache: zkms.aio.Cache) -> zkms.aio.Cache:
    """When it may serve."""
    await until(lambda: cache.trusted, "trust")
    return cache


def test_a_write_on_one_node_is_seen_on_all(connect: Connect) -> None:
    """Kept after the first read; dropped everywhere when invalidate(wait=...) returns."""

    async def main() -> None:
        database = Database()
        database.rows[42] = "old"
        async with two_nodes(connect) as (first, second):
            for cache in (first, second):
                assert [await cache.get(42, database.load) for _ in range(3)] == ["old"] * 3
            assert database.reads == [42, 42]
            database.rows[42] = "new"
            outcome = await first.invalidate(42, wait=20.0)
            assert outcome
            assert outcome.dropped == (second.threaded._bus.client_id,)
            assert [await cache.get(42, database.load) for cache in (first, second)] == ["new", "new"]
            assert await second.get(43, default="none") == "none"

    run(main())


def test_keys_tags_and_everything_can_be_invalidated(connect: Connect) -> None:
    """And put() keeps here what it drops elsewhere."""

    async def main() -> None:
        async with two_nodes(connect) as (first, second):
            for cache in (first, second):
                for key in range(6):
                    assert cache.set(key, key, tags=["odd"] if key % 2 else ())
            assert await first.invalidate_many([0, 2], wait=20.0)
            assert sorted(second.keys()) == [1, 3, 4, 5]
            assert await first.invalidate_tag("odd", wait=20.0)
            assert second.keys() == [4]
            assert await first.put(4, "four", wait=20.0)
            assert 4 in first
            assert 4 not in second
            assert await second.invalidate(4) is None
            assert await second.clear(wait=20.0)
            assert len(first) == len(second) == 0
            assert await first.clear(everywhere=False) is None

    run(main())


# -- loading -----------------------------------------------------------------------------------------------------------


def test_one_task_loads_and_the_others_wait_for_it(connect: Connect) -> None:
    """Threads that use the cache below too."""

    async def main() -> None:
        async with connect() as bus, zkms.aio.Cache(bus, "users") as cache:
            await trusted(cache)
            database = Database()
            database.rows[1] = "row"
            database.go.clear()
            waiting = [asyncio.create_task(cache.get(1, database.load)) for _ in range(10)]
            thread = asyncio.create_task(asyncio.to_thread(cache.threaded.get, 1, lambda _key: "from the thread"))
            await until(lambda: database.reads)
            await asyncio.sleep(0.05)
            database.go.set()
            assert set(await asyncio.gather(*waiting)) == {"row"}
            assert await thread in ("row", "from the thread")
            assert len(database.reads) <= 1

    run(main())


def test_a_load_that_a_thread_has_begun_is_joined(connect: Connect) -> None:
    """At most for the caller's time."""

    async def main() -> None:
        async with connect() as bus, zkms.aio.Cache(bus, "users") as cache:
            await trusted(cache)
            began, go = threading.Event(), threading.Event()

            def load(_key: Key) -> str:
                began.set()
                assert go.wait(60)
                return "from the thread"

            thread = asyncio.create_task(asyncio.to_thread(cache.threaded.get, 1, load))
            await asyncio.to_thread(began.wait, 60)
            with pytest.raises(Timeout, match="has been loading"):
                await cache.get(1, load, timeout=0.05)
            joining = asyncio.create_task(cache.get(1, load))
            await asyncio.sleep(0.05)
            go.set()
            assert await joining == await thread == "from the thread"

    run(main())


def test_a_waiter_that_is_cancelled_does_not_cancel_the_load_for_others(connect: Connect) -> None:
    """Nor does the one who began it."""

    async def main() -> None:
        async with connect() as bus, zkms.aio.Cache(bus, "users") as cache:
            await trusted(cache)
            database = Database()
            database.rows[1] = "row"
            database.go.clear()
            tasks = [asyncio.create_task(cache.get(1, database.load)) for _ in range(5)]
            await until(lambda: database.reads)
            for task in tasks[:3]:
                task.cancel()
            await asyncio.wait(tasks[:3])
            assert database.ended == []
            database.go.set()
            assert await asyncio.gather(*tasks[3:]) == ["row", "row"]
            assert database.reads == [1]
            assert cache.holds(1)

    run(main())


def test_a_load_that_nobody_waits_for_is_cancelled(connect: Connect) -> None:
    """Its loader can clean up, nothing is kept, and the next caller loads anew."""

    async def main() -> None:
        async with connect() as bus, zkms.aio.Cache(bus, "users") as cache:
            await trusted(cache)
            database = Database()
            database.rows[1] = "row"
            for turns in range(5):
                database.go.clear()
                tasks = [asyncio.create_task(cache.get(1, database.load)) for _ in range(3)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                late = asyncio.create_task(cache.get(1, database.load))  # while the other load is still ending
                await until(lambda: len(database.reads) - len(database.ended) == 1)
                database.go.set()
                assert await asyncio.wait_for(late, 20) == "row"
                assert await cache.invalidate(1) is None
            assert cache._loads == {}
            assert len(database.ended) == len(database.reads)

    run(main())


def test_what_a_loader_raises_is_passed_on_and_not_kept(connect: Connect) -> None:
    """To all who wait; plain loaders and those that raise a time-out of their own too."""

    async def main() -> None:
        async with connect() as bus, zkms.aio.Cache(bus, "users") as cache:
            await trusted(cache)

            async def fail(_key: Key) -> None:
                await asyncio.sleep(0.01)
                raise TimeoutError("the database is slow")

            results = await asyncio.gather(*(cache.get(1, fail) for _ in range(3)), return_exceptions=True)
            assert [str(result) for result in results] == ["the database is slow"] * 3
            assert await cache.get(1, lambda key: key + 1) == 2
            assert await cache.get(1, fail) == 2

            async def cancelled(_key: Key) -> None:
                raise asyncio.CancelledError

            with pytest.raises(asyncio.CancelledError):
                await cache.get(2, cancelled)

    run(main())


def test_a_loader_that_never_returns_holds_others_only_for_their_timeout(connect: Connect) -> None:
    """And one that asks for its own key is told so, also through a task of its own."""

    async def main() -> None:
        async with connect() as bus, zkms.aio.Cache(bus, "users", load_timeout=60) as cache:
            await trusted(cache)
            first = asyncio.create_task(cache.get(1, lambda _key: asyncio.sleep(600)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with pytest.raises(Timeout, match="another task has been loading 1"):
                await cache.get(1, lambda _key: "never called", timeout=0.05)
            assert not first.done()
            first.cancel()

            async def recursive(key: Key) -> Any:
                return await asyncio.create_task(cache.get(key, recursive))

            with pytest.raises(RecursiveLoad):
                await cache.get(2, recursive)

    run(main())


# -- coherence ---------------------------------------------------------------------------------------------------------


async def check_a_load_that_was_overtaken_is_not_kept(connect: Connect, patience: float = 30.0) -> None:
    """Fail unless a value that was read before a change is gone after it."""
    async with two_nodes(connect) as (reader, writer):
        database = Database()
        database.rows[1] = "old"
        database.go.clear()
        reading = asyncio.create_task(reader.get(1, database.load))
        await until(lambda: database.reads)
        database.rows[1] = "new"
        assert await writer.invalidate(1, wait=20.0)
        later = asyncio.create_task(reader.get(1, database.load))  # must not join the older load
        await until(lambda: len(database.reads) == 2, timeout=patience)
        database.go.set()
        assert await reading == "old"
        assert await later == "new"
        assert await reader.get(1, database.load) == "new"


def test_a_value_that_was_being_loaded_when_it_changed_is_not_kept(connect: Connect) -> None:
    """Nor is its load joined by those who come after the change."""
    run(check_a_load_that_was_overtaken_is_not_kept(connect))


def test_without_tickets_the_old_value_would_be_served(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking the mechanism on purpose."""
    monkeypatch.setattr(Tickets, "valid", lambda *_args: True)
    with pytest.raises(AssertionError):
        run(check_a_load_that_was_overtaken_is_not_kept(connect, patience=1.0))


def test_a_set_after_a_miss_is_refused_if_the_key_was_invalidated_meanwhile(connect: Connect) -> None:
    """By task: another task's miss says nothing about this one's load."""

    async def main() -> None:
        async with connect() as bus, zkms.aio.Cache(bus, "users") as cache:
            await trusted(cache)

            async def slow(go: asyncio.Event) -> bool:
                assert await cache.get(1) is None
                await go.wait()
                return cache.set(1, "old")

            go = asyncio.Event()
            setting = asyncio.create_task(slow(go))
            await asyncio.sleep(0)
            await cache.invalidate(1)
            assert cache.set(1, "new")
            go.set()
            assert not await setting
            assert await cache.get(1) == "new"

    run(main())


def test_an_outcome_says_who_has_not_dropped_it(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time given, and none of the workers is held meanwhile."""

    async def main() -> None:
        async with two_nodes(connect) as (first, second):
            stuck, go = threading.Event(), threading.Event()
            drop = second.threaded.core.store.drop

            def hang(*args: Any) -> None:
                stuck.set()
                assert go.wait(60)
                drop(*args)

            monkeypatch.setattr(second.threaded.core.store, "drop", hang)
            waits = [asyncio.create_task(first.invalidate(key, wait=3.0)) for key in range(20)]
            await asyncio.to_thread(stuck.wait, 30)
            assert len(await first._calls.run(first.threaded._bus.clients)) == 2
            for outcome in await asyncio.gather(*waits):
                assert not outcome
                assert list(outcome.missing) == [second.threaded._bus.client_id]
            go.set()

    run(main())


@pytest.mark.parametrize("what", ["invalidate", "receipt"])
def test_many_who_wait_are_told_in_time_when_zookeeper_falls_silent(
    what: str, connect: Connect, zookeeper: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are fewer workers than they are, and a silent ZooKeeper holds each worker for a while."""

    async def main() -> None:
        with Proxy(zookeeper.hosts) as proxy:
            async with connect() as one, connect(hosts=proxy.hosts) as two:
                first = await zkms.aio.Cache(one, "users")
                second = await trusted(await zkms.aio.Cache(two, "users"))
                go = threading.Event()
                monkeypatch.setattr(first.threaded.core.store, "drop", lambda *_args: go.wait(120))
                sent = [await asyncio.wrap_future(second.threaded.send([key])) for key in range(80)]
                proxy.black_hole()
                began = time.monotonic()
                if what == "receipt":
                    waits = [waited(zkms.aio.Receipt(two.calls(), receipt)) for receipt in sent]
                else:
                    waits = [second._wait(receipt, began + 1.0) for receipt in sent]
                outcomes = await asyncio.gather(*waits)
                took = time.monotonic() - began
                go.set()
                proxy.heal()
                assert not any(outcomes)
                assert took < 12.0, "with four workers, a second for each would be twenty"

    async def waited(receipt: zkms.aio.Receipt) -> bool:
        with contextlib.suppress(zkms.ConnectionLost):
            await receipt.wait(1.0)
        return not receipt.pending

    run(main())


# -- life --------------------------------------------------------------------------------------------------------------


def test_coroutine_functions_can_be_decorated(connect: Connect) -> None:
    """In the manner of functools, with what is awaited awaited."""

    async def main() -> None:
        async with connect() as bus, zkms.aio.Cache(bus, "users") as cache:
            await trusted(cache)
            calls: list[int] = []

            @cache.cached(tags="users")
            async def load_user(user_id: int, *, suffix: str = "") -> str:
                """Loads a user."""
                calls.append(user_id)
                await asyncio.sleep(0)
                return f"user {user_id}{suffix}"

            assert await asyncio.gather(*(load_user(1) for _ in range(5))) == ["user 1"] * 5
            assert await load_user(user_id=1) == "user 1"
            assert await load_user(1, suffix="!") == "user 1!"
            assert calls == [1, 1]
            assert load_user.cache_info().currsize == 2
            assert load_user.__doc__ == "Loads a user."
            await load_user.invalidate(1)
            assert await load_user(1) == "user 1"
            await load_user.cache_clear()
            assert load_user.cache_info().currsize == 0
            with pytest.raises(InvalidArgument):
                cache.cached()(5)

    run(main())


def test_events_are_told_on_the_loop(connect: Connect) -> None:
    """To coroutine functions too."""

    async def main() -> None:
        events: list[str] = []

        async def hear(event: zkms.cache.CacheEvent) -> None:
            assert threading.current_thread() is threading.main_thread()
            await asyncio.sleep(0)
            events.append(event.kind)
            raise RuntimeError("harms nothing")

        async with connect() as bus, zkms.aio.Cache(bus, "users", on_event=hear) as cache:
            await trusted(cache)
            await cache.clear()
            await until(lambda: "flushed" in events)

    run(main())


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 30, 100])
def test_opening_can_be_cancelled_at_any_moment(connect: Connect, turns: int) -> None:
    """No subscription and no thread stays, and the name can be used again."""

    async def main() -> None:
        async with connect() as bus:

            async def use() -> None:
                async with zkms.aio.Cache(bus, "users"):
                    await asyncio.sleep(60)

            using = asyncio.create_task(use())
            for _ in range(turns):
                await asyncio.sleep(0)
            using.cancel()
            await asyncio.wait([using])
            async with zkms.aio.Cache(bus, "users") as cache:
                await trusted(cache)
                assert len(await bus.queues()) == 1
            assert await bus.queues() == []
        await until(lambda: not any("zkms.cache." in thread.name for thread in threading.enumerate()))

    run(main())


def test_closing_can_be_cancelled_and_the_name_used_again_at_once(connect: Connect) -> None:
    """The closing goes on, and who opens another of the same name waits for it."""

    async def main() -> None:
        async with connect() as bus:
            for turns in range(1, 20):
                cache = await zkms.aio.Cache(bus, "users")
                closing = asyncio.create_task(cache.close())
                for _ in range(turns):
                    await asyncio.sleep(0)
                closing.cancel()
                await asyncio.wait([closing])
            async with zkms.aio.Cache(bus, "users") as last:
                assert await last.get(1, lambda key: key) == 1

    run(main())


def test_a_cache_is_opened_before_it_is_used_and_ends_with_its_bus(connect: Connect) -> None:
    """Every call says so."""

    async def main() -> None:
        bus = await connect()
        cache = zkms.aio.Cache(bus, "users", loader=lambda key: key)
        with pytest.raises(Closed, match="async with"):
            await cache.get(1)
        await cache
        with pytest.raises(InvalidArgument):
            await cache
        with pytest.raises(InvalidArgument, match="already"):
            await zkms.aio.Cache(bus, "users")
        assert await cache.get(1) == 1
        with pytest.raises(InvalidArgument):
            zkms.aio.Cache(bus, "others", loader=5)
        await bus.close()
        assert cache.closed
        for call in (
            lambda: cache.get(2),
            lambda: cache.get(1, lambda key: key),
            lambda: cache.invalidate(1),
            lambda: cache.put(1, 1),
            lambda: cache.clear(wait=1.0),
        ):
            with pytest.raises(Closed):
                await call()
        await cache.close()

    run(main())


def test_the_arguments_are_those_of_the_threaded_cache() -> None:
    """What one has, the other has: whoever adds an argument to one adds it to both."""
    for method in ("__init__", "get", "set", "put", "invalidate", "invalidate_many", "invalidate_tag", "clear"):
        threaded = inspect.signature(getattr(zkms.Cache, method)).parameters
        assert list(inspect.signature(getattr(zkms.aio.Cache, method)).parameters) == list(threaded)
