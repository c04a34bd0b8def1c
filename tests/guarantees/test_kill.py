"""Processes that are killed or frozen, and many that come while messages flow."""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zkms
from tests.support.audience import Listener
from tests.support.buses import Connect, Eventually
from zkms.server.server import Server

Run = Callable[..., subprocess.Popen[bytes]]
PROGRAMS = Path(__file__).parent / "programs"
TOPIC = "users"


@pytest.fixture
def run(request: pytest.FixtureRequest, zookeeper: Server, zookeeper_root: str) -> Iterator[Run]:
    """Run a program on the topic; what is still alive after the test is killed."""
    processes: list[subprocess.Popen[bytes]] = []
    environ = dict(os.environ)
    if "recorded" in request.fixturenames:
        environ["ZKMS_TRAIL"] = str(request.getfixturevalue("recorded"))

    def start(program: str, *arguments: object, output: Path | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, PROGRAMS / program, zookeeper.hosts, zookeeper_root, TOPIC, *map(str, arguments)]
        if output is None:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environ)
        else:
            with output.open("wb") as file:
                process = subprocess.Popen(command, stdout=file, env=environ)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


class Counter:
    """A number in a file, which other processes can read at any time."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        path.write_bytes(bytes(8))
        self.path = path
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    def set(self, number: int) -> None:
        """Change the number, all of it at once."""
        self._memory[:] = number.to_bytes(8, "big")


def lines(path: Path) -> list[tuple[str, object]]:
    """What a subscriber has written so far; its last line may not be whole yet."""
    whole, _, _ = path.read_text().rpartition("\n")
    return [tuple(json.loads(line)) for line in whole.splitlines()]


@pytest.mark.usefixtures("audited")
def test_a_killed_publisher_leaves_each_message_with_all_subscribers_or_with_none(
    connect: Connect, audience: Callable[..., list[Listener]], run: Run, eventually: Eventually
) -> None:
    """Twenty publishers, each killed at some moment of a fan-out to five; their messages are in the same order too."""
    listeners = audience(TOPIC, 5)
    first = listeners[0]
    chance = random.Random(4)
    names = [f"publisher-{i}" for i in range(20)]
    for start in range(0, len(names), 4):
        running = {name: run("publisher.py", name, 10.0) for name in names[start : start + 4]}
        looked_at = len(first.got)
        while running:
            eventually(lambda: len(first.got) > looked_at, what=f"a message of {', '.join(running)}")  # noqa: B023
            heard = {data[0] for data in first.got[looked_at:]}
            looked_at = len(first.got)
            for name in heard & running.keys():
                process = running.pop(name)
                time.sleep(chance.uniform(0.0, 0.1))  # not for luck: any moment will do, and many are tried
                process.send_signal(signal.SIGKILL)
                process.wait()
    bus = connect()
    # What a dead process had sent may still be carried out by the server, but not behind this:
    bus.publish(TOPIC, "last")
    orders = [listener.await_last("last") for listener in listeners]
    assert all(order == orders[0] for order in orders)
    numbers: dict[str, list[int]] = {name: [] for name in names}
    for name, number, *_ in orders[0][:-1]:
        numbers[name].append(number)
    for name in names:
        assert numbers[name] == list(range(len(numbers[name]))), name
    assert [listener.gaps for listener in listeners] == [[]] * 5


def test_twenty_processes_subscribe_while_messages_flow_and_miss_none(
    connect: Connect, run: Run, tmp_path: Path, eventually: Eventually
) -> None:
    """Each gets every message whose publish() began after its subscribe() had returned, in order and once."""
    counter = Counter(tmp_path / "counter")
    outputs = [tmp_path / f"subscriber-{i}" for i in range(20)]
    bus = connect()
    bus.subscribe(TOPIC, lambda _message: None)  # somebody is always there
    stop = threading.Event()
    published = 0
    errors: list[BaseException] = []

    def publish() -> None:
        nonlocal published
        try:
            while not stop.is_set():
                counter.set(published)
                bus.publish(TOPIC, published)
                published += 1
        except zkms.ZkmsError as error:
            errors.append(error)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        processes = []
        for wave in range(0, 20, 5):  # the later ones come while those before them are at it
            started = outputs[wave : wave + 5]
            processes += [run("subscriber.py", 10.0, counter.path, output=output) for output in started]
            eventually(lambda: all(len(lines(output)) > 20 for output in started), timeout=60)  # noqa: B023
    finally:
        stop.set()
        publisher.join()
    assert errors == []
    bus.publish(TOPIC, None)
    for process in processes:
        assert process.wait(30) == 0
    starts = set()
    for output in outputs:
        told = lines(output)
        assert {kind for kind, _ in told} == {"subscribed", "message"}, told
        (known,) = [number for kind, number in told if kind == "subscribed"]  # a message may come before it is written
        got = [number for kind, number in told if kind == "message"]
        assert got == list(range(got[0], published)), output.name
        assert got[0] <= known + 1
        starts.add(got[0])
    assert len(starts) >= 4, "they came at different times, or this shows nothing"


@pytest.mark.usefixtures("audited")
def test_a_subscriber_frozen_past_its_session_registers_again_and_announces_a_gap(
    connect: Connect, run: Run, tmp_path: Path, eventually: Eventually
) -> None:
    """It gets what was stored while its session lived, then the gap, then what is published since it came back."""
    counter, output = Counter(tmp_path / "counter"), tmp_path / "subscriber"
    bus = connect()
    process = run("subscriber.py", 2.0, counter.path, output=output)
    eventually(lambda: bus.subscriptions(TOPIC))
    bus.publish(TOPIC, "before")
    eventually(lambda: ("message", "before") in lines(output))
    process.send_signal(signal.SIGSTOP)
    bus.publish(TOPIC, "stored")
    eventually(lambda: not bus.subscriptions(TOPIC), timeout=15, what="the end of its session")
    process.send_signal(signal.SIGCONT)
    eventually(lambda: bus.subscriptions(TOPIC), timeout=15, what="its registration")
    bus.publish(TOPIC, "after")
    bus.publish(TOPIC, None)
    assert process.wait(15) == 0
    got = [(kind, data) for kind, data in lines(output) if kind != "subscribed"]
    assert [data if kind == "message" else kind for kind, data in got] == ["before", "stored", "gap", "after"]
    assert "session expired" in str(got[2][1])


@pytest.mark.usefixtures("audited")
def test_a_publisher_frozen_past_its_session_stores_nothing_twice(
    connect: Connect, audience: Callable[..., list[Listener]], run: Run, eventually: Eventually
) -> None:
    """What it had in flight when it froze is told from what it has to send again."""
    listeners = audience(TOPIC)
    first = listeners[0]
    bus = connect()
    process = run("publisher.py", "frozen", 1.0)
    for _ in range(2):
        seen = len(first.got)
        eventually(lambda seen=seen: len(first.got) > seen + 100)
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: "frozen" not in {info.client for info in bus.clients()}, what="the end of its session")
        process.send_signal(signal.SIGCONT)
    seen = len(first.got)
    eventually(lambda: len(first.got) > seen + 100)
    process.kill()
    process.wait()
    bus.publish(TOPIC, "last")
    orders = [listener.await_last("last") for listener in listeners]
    assert orders[0] == orders[1] == orders[2]
    assert [number for _, number, *_ in orders[0][:-1]] == list(range(len(orders[0]) - 1))
