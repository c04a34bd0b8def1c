"""A run for people: tables, and what they mean."""

from __future__ import annotations

import click

from zkms.bench.results import Broker, Document, Latency, Throughput
from zkms.cli.output import print_table

ACKNOWLEDGEMENT = "publish() returns when stored; a subscriber acks each message by returning from its handler"


def broker_metrics(document: Document) -> list[Broker]:
    """A line for each number of publishers and subscribers that zkms was measured with."""
    return [
        Broker(
            published_per_s=round(row.published_per_s),
            consumed_per_s=round(row.deliveries_per_s),
            message_size=row.size,
            publishers=row.publishers * max(1, row.threads),
            consumers=row.subscribers,
            persistence=document.machine.persistence,
            acknowledgement=ACKNOWLEDGEMENT,
        )
        for row in document.throughput
        if row.algorithm == "zkms"
    ]


def show(document: Document) -> None:
    """Print everything that was measured."""
    _machine(document)
    _throughput(document)
    _latency(document)
    _others(document)
    _broker(document)
    _targets(document)
    for title, reason in document.failures.items():
        click.echo(f"\nNot measured: {title}: {reason}")


def _title(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")


def _machine(document: Document) -> None:
    machine = document.machine
    where = "embedded" if machine.embedded else "given with --hosts"
    click.echo(
        f"zkms {machine.zkms}, ZooKeeper {machine.zookeeper} ({where}), Python {machine.python}, {machine.system}, "
        f"{machine.cores} cores; median of {document.rounds} round(s)"
    )
    if machine.others:
        click.echo(click.style(f"Careful: {machine.others}.", fg="yellow"))


def _cost(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def _throughput(document: Document) -> None:
    if not document.throughput:
        return
    _title("Throughput, end to end: until the last subscriber has acked the last message")
    print_table(
        ("ALGORITHM", "SUBSCRIBERS", "PUBLISHERS", "TOPICS", "BYTES", "MESSAGES/S", "DELIVERIES/S", "AGAINST ORIGINAL"),
        [
            (
                row.algorithm, row.subscribers, _publishers(row), row.topics, row.size, round(row.messages_per_s),
                round(row.deliveries_per_s), _against_original(document, row),
            )
            for row in document.throughput
        ],
        empty="",
    )  # fmt: skip
    _title("What a delivery costs; the memory of the biggest process, and what a message adds to the subscriber's")
    print_table(
        ("ALGORITHM", "SUBSCRIBERS", "PUBLISHERS", "TOPICS", "BYTES", "REQUESTS", "PUB CPU US",
         "SUB CPU US", "ZK CPU US", "PUB MB", "SUB MB", "SUB B/MESSAGE", "ZK MB"),
        [
            (
                row.algorithm, row.subscribers, _publishers(row), row.topics, row.size,
                _cost(row.requests_per_delivery), _cost(row.publisher_cpu_us), _cost(row.subscriber_cpu_us),
                _cost(row.server_cpu_us), round(row.publisher_memory_mb), round(row.subscriber_memory_mb),
                _cost(row.subscriber_bytes), _cost(row.server_memory_mb and round(row.server_memory_mb)),
            )
            for row in document.throughput
        ],
        empty="",
    )  # fmt: skip


def _publishers(row: Throughput) -> str:
    return f"{row.threads} threads" if row.threads else str(row.publishers)


def _against_original(document: Document, row: Throughput) -> str:
    original = document.find("original", row.subscribers)
    if original is None or row.algorithm == "original" or row.size != original.size:
        return "-"
    return f"{row.messages_per_s / original.messages_per_s:,.0f}x"


def _latency(document: Document) -> None:
    if not document.latency:
        return
    _title("Latency at a fixed rate, from publish() to the handler (floor: bare kazoo's create, watch event and get)")
    print_table(
        ("ALGORITHM", "SUBSCRIBERS", "RATE/S", "P50 MS", "P99 MS", "P99.9 MS", "LATE", "REQUESTS", "AGAINST FLOOR"),
        [
            (
                row.algorithm, row.subscribers, row.rate, f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}",
                f"{row.p999_ms:.2f}", row.late, _cost(row.requests_per_delivery), _against_floor(document, row),
            )
            for row in document.latency
        ],
        empty="",
    )  # fmt: skip


def _against_floor(document: Document, row: Latency) -> str:
    floor = document.find_latency("floor", row.subscribers)
    return "-" if floor is None or row is floor else f"{row.p50_ms / floor.p50_ms:.2f}x"


def _others(document: Document) -> None:
    if document.drain:
        _title("Drain of a backlog by one subscriber")
        rows = [(row.backlog, round(row.messages_per_s), row.growth_mb) for row in document.drain]
        print_table(("BACKLOG", "MESSAGES/S", "MEMORY GREW BY MB"), rows, empty="")
    if document.purge:
        _title("Purge of a dead subscriber's queue (kazoo: delete(recursive=True))")
        purges = [(row.algorithm, row.znodes, round(row.znodes_per_s)) for row in document.purge]
        print_table(("BY", "ZNODES", "ZNODES/S"), purges, empty="")


def _broker(document: Document) -> None:
    if not document.broker:
        return
    _title("To choose a broker by")
    print_table(
        ("PUBLISHED/S", "CONSUMED/S", "MESSAGE SIZE", "PUBLISHERS", "CONSUMERS"),
        [(b.published_per_s, b.consumed_per_s, b.message_size, b.publishers, b.consumers) for b in document.broker],
        empty="",
    )
    click.echo(f"Persistence: {document.machine.persistence}.\nAcknowledgement: {ACKNOWLEDGEMENT}.")


def _targets(document: Document) -> None:
    if not document.targets:
        return
    _title("What is required")
    print_table(
        ("WORK", "REQUIRED", "MEASURED", "MET"),
        [(target.work, target.required, target.measured, target.met) for target in document.targets],
        empty="",
    )
