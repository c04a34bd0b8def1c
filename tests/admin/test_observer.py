"""bus.watch(): told what comes and goes, on a thread of its own, across lost connections."""

from __future__ import annotations

import asyncio
import threading

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from zkms import Bus, Change
from zkms.admin import observer
from zkms.server.server import Server
from zkms.testing import Proxy, expire
from zkms.zookeeper.operations import Create, Delete


def test_what_comes_and_goes_is_told(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """A process, its topic, its subscriptions and memberships; in the other order when it goes."""
    told: list[Change] = []
    with bus.watch(told.append):
        other = connect()
        live = other.subscribe("news")
        member = other.subscribe("jobs", group="workers", partitions=1)
        wanted = [
            Change("client", "added", client=other.client_id),
            Change("topic", "added", "news"),
            Change("subscription", "added", "news", live.id),
            Change("topic", "added", "jobs"),
            Change("subscription", "added", "jobs", "workers"),
            Change("member", "added", "jobs", "workers", other.client_id),
        ]
        eventually(lambda: set(wanted) <= set(told), what=f"{wanted} in {told}")
        told.clear()
        live.unsubscribe()
        member.unsubscribe()
        other.close()
        gone = [
            Change("subscription", "removed", "news", live.id),
            Change("member", "removed", "jobs", "workers", other.client_id),
            Change("subscription", "removed", "jobs", "workers"),
            Change("client", "removed", client=other.client_id),
        ]
        eventually(lambda: set(gone) <= set(told), what=f"{gone} in {told}")
        assert len(told) == len(set(told))


def test_only_what_changes_is_told(bus: Bus, eventually: Eventually) -> None:
    """What is there when the watching begins is not told, and a watch that is closed tells nothing."""
    bus.subscribe("news")
    told: list[Change] = []
    silent: list[Change] = []
    first = bus.watch(silent.append)
    first.close()
    first.close()
    with bus.watch(told.append):
        bus.subscribe("weather")
        eventually(lambda: Change("topic", "added", "weather") in told)
    assert all(change.topic == "weather" for change in told)
    assert silent == []


def test_a_full_queue_is_told(bus: Bus, eventually: Eventually) -> None:
    """Publishers skip it, and then they do not."""
    told: list[Change] = []
    sub = bus.subscribe("news", ack="manual", limit=2)
    with bus.watch(told.append):
        for number in range(4):
            bus.publish("news", number)
        eventually(lambda: Change("subscription", "full", "news", sub.id) in told)
        for message in sub.fetch(10, 10.0):
            message.ack()
        sub.get(0.1)
        eventually(lambda: Change("subscription", "drained", "news", sub.id) in told)


def test_a_topic_that_is_made_anew_is_watched_again(bus: Bus, eventually: Eventually) -> None:
    """Deleted and made again, however quickly: what happens in it afterwards is told."""
    told: list[Change] = []
    path = bus.parts.tree.topic("news")
    bus.parts.session.multi([Create(path)])
    with bus.watch(told.append):
        for _ in range(20):
            bus.parts.session.multi([Delete(path), Create(path)])
        sub = bus.subscribe("news")
        eventually(lambda: Change("subscription", "added", "news", sub.id) in told)


def test_what_changed_while_cut_off_is_told(
    connect: Connect, zookeeper: Server, zookeeper_root: str, eventually: Eventually
) -> None:
    """The watcher's connection is cut; what has come meanwhile is told when it is back."""
    told: list[Change] = []
    with (
        Proxy(zookeeper.hosts) as proxy,
        zkms.connect(proxy.hosts, root=zookeeper_root, cleaner=False, session_timeout=30.0) as far,
        far.watch(told.append),
    ):
        proxy.refuse()
        proxy.drop()
        near = connect()
        near.subscribe("news")
        proxy.heal()
        eventually(lambda: Change("topic", "added", "news") in told, timeout=60.0)
        assert Change("client", "added", client=near.client_id) in told


def test_an_expired_session_goes_on_watching(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """A new session has no watches of the old one: they are set again."""
    told: list[Change] = []
    with bus.watch(told.append):
        expire(bus)
        other = connect()
        eventually(lambda: Change("client", "added", client=other.client_id) in told, timeout=60.0)
        other.subscribe("news")
        eventually(lambda: Change("topic", "added", "news") in told, timeout=60.0)


def test_a_callback_that_raises_is_called_again(bus: Bus, eventually: Eventually) -> None:
    """It is logged, and the next change is told; one that closes its own watch does not wait for itself."""
    told: list[Change] = []
    ended = threading.Event()

    def complain(change: Change) -> None:
        told.append(change)
        raise RuntimeError("sorry")

    with bus.watch(complain):
        bus.subscribe("news")
        eventually(lambda: len(told) >= 2)
    closing = bus.watch(lambda _change: (closing.close(), ended.set()))
    bus.subscribe("weather")
    assert ended.wait(30)


def test_what_is_too_much_is_not_watched(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Bounded: past the limit new topics are told, what is in them is not, and the log says so."""
    monkeypatch.setattr(observer, "MAX_LISTS", 4)  # three of them are there always
    told: list[Change] = []
    with bus.watch(told.append):
        for topic in ("a", "b", "c"):
            bus.parts.session.multi([Create(bus.parts.tree.topic(topic))])
        eventually(lambda: Change("topic", "added", "c") in told)
        eventually(lambda: "too many lists to watch" in caplog.text)


def test_the_callback_must_be_callable(bus: Bus) -> None:
    """Said at once."""
    with pytest.raises(zkms.InvalidArgument, match="callable"):
        bus.watch("news")  # type: ignore[arg-type]


def test_asyncio_has_the_same(zookeeper: Server, zookeeper_root: str) -> None:
    """Groups, queues, dead letters and changes, which are told on the event loop."""

    async def main() -> None:
        async with zkms.aio.connect(zookeeper.hosts, root=zookeeper_root, cleaner=False) as bus:
            told: asyncio.Queue[Change] = asyncio.Queue()
            watching = await bus.watch(told.put_nowait)
            sub = bus.threaded.subscribe("jobs", name="audit")
            assert (await asyncio.wait_for(told.get(), 30)).topic == "jobs"
            watching.close()
            await bus.publish("jobs", "data")
            message = await asyncio.to_thread(sub.get, 10.0)
            assert message is not None
            await asyncio.to_thread(message.reject, "no good")
            [letter] = await bus.dead_letters()
            await bus.requeue(letter)
            [queue] = await bus.queues(count=True)
            [group] = await bus.groups("jobs", "audit")
            assert (queue.messages, group.messages, await bus.purge_dead()) == (1, 1, 0)
            with pytest.raises(zkms.InvalidArgument, match="plain function"):
                await bus.watch(asyncio.sleep)

    asyncio.run(main())
