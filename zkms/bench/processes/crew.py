"""The processes of one experiment: publishers, and subscribers shared among a few."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.processes import orders
from zkms.errors import ZkmsError
from zkms.server.child import TalkingChild

A = TypeVar("A", bound=msgspec.Struct)
STARTED = 120.0
"""Seconds for many subscribers to connect on a busy machine."""
STOPPED = 30.0


class BenchFailed(ZkmsError):
    """An experiment could not be carried out; the message says where and why."""


class ActorProcess(TalkingChild):
    """One actor, from outside."""

    def __init__(self, name: str, log: Path) -> None:
        super().__init__(name, "zkms.bench.processes.actor", log=log, error=BenchFailed)

    def done(self, kind: type[A], timeout: float) -> A:
        """Wait for its answer to the oldest order that it has not answered; `BenchFailed` if it says that it failed."""
        answer = self.answer(orders.answer_decoder, timeout)
        if isinstance(answer, orders.Failed):
            raise BenchFailed(f"{self.name}: {answer.reason}")
        if not isinstance(answer, kind):
            raise BenchFailed(f"{self.name} answered {answer!r:.200}, which was not the question")
        return answer


class PublishOutcome(msgspec.Struct):
    """What came of one order to publish, from the first publisher's begin to the last ack."""

    seconds: float
    publish_seconds: float
    publisher_cpu: float
    subscriber_cpu: float
    subscriber_memory: int
    """Bytes of the biggest subscriber process, at the most."""
    publisher_memory: int
    growth: int
    """Bytes by which it grew beyond what it had before."""
    latencies: list[float]
    frame: int
    late: int


class Crew:
    """Subscribers in `processes` processes, publishers in one each; all end with the `with` block."""

    def __init__(
        self,
        algorithm: str,
        place: BenchPlace,
        folder: Path,
        *,
        subscribers: int,
        processes: int = 2,
        publishers: int = 1,
        tally: orders.TallyKind = "count",
        session_timeout: float = 30.0,
    ) -> None:
        self._algorithm = algorithm
        self._place = place
        self._folder = folder
        self._shares = [share for share in _shares(subscribers, processes) if share]
        self._publisher_count = publishers
        self._tally = tally
        self._session_timeout = session_timeout
        self._stack = ExitStack()
        self.listeners: list[ActorProcess] = []
        self.publishers: list[ActorProcess] = []
        self.names: list[str] = []
        """Of the subscriptions."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        for i in range(len(self._shares)):
            self.listeners.append(self._process(f"subscriber process {i + 1}"))
        for i in range(self._publisher_count):
            self.publishers.append(self._process(f"publisher {i + 1}"))
        first = 0
        for process, share in zip(self.listeners, self._shares, strict=True):
            how = (self._tally, self._session_timeout)
            process.tell(orders.Subscribe(self._algorithm, self._place, first, share, *how))
            first += share
        for process in self.listeners:
            self.names += process.done(orders.Ready, STARTED).names
        self.tell_all(self.publishers, orders.Connect(self._algorithm, self._place))

    def _process(self, name: str) -> ActorProcess:
        process = ActorProcess(name, self._folder / f"{name.replace(' ', '-')}.log")
        self._stack.callback(process.kill)
        return process

    def tell_all(self, processes: Iterable[ActorProcess], order: orders.Order) -> list[orders.Ready]:
        """Give an order and wait until it is done."""
        told = list(processes)
        for process in told:
            process.tell(order)
        return [process.done(orders.Ready, STARTED) for process in told]

    def publish(self, order: orders.Publish) -> PublishOutcome:
        """Share the messages among the publishers, and return when the last subscriber has acked the last one."""
        shares = _shares(order.messages, len(self.publishers))
        before = self.tell_all(self.listeners, orders.Expect(order.messages))
        for process, share in zip(self.publishers, shares, strict=True):
            process.tell(msgspec.structs.replace(order, messages=share))
        for process in self.listeners:
            process.tell(orders.Await(order.timeout))
        return self._collect(order, before)

    def pile_up(self, order: orders.Publish) -> PublishOutcome:
        """Publish while the subscribers are held back, then let them go: `seconds` are those of the drain."""
        before = self.tell_all(self.listeners, orders.Expect(order.messages))
        (publisher,) = self.publishers
        publisher.tell(msgspec.structs.replace(order, settle=False))
        stored = publisher.done(orders.Published, order.timeout + STOPPED)
        began = time.monotonic()
        self.tell_all(self.listeners, orders.Release())
        publisher.tell(msgspec.structs.replace(order, messages=0))  # waits for the acks of what was published last
        for process in self.listeners:
            process.tell(orders.Await(order.timeout))
        outcome = self._collect(order, before, began)
        outcome.publish_seconds = stored.stored_at - stored.began_at
        return outcome

    def _collect(self, order: orders.Publish, before: list[orders.Ready], began: float | None = None) -> PublishOutcome:
        patience = order.timeout + STOPPED
        published = [process.done(orders.Published, patience) for process in self.publishers]
        tallied = [process.done(orders.Tallied, patience) for process in self.listeners]
        started = min(each.began_at for each in published) if began is None else began
        ended = max([each.settled_at for each in published] + [each.settled_at for each in tallied])
        usages = [(ready.usage, each.usage) for ready, each in zip(before, tallied, strict=True) if ready.usage]
        return PublishOutcome(
            seconds=ended - started,
            publish_seconds=max(each.stored_at for each in published) - started,
            publisher_cpu=sum(each.usage.cpu - each.usage_before.cpu for each in published),
            subscriber_cpu=sum(after.cpu - earlier.cpu for earlier, after in usages),
            subscriber_memory=max([after.peak for _, after in usages], default=0),
            publisher_memory=max(each.usage.peak for each in published),
            growth=max([after.peak - earlier.memory for earlier, after in usages], default=0),
            latencies=[latency for each in tallied for latency in each.latencies],
            frame=max(each.frame for each in published),
            late=sum(each.late for each in published),
        )

    def __exit__(self, *failed: Any) -> None:
        with self._stack:  # which kills whatever is left
            if failed[0] is None:
                for process in [*self.publishers, *self.listeners]:
                    process.tell(orders.Stop())
                for process in [*self.publishers, *self.listeners]:
                    process.done(orders.Ready, STOPPED)


def _shares(total: int, parts: int) -> list[int]:
    share, rest = divmod(total, parts)
    return [share + (i < rest) for i in range(parts)]
