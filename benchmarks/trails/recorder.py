"""What a trail costs those who leave it: two crews of the same size, one with a trail, take turns on one server."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.trails import results
from benchmarks.trails.trials import Part, Say
from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.processes.crew import Crew, PublishOutcome
from zkms.bench.processes.orders import Publish
from zkms.server.embedded import EmbeddedZooKeeper

SUBSCRIBERS = 20
MODULE = "zkms.bench.algorithms.ours"


def recorder(messages: int, rounds: int, say: Say) -> results.Recorder:
    """In each round both publish as many messages to twenty subscribers, who goes first changes.

    Short rounds, many of them, and ratios within each: what else the machine does is then the same for both.
    """
    part = Part()
    result = results.Recorder(part.conditions(), SUBSCRIBERS, messages, [], [], [], [])
    with tempfile.TemporaryDirectory(prefix="zkms-recorder-") as name, EmbeddedZooKeeper() as server:
        folder = Path(name)
        trail = folder / "trail"
        places = {
            False: BenchPlace(server.hosts, "/plain"),
            True: BenchPlace(server.hosts, "/recorded", trail=str(trail)),
        }
        folders = {kind: folder / str(kind) for kind in places}
        for each in folders.values():
            each.mkdir()
        with (
            Crew(MODULE, places[False], folders[False], subscribers=SUBSCRIBERS) as plain,
            Crew(MODULE, places[True], folders[True], subscribers=SUBSCRIBERS) as recorded,
        ):
            order = Publish(messages, timeout=600.0)
            for crew in (plain, recorded):
                crew.publish(order)  # to warm up
            for number in range(rounds):
                turn = (plain, recorded) if number % 2 == 0 else (recorded, plain)
                outcomes = {crew: crew.publish(order) for crew in turn}
                _compare(result, outcomes[plain], outcomes[recorded])
                say(f"  round {number + 1}: {result.publish[-1]:.3f} publish, {result.end_to_end[-1]:.3f} end to end")
    result.conditions = part.conditions()
    return result


def _compare(result: results.Recorder, plain: PublishOutcome, recorded: PublishOutcome) -> None:
    """Throughput with a trail over throughput without; by CPU it is the CPU without over the CPU with."""
    result.publish.append(plain.publish_seconds / recorded.publish_seconds)
    result.end_to_end.append(plain.seconds / recorded.seconds)
    result.publish_cpu.append(plain.publisher_cpu / recorded.publisher_cpu)
    both = [each.publisher_cpu + each.subscriber_cpu for each in (plain, recorded)]
    result.end_to_end_cpu.append(both[0] / both[1])
