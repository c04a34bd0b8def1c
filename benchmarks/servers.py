"""The peers' servers, from the distribution's packages: on loopback, on free ports, with data of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from zkms.server.child import Child, last_words
from zkms.server.embedded import EmbeddedZooKeeper
from zkms.server.errors import ServerError
from zkms.server.ports import free_ports

STARTED = 90.0
STOPPED = 20.0
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Not the one on the path, which changes to another user and to the system's data directory."""


def missing(command: str) -> bool:
    """Whether a server is not installed."""
    return not RABBITMQ.exists() if command == "rabbitmq-server" else _find(command) is None


def install(packages: list[str]) -> None:
    """Get packages with apt-get, as root; else say which to install."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServerError(f"install {' '.join(packages)} first: this can be done here by root with apt-get only")
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *packages]
    # The packages would start servers of their own, on the usual ports: not where this file says no.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        for step in (["apt-get", "update", "--quiet"], command):
            done = subprocess.run(step, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode != 0:
                raise ServerError(f"{' '.join(step)} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    finally:
        if ours:
            policy.unlink()


def _find(command: str) -> str | None:
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def _running(
    command: list[str | Path], log: Path, port: int, environ: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A server until the block ends; returns when its port can be connected to."""
    child = Child(command, log=log, env=environ)
    try:
        deadline = time.monotonic() + STARTED
        while not _answers(port):
            if child.returncode is not None or time.monotonic() > deadline:
                raise ServerError(f"{command[0]} does not answer on port {port}; its last words: {last_words(log)}")
            time.sleep(0.05)
        yield
    finally:
        child.terminate(STOPPED)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Every command that writes is on disk before it is answered."""
    [port] = free_ports(1)
    command = [
        _find("redis-server") or "redis-server",
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(folder),
    ]
    command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"]
    with _running([*command], folder / "redis.log", port):
        yield f"127.0.0.1:{port}"


@contextmanager
def nats(folder: Path) -> Iterator[str]:
    """JetStream with its files in the folder."""
    [port] = free_ports(1)
    command = [_find("nats-server") or "nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    with _running([*command], folder / "nats.log", port):
        yield f"127.0.0.1:{port}"


@contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """A node that finds itself through a name server (epmd) of its own, so that none is left running."""
    port, names, distribution = free_ports(3)
    plugins = folder / "plugins"
    plugins.write_text("[].\n")
    environ = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        # Makes its script become the server, instead of waiting for it: so the child is the server.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
    with ExitStack() as stack:
        stack.enter_context(_running(["epmd"], folder / "epmd.log", names, environ))
        stack.enter_context(_running([RABBITMQ], folder / "rabbitmq.log", port, environ))
        yield f"127.0.0.1:{port}"


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """The embedded one, as `zkms bench` starts it."""
    with EmbeddedZooKeeper(heap="2g", data=folder / "zookeeper") as server:
        yield server.hosts
