"""A dead letter that is requeued leaves a trail: it comes again, and nobody takes that for a broken promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import zkms
from tests.support.buses import Connect
from tests.support.oracle import audit, exported
from tests.support.trails import read
from zkms.message import frame
from zkms.server.server import Server


def bury_and_requeue(connect: Connect, requeue: Any) -> zkms.Bus:
    """A message is rejected, younger ones are handled, then the letter is requeued, and handled too."""
    bus = connect(client_id="ann")
    subscription = bus.subscribe("jobs", group="workers", partitions=1)
    bus.publish_many("jobs", ["poison", "a", "b"], key=lambda _data: "k")
    got = []
    while len(got) < 3:
        message = subscription.get(timeout=30)
        assert message is not None
        got.append(message.data)
        if message.data == "poison":
            message.reject("cannot be done")
        else:
            message.ack()
    requeue(bus)
    again = subscription.get(timeout=30)
    assert again is not None
    assert again.data == "poison"
    again.ack()
    bus.close()
    return bus


def by_the_bus(bus: zkms.Bus) -> None:
    """All letters, as a program does it."""
    for letter in bus.dead_letters():
        bus.requeue(letter)


def test_a_requeued_message_is_recorded_and_comes_again_as_redelivered(
    connect: Connect, trail: Path, tmp_path: Path
) -> None:
    """Neither delivered twice nor out of order, as nobody promised otherwise."""
    bury_and_requeue(connect, by_the_bus)
    events = read(trail)
    [requeued] = [event for event in events if event.event == "requeued"]
    assert (requeued.sub, requeued.topic, requeued.producer, requeued.seq) == ("workers", "jobs", "ann", 1)
    assert (requeued.n, requeued.kind, requeued.attempt) == (1, "group", 1)
    [again] = [event for event in events if event.event == "redelivered"]
    assert (again.producer, again.seq) == ("ann", 1)
    assert audit(exported(trail, tmp_path / "out")) == set()


def test_without_the_mark_in_its_frame_an_audit_takes_it_for_a_duplicate(
    connect: Connect, trail: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation: what is requeued looks as if it had been published just now."""
    encode = frame.encode
    monkeypatch.setattr(frame, "encode", lambda *args, again=False, **options: encode(*args, **options))
    bury_and_requeue(connect, by_the_bus)
    assert ("duplicated", "workers", "ann", 1) in audit(exported(trail, tmp_path / "out"))


def test_the_command_records_what_it_requeues(
    connect: Connect, trail: Path, zookeeper: Server, zookeeper_root: str
) -> None:
    """`zkms dead requeue --trail`."""

    def by_hand(_bus: zkms.Bus) -> None:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")}
        where = ["--hosts", zookeeper.hosts, "--root", zookeeper_root, "--trail", str(trail)]
        command = [sys.executable, "-m", "zkms", "dead", "requeue", "--all", *where]
        done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr

    bury_and_requeue(connect, by_hand)
    assert [(event.sub, event.seq) for event in read(trail) if event.event == "requeued"] == [("workers", 1)]
