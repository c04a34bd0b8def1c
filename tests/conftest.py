"""What all rooms share: the fixtures of the pytest plugin `zkms.testing.fixtures`, as users have them, and these.

A room's own conftest.py overrides only what differs there: mostly `connect_options`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import settings
from kazoo.client import KazooClient

import zkms
from tests.support.blocking import EventLoop
from tests.support.buses import Buses, Connect, Eventually
from tests.support.cli import Cli, Done, Quick
from tests.support.delayed import Sleeper
from zkms.cli import main
from zkms.config import Config
from zkms.server.server import Server
from zkms.testing import Proxy
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session

HERE = Path(__file__).parent
ON_ONE_SERVER = {"aio", "integrations", "requirements", "spark", "verification/fuzz"}
"""Rooms to which it makes no difference where the server runs. Modules elsewhere are marked `on_one_server`."""

settings.register_profile("zkms", deadline=None)  # a busy machine is no counterexample
settings.load_profile("zkms")
pytest_plugins = ["pytester"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # commands under test are interrupted, and inherit this


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module marked `on_asyncio_too` on zkms.aio as well."""
    if "api" in metafunc.fixturenames and metafunc.definition.get_closest_marker("on_asyncio_too"):
        metafunc.parametrize("api", ["threads", "asyncio"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a second kind of server, or a second API, would add nothing to."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        items[:] = [item for item in items if not _is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)


def _is_left_out(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    on_asyncio = params.get("api") == "asyncio"
    if on_asyncio and item.get_closest_marker("of_threads"):
        return True
    if params.get("zookeeper_kind") != "container":
        return False
    room = item.path.parent.relative_to(HERE).as_posix()
    return on_asyncio or room in ON_ONE_SERVER or item.get_closest_marker("on_one_server") is not None


@pytest.fixture
def eventually() -> Eventually:
    """Wait until a condition holds, with a deadline."""

    def wait(condition: Callable[[], object], timeout: float = 30.0, what: str = "the condition") -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true in {timeout:g} s"
            time.sleep(0.01)

    return wait


@pytest.fixture
def api(request: pytest.FixtureRequest) -> str:
    """What the test's buses are made by: "threads" is zkms, "asyncio" is zkms.aio on an event loop of the test's."""
    return str(getattr(request, "param", "threads"))


@pytest.fixture
def event_loop_thread(api: str) -> Iterator[EventLoop | None]:
    """An event loop that runs as long as the test does, if it is about asyncio."""
    loop = EventLoop() if api == "asyncio" else None
    yield loop
    if loop is not None:
        loop.close()


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy of the test's own."""
    with Proxy(zookeeper.hosts) as running:
        yield running


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """What buses are connected with, unless the test says otherwise."""
    return {}


@pytest.fixture
def connect(
    request: pytest.FixtureRequest,
    zookeeper: Server,
    zookeeper_root: str,
    event_loop_thread: EventLoop | None,
    connect_options: dict[str, Any],
) -> Iterator[Connect]:
    """Connect a bus under the test's root, `through` a proxy or directly; closed afterwards.

    It does not clean unless asked to, so that nothing but the test changes the tree.
    """
    proxy = request.getfixturevalue("proxy") if "proxy" in request.fixturenames else None
    buses = Buses(zookeeper.hosts, zookeeper_root, event_loop_thread, **{"cleaner": False, **connect_options})
    yield buses
    if proxy is not None:
        proxy.heal()  # so that they can say goodbye
    buses.close()


@pytest.fixture
def bus(connect: Connect) -> zkms.Bus:
    """A bus with the room's options."""
    return connect()


@pytest.fixture
def leader(connect: Connect, eventually: Eventually) -> zkms.Bus:
    """A bus that leads the cleaners, and publishes."""
    bus = connect(cleaner=True)
    eventually(lambda: bus.parts.cleaner is not None and bus.parts.cleaner.leading)
    return bus


@pytest.fixture
def sleeper(connect: Connect) -> Sleeper:
    """A leader that moves nothing; messages can be delayed."""
    return Sleeper(connect())


@pytest.fixture
def tree(zookeeper_root: str) -> Tree:
    """The paths of the test's root."""
    return Tree(zookeeper_root)


@pytest.fixture
def kazoo_clients() -> Iterator[Callable[..., KazooClient]]:
    """Connect a plain kazoo client to any server; closed after the test."""
    clients: list[KazooClient] = []

    def start(hosts: str, **options: object) -> KazooClient:
        client = KazooClient(hosts, **options)
        clients.append(client)
        client.start(timeout=20)
        return client

    yield start
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def raw(zookeeper: Server, kazoo_clients: Callable[..., KazooClient]) -> KazooClient:
    """Another program on the same ZooKeeper, which does as it likes."""
    return kazoo_clients(zookeeper.hosts)


@pytest.fixture
def cli(zookeeper: Server, zookeeper_root: str) -> Cli:
    """`zkms` on the test's ZooKeeper and root."""
    return Cli(ZKMS_HOSTS=zookeeper.hosts, ZKMS_ROOT=zookeeper_root)


@pytest.fixture
def lost() -> Cli:
    """`zkms` that knows of no ZooKeeper."""
    return Cli()


@pytest.fixture
def quick(zookeeper: Server, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch) -> Quick:
    """Commands in this process, where what starting a process costs would tell nothing more."""
    monkeypatch.setattr("zkms.cli.options.set_up_logging", lambda _verbose: None)
    environ = {"ZKMS_HOSTS": zookeeper.hosts, "ZKMS_ROOT": zookeeper_root}
    context = click.Context(main)

    def run(name: str, *args: str, stdin: str = "", **more: str) -> Done:
        command = main.get_command(context, name)
        assert command is not None
        done = CliRunner().invoke(command, args, input=stdin, env=environ | more)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess([name, *args], done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def session(zookeeper: Server, zookeeper_root: str) -> Iterator[Session]:
    """A session as the command line has it."""
    opened = Session(Config(hosts=zookeeper.hosts, root=zookeeper_root, cleaner=False))
    opened.start()
    yield opened
    opened.close()
