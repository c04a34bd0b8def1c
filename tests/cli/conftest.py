"""What the tests of the command line share: running it as a process, against a root of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import pytest
from kazoo.client import KazooClient

from zkms.cli import main
from zkms.server.server import Server

COMMAND = [sys.executable, "-m", "zkms"]
Done = subprocess.CompletedProcess[str]
Quick = Callable[..., Done]


class Cli:
    """`zkms`, told by the environment where to connect, as a user's shell would."""

    def __init__(self, **environ: str) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")}
        self.environ = inherited | environ

    def __call__(self, *args: str, stdin: str = "", **environ: str) -> Done:
        """Run a command to its end."""
        return subprocess.run(
            [*COMMAND, *args], env=self.environ | environ, input=stdin, capture_output=True, text=True, timeout=90
        )

    @contextmanager
    def running(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on until the block ends."""
        with subprocess.Popen(
            [*COMMAND, *args],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def subscriber(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        """`zkms sub` that has subscribed."""
        with self.running("sub", *args) as process:
            assert process.stderr is not None
            first = process.stderr.readline()
            assert first.startswith("Subscribed to"), first + process.stderr.read()
            yield process


@pytest.fixture
def cli(zookeeper: Server, zookeeper_root: str) -> Cli:
    """`zkms` on the test's ZooKeeper and root."""
    return Cli(ZKMS_HOSTS=zookeeper.hosts, ZKMS_ROOT=zookeeper_root)


@pytest.fixture
def quick(zookeeper: Server, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch) -> Quick:
    """Commands in this process, where what starting a process costs would tell nothing more."""
    from click.testing import CliRunner

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
def lost() -> Cli:
    """`zkms` that knows of no ZooKeeper."""
    return Cli()


@pytest.fixture
def kazoo(zookeeper: Server) -> Iterator[KazooClient]:
    """Another program, which knows nothing of zkms."""
    client = KazooClient(zookeeper.hosts)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()
