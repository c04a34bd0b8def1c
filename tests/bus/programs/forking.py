"""A program that forks with a bus in hand: `python forking.py HOSTS ROOT`; prints what parent and child found."""

from __future__ import annotations

import json
import os
import sys

import zkms


def outcome(call: object) -> str:
    """What a call led to, by name."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the answer
        return type(error).__name__
    return "ok"


def child(
    bus: zkms.Bus, sub: zkms.Subscription, receipt: zkms.Receipt, stream: zkms.TopicPublisher, hosts: str, root: str
) -> dict[str, str]:
    """Use the parent's bus in every way, then one of the child's own."""
    found = {
        "publish": outcome(lambda: bus.publish("users", 1)),
        "publish_many": outcome(lambda: bus.publish_many("users", [1])),
        "subscribe": outcome(lambda: bus.subscribe("other")),
        "get": outcome(lambda: sub.get(timeout=1)),
        "iterate": outcome(lambda: next(iter(sub))),
        "wait": outcome(lambda: receipt.wait(timeout=1)),
        "topics": outcome(bus.topics),
        "clients": outcome(bus.clients),
        "unsubscribe": outcome(sub.unsubscribe),
        "send": outcome(lambda: stream.send(1)),
        "flush": outcome(lambda: stream.flush(timeout=1)),
        "close_stream": outcome(stream.close),
        "close": outcome(bus.close),
        "repr": outcome(lambda: repr(bus)),
    }
    with zkms.connect(hosts, root, cleaner=False) as own:
        found["own"] = outcome(lambda: own.publish("users", "from the child"))
    return found


def main(hosts: str, root: str) -> None:
    """Fork, wait for the child, and see whether the parent's bus has noticed anything."""
    bus = zkms.connect(hosts, root, cleaner=False)
    sub = bus.subscribe("users", ack="manual")
    receipt = bus.publish("users", "before")
    stream = bus.publisher("nobody", linger=60.0, if_nobody="drop")
    stream.send("lingers while we fork")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps(child(bus, sub, receipt, stream, hosts, root)).encode())
        sys.exit(0)  # the whole way out, with what is registered for the exit
    os.close(write)
    with os.fdopen(read) as pipe:
        report = json.load(pipe)
    _, status = os.waitpid(pid, 0)
    bus.publish("users", "after")
    messages = [sub.get(timeout=10) for _ in range(3)]
    for message in messages:
        message.ack()
    result = {
        "child": report,
        "status": status,
        "heard": [message.data for message in messages],
        "acked": len(receipt.wait(timeout=10).acked),
        "generation": bus.parts.session.generation,
        "queues": len(bus.queues()),
    }
    bus.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
