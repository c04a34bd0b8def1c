"""The ZooKeeper that is measured: one of the user's, or one of our own for as long as it takes."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.processes.meter import ServerMeter
from zkms.cli.connection import inspection_config
from zkms.cli.options import CommandSettings
from zkms.errors import StoreError
from zkms.server.embedded import EmbeddedZooKeeper
from zkms.server.words import ask
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import Delete
from zkms.zookeeper.session import Session

HEAP = "2g"
"""A million messages that wait are in the server's memory, and in its transaction log."""


class Site:
    """A ZooKeeper, a root of our own in it, and a folder for what the processes say."""

    def __init__(self, hosts: str, root: str, folder: Path, pids: list[int]) -> None:
        self.hosts = hosts
        self.root = root
        self.folder = folder
        self.embedded = bool(pids)
        self.meter = ServerMeter(hosts, pids)
        self._numbers = itertools.count(1)

    def place(self) -> BenchPlace:
        """A root that nothing was in before, so that no experiment sees what another has left."""
        return BenchPlace(self.hosts, f"{self.root}/{next(self._numbers)}")

    @property
    def version(self) -> str:
        """Of the server, as far as it tells."""
        host, _, port = self.hosts.split(",")[0].split("/")[0].rpartition(":")
        try:
            found = re.search(r"version: ([\w.]+)", ask(host, int(port)))
        except (OSError, ValueError):
            return "unknown"
        return found[1] if found else "unknown"


@contextmanager
def open_site(hosts: str | None, root: str) -> Iterator[Site]:
    """Start a ZooKeeper, or use the one that was named; nothing is left there afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="zkms-bench-")))
        root = f"{root}-bench-{secrets.token_hex(4)}"
        if hosts is None:
            server = stack.enter_context(EmbeddedZooKeeper(heap=HEAP))
            yield Site(server.hosts, root, folder, [pid for pid in server.pids if pid is not None])
            return
        session = Session(inspection_config(CommandSettings(hosts, root, json=False)))
        stack.callback(session.close)
        session.start()
        try:
            yield Site(hosts, root, folder, [])
        finally:
            _remove(session, root)


def _remove(session: Session, root: str) -> None:
    """Delete our root; the ephemerals in it end with their sessions, whoever of us is gone already."""
    try:
        delete_children(session, root)
        if session.exists(root) is not None:
            session.multi([Delete(root)])
    except StoreError as error:
        error.add_note(f"{root} is left in ZooKeeper: delete it")
        raise
