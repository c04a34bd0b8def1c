"""Is ZooKeeper reachable, recent, quick, and as large in its limits as zkms needs it?"""

from __future__ import annotations

import re
import secrets
import statistics
import time
from collections.abc import Callable, Iterator

from kazoo.hosts import collect_hosts

from zkms.cli.connection import Inspector
from zkms.cli.operate.checks import Finding, Level
from zkms.config import Config
from zkms.errors import ConnectionLost, StoreError
from zkms.server.words import ask
from zkms.zookeeper.operations import MAX_TRANSACTION, Create, Delete

OLDEST_MAINTAINED = (3, 8)
SLOW = 0.1
ROUNDS = 5
MANY_ZNODES = 1_000_000


def check_servers(config: Config) -> Iterator[Finding]:
    """Each server by itself, asked with four-letter words, which need no session."""
    addresses = [(str(host), int(port)) for host, port in collect_hosts(config.hosts)[0]]
    if config.tls is not None:
        yield Finding("servers", "ok", f"{len(addresses)} named, spoken to by TLS: not asked one by one")
        return
    for host, port in addresses:
        yield from _check_server(host, port, alone=len(addresses) == 1, session_timeout=config.session_timeout)


def _check_server(host: str, port: int, *, alone: bool, session_timeout: float) -> Iterator[Finding]:
    where = f"server {host}:{port}"
    bad: Level = "problem" if alone else "warning"
    try:
        answer = ask(host, port, "srvr")
    except OSError as error:
        yield Finding(where, bad, f"does not answer: {error.strerror or error}", "start it, or leave it out of hosts")
        return
    version = re.search(r"version: (\d+)\.(\d+)\.(\d+)", answer)
    if version is None:
        if "not currently serving" in answer:
            yield Finding(where, bad, "runs, but has no quorum", "start the other servers")
        else:
            hidden = "does not tell about itself"
            yield Finding(where, "ok", hidden, "for more: 4lw.commands.whitelist=srvr,conf in its zoo.cfg")
        return
    yield _version(where, tuple(map(int, version.groups())), answer, alone)
    if (count := _number(r"^Node count: (\d+)", answer)) is not None and count > MANY_ZNODES:
        yield Finding(where, "warning", f"holds {count:,} znodes, all in memory", "'zkms queues' shows the long queues")
    yield from _session_times(where, _ask_or_nothing(host, port, "conf"), session_timeout)


def _version(where: str, version: tuple[int, ...], answer: str, alone: bool) -> Finding:
    name = ".".join(map(str, version))
    mode = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
    said = f"ZooKeeper {name}, {mode[1] if mode else 'mode unknown'}"
    if version[:2] < OLDEST_MAINTAINED:
        return Finding(where, "warning", f"{said}: no longer maintained", "upgrade to 3.9")
    if mode and mode[1] == "standalone" and not alone:
        return Finding(where, "problem", f"{said}: not in one ensemble with the others", "check server.N in zoo.cfg")
    advice = "for production, three servers survive the loss of one" if mode and mode[1] == "standalone" else ""
    return Finding(where, "ok", said, advice)


def _session_times(where: str, conf: str, wanted: float) -> Iterator[Finding]:
    low, high = _number(r"^minSessionTimeout=(\d+)", conf), _number(r"^maxSessionTimeout=(\d+)", conf)
    if low is None or high is None:
        return
    allowed = f"allows sessions of {low / 1000:g} to {high / 1000:g} s"
    if low <= wanted * 1000 <= high:
        yield Finding(where, "ok", f"{allowed}; zkms asks for {wanted:g} s")
    else:
        got = low if wanted * 1000 < low else high
        advice = "set minSessionTimeout and maxSessionTimeout in zoo.cfg, or session_timeout= in zkms.connect()"
        yield Finding(where, "warning", f"{allowed}; zkms asks for {wanted:g} s and gets {got / 1000:g} s", advice)


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text, re.MULTILINE)
    return int(match[1]) if match else None


def _ask_or_nothing(host: str, port: int, word: str) -> str:
    try:
        return ask(host, port, word)
    except OSError:
        return ""  # it told its version a moment ago, so what it does not answer now is disabled


def check_speed(inspector: Inspector) -> Iterator[Finding]:
    """How long a write and a read take, and whether a transaction of the size that zkms uses goes through."""
    session, root, rights = inspector.session, inspector.tree.root, inspector.session.rights
    parent = root if session.exists(root) is not None else ""
    if rights is not None and not rights.cleans:
        parent = inspector.tree.clients  # where everybody may come and go
    path = f"{parent}/doctor-{secrets.token_hex(6)}"

    def write(size: int = 0) -> None:
        """Leaves nothing behind: the znode exists within the transaction only."""
        session.multi([Create(path, bytes(size), ephemeral=True), Delete(path)])

    try:
        yield _latency("write", _median(write), "look at the servers' disks and load")
    except ConnectionLost:
        raise
    except StoreError as error:
        yield Finding("write", "problem", f"not possible: {error}", "give these credentials the right to write there")
        return
    yield _latency("read", _median(lambda: session.exists(root)), "look at the network and the servers' load")
    size = MAX_TRANSACTION - 4096
    try:
        write(size)
        yield Finding("largest request", "ok", f"a transaction of {size // 1024:,} KiB goes through")
    except StoreError as error:
        advice = "set -Djute.maxbuffer=1048575 or more on all servers"
        yield Finding("largest request", "problem", f"one of {size // 1024:,} KiB does not go through: {error}", advice)


def _median(step: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        step()
        taken.append(time.monotonic() - began)
    return statistics.median(taken)


def _latency(what: str, seconds: float, advice: str) -> Finding:
    said = f"{seconds * 1000:.1f} ms (median of {ROUNDS})"
    return Finding(what, "warning", f"slow: {said}", advice) if seconds > SLOW else Finding(what, "ok", said)
