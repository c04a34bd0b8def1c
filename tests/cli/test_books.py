"""The running books of docs/operations.md: every command is run in the state that it is for, and says what is there."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import zkms
from tests.support.buses import Eventually
from zkms import Bus, Message
from zkms.cli import main
from zkms.cli.failure import as_failure
from zkms.server.embedded import EmbeddedZooKeeper
from zkms.server.server import Server

Play = Callable[[str], None]
PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
_BLOCK = re.compile(r"<!-- (\w+: \w+) -->\n```console\n(.*?)```", re.DOTALL)
BLOCKS = dict(_BLOCK.findall(PAGE.read_text()))


def _mask(line: str) -> str:
    """A line without what differs from run to run: numbers, times, the test's root, and the width of columns."""
    line = re.sub(r"/zkms-test-\w+", "/zkms", line)
    line = re.sub(r"\d[\d,.]*", "0", line)
    return " ".join(re.sub(r"(0 (d|h|min) )?0 (s|min|h)\b", "0 s", line).split())


def _commands(block: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each command, and the lines that it prints."""
    for part in re.split(r"^\$ zkms ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield shlex.split(command), [line for line in output.splitlines() if line != "..."]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str, str], None]:
    """Run the commands of a block, and find in what they print all that the page says they print."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("zkms.cli.options.set_up_logging", lambda _verbose: None)

    def run(name: str, hosts: str, root: str) -> None:
        environ = {"ZKMS_HOSTS": hosts, "ZKMS_ROOT": root, "COLUMNS": "120"}
        for (command, *args), expected in _commands(BLOCKS[name]):
            found = main.get_command(click.Context(main), command)
            assert found is not None
            done = CliRunner().invoke(found, args, env=environ)
            said = done.stdout + done.stderr
            if isinstance(done.exception, zkms.ZkmsError):
                said += f"Error: {as_failure(done.exception).message}"
            elif done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            lines = {_mask(line) for line in said.splitlines()}
            for line in expected:
                assert _mask(line) in lines, f"zkms {command} {' '.join(args)} does not say {line!r}, but:\n{said}"

    return run


@pytest.fixture
def play(shell: Callable[[str, str, str], None], zookeeper: Server, zookeeper_root: str) -> Play:
    """The same on the test's ZooKeeper and root."""
    return lambda name: shell(name, zookeeper.hosts, zookeeper_root)


@pytest.fixture
def client(zookeeper: Server, zookeeper_root: str) -> Iterator[Callable[..., Bus]]:
    """Clients by name, none of which stands for election; closed afterwards."""
    buses: list[Bus] = []

    def connect(name: str, *, cleaner: bool = False) -> Bus:
        buses.append(zkms.connect(zookeeper.hosts, root=zookeeper_root, client_id=name, cleaner=cleaner))
        return buses[-1]

    yield connect
    for bus in buses:
        bus.close(timeout=0.5)


def test_zookeeper_is_down(shell: Callable[[str, str, str], None]) -> None:
    """Nobody answers; then the server is there again."""
    with EmbeddedZooKeeper() as server:
        with zkms.connect(server.hosts):
            pass
        server.kill(0)
        shell("down: seen", server.hosts, "/zkms")
        server.restart(0)
        shell("down: over", server.hosts, "/zkms")


def test_a_consumer_does_not_keep_up(client: Callable[..., Bus], play: Play, eventually: Eventually) -> None:
    """A durable subscription that nobody reads, and a live one whose handler hangs."""
    bus, slow = client("web-1"), client("web-2")
    bus.subscribe("orders", name="billing", limit=100).close()
    for n in range(100):
        bus.publish("orders", {"id": n})
    with pytest.raises(zkms.QueueFull):
        bus.publish("orders", {"id": 100})
    slow.subscribe("news", ack="manual", limit=10)
    eventually(
        lambda: bool(bus.publish("news", 1, if_nobody="drop")) and any(s.full for s in bus.subscriptions("news"))
    )
    play("full: seen")
    play("full: mended")
    play("full: over")
    bus.publish("orders", {"id": 200})


def test_dead_letters_pile_up(client: Callable[..., Bus], play: Play, eventually: Eventually) -> None:
    """A handler that raises; mended, it gets what is requeued."""
    bus = client("web-1")

    def broken(_message: Message) -> None:
        raise ValueError("no such customer")

    workers = bus.subscribe("jobs", broken, group="workers", partitions=1, max_attempts=1)
    for n in (1, 2):
        bus.publish("jobs", {"customer": n}, key=str(n), id=f"order-{n}")
    eventually(lambda: len(bus.dead_letters()) == 2)
    workers.close()
    play("dead: seen")
    play("dead: mended")
    play("dead: over")
    mended = bus.subscribe("jobs", group="workers")
    message = mended.get(timeout=30.0)
    assert message is not None
    assert message.data == {"customer": 1}
    message.ack()


def test_nobody_leads(client: Callable[..., Bus], play: Play, eventually: Eventually) -> None:
    """The leader goes away with a message that is not due yet; the next one catches up."""
    bus = client("web-1")
    sub = bus.subscribe("reminders", name="phone")
    delay = 1.0
    while True:
        leader = client(f"cleaner-{delay:g}", cleaner=True)
        leader.publish("reminders", "call him", delay=delay)  # it knows that it stands for election
        leader.close()
        if bus.delayed():
            break
        message = sub.get(timeout=30.0)  # it was due before the leader was gone: a slow machine
        assert message is not None
        message.ack()
        delay *= 2
    eventually(lambda: time.time() > bus.delayed()[0].next_due, timeout=delay + 30.0)
    play("leader: seen")
    client("cleaner-1", cleaner=True)
    message = sub.get(timeout=60.0)
    assert message is not None
    assert message.data == "call him"
    message.ack()
    play("leader: over")


def test_zookeeper_grows(client: Callable[..., Bus], play: Play) -> None:
    """A subscriber has died, and nobody leads."""
    bus, dead = client("web-1"), client("web-2")
    dead.subscribe("news")
    for n in range(20):
        bus.publish("news", n)
    dead.parts.session.close()  # as a killed process: nothing is given up
    play("grows: seen")
    play("grows: mended")
    play("grows: over")


def test_the_data_are_lost(client: Callable[..., Bus], play: Play, zookeeper: Server, zookeeper_root: str) -> None:
    """A backup is made, everything goes, and what was kept comes back."""
    from zkms.testing.roots import delete_root

    bus = client("web-1", cleaner=True)
    bus.subscribe("orders", name="billing").close()
    for n in range(5):
        bus.publish("orders", n)
    bus.publish("orders", "later", delay=3600.0)
    play("backup: done")
    bus.close()
    delete_root(zookeeper.hosts, zookeeper_root)
    play("lost: mended")
    restored = client("web-2").subscribe("orders", name="billing")
    assert [message.data for message in restored.fetch(5, timeout=30.0)] == list(range(5))


def test_every_block_of_the_page_is_played() -> None:
    """What is not run goes stale."""
    source = Path(__file__).read_text()
    assert [name for name in BLOCKS if not re.search(rf'(play|shell)\("{name}"', source)] == []
    assert len(BLOCKS) == len(re.findall(r"```console", PAGE.read_text()))
