"""The runs: every peer in every round, each on a server started for it, in turns."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from benchmarks.peers import Peer
from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.experiments import PROCESSES, TIMEOUT, at_full_speed
from zkms.bench.processes.crew import BenchFailed, Crew
from zkms.bench.processes.meter import others_at_work
from zkms.bench.processes.orders import Publish, TallyKind
from zkms.bench.results import median
from zkms.cli.output import plural
from zkms.server.errors import ServerError
from zkms.version import __version__

SUBSCRIBERS = (1, 20)
PACK = 256
SIZE = 100
WAYS = {1: "message by message", PACK: f"{PACK} packed by hand"}
MANY = 20
LEAST = {1: 2.0, PACK: 0.5}
"""What zkms has to reach against each peer with 20 subscribers, by how the peer is used."""


class Figure(msgspec.Struct, kw_only=True):
    """One peer, used in one way: messages/s until the last subscriber has acked the last message."""

    peer: str
    durability: str
    subscribers: int
    pack: int
    messages: int
    seconds: float
    messages_per_s: float
    rounds: list[float] = []
    """The messages/s of every round; the figure is the median."""


class Comparison(msgspec.Struct, kw_only=True):
    """All that was measured, and where."""

    zkms: str
    python: str
    system: str
    cores: int
    rounds: int
    others: str
    figures: list[Figure] = []
    absent: dict[str, str] = {}
    """Who did not take part, and why."""

    def find(self, peer: str, subscribers: int, pack: int = 1) -> Figure | None:
        """A figure, if it was measured."""
        wanted = (peer, subscribers, pack)
        return next((f for f in self.figures if (f.peer, f.subscribers, f.pack) == wanted), None)

    def ratio(self, figure: Figure) -> float | None:
        """How many times as fast zkms is with as many subscribers."""
        ours = self.find("zkms", figure.subscribers)
        return None if ours is None else ours.messages_per_s / figure.messages_per_s


def compare(
    peers: list[Peer], *, rounds: int, seconds: float, subscribers: tuple[int, ...], say: Callable[[str], None]
) -> Comparison:
    """Measure all; one that is missing or fails is named with the reason, and the others go on."""
    result = Comparison(
        zkms=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        rounds=rounds,
        others=others_at_work(),
    )
    result.absent = {peer.name: peer.lacks for peer in peers if peer.lacks}
    measured: dict[tuple[str, int, int], list[Figure]] = {}
    for number in range(rounds):
        turn = peers if number % 2 == 0 else peers[::-1]
        for peer in turn:
            if peer.name in result.absent:
                continue
            say(f"round {number + 1}: {peer.name}")
            try:
                with closing(measure(peer, seconds, subscribers)) as figures:
                    for figure in figures:
                        measured.setdefault((figure.peer, figure.subscribers, figure.pack), []).append(figure)
                        who = plural(figure.subscribers, "subscriber")
                        say(f"  {who}, {WAYS[figure.pack]}: {figure.messages_per_s:,.0f} messages/s")
            except (BenchFailed, ServerError) as error:
                result.absent[peer.name] = str(error)
                say(f"  failed: {error}")
    for rows in measured.values():
        middle = median(rows, lambda figure: figure.messages_per_s)
        middle.rounds = [figure.messages_per_s for figure in rows]
        result.figures.append(middle)
    return result


def measure(peer: Peer, seconds: float, subscribers: tuple[int, ...]) -> Generator[Figure, None, None]:
    """All figures of one peer, on a server that was started for them and warmed up."""
    with tempfile.TemporaryDirectory(prefix="zkms-peers-") as name, findable():
        folder = Path(name)
        with peer.start(folder) as address:
            _run(peer, BenchPlace(address, "/warm-up"), folder, seconds, 1, 1)
            for count in subscribers:
                for pack in WAYS if peer.packed else (1,):
                    yield _run(peer, BenchPlace(address, f"/s{count}-p{pack}"), folder, seconds, count, pack)


def _run(peer: Peer, place: BenchPlace, folder: Path, seconds: float, subscribers: int, pack: int) -> Figure:
    tally: TallyKind = "count" if pack == 1 else "unpack"
    with Crew(peer.module, place, folder, subscribers=subscribers, processes=PROCESSES, tally=tally) as crew:
        first = Publish(peer.first * pack, SIZE, pack=pack, timeout=TIMEOUT)
        order, outcome, _, _ = at_full_speed(crew, first, seconds, lambda: None)
    return Figure(
        peer=peer.name,
        durability=peer.durability,
        subscribers=subscribers,
        pack=pack,
        messages=order.messages,
        seconds=outcome.seconds,
        messages_per_s=order.messages / outcome.seconds,
    )


@contextmanager
def findable() -> Iterator[None]:
    """Let the processes that we start import this package, wherever we were started."""
    before = os.environ.get("PYTHONPATH")
    here = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = here if not before else f"{here}{os.pathsep}{before}"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
