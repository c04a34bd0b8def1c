"""ZooKeeper's four-letter words: what a server says about itself, without a session."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterable

from zkms.server.errors import ServerError

SERVING = frozenset({"standalone", "leader", "follower"})


def ask(host: str, port: int, word: str = "srvr", timeout: float = 2.0) -> str:
    """Send a four-letter word and return the answer; OSError where nobody answers in time."""
    with socket.create_connection((host, port), timeout=timeout) as connection:
        connection.sendall(word.encode("ascii"))
        answer = bytearray()
        while part := connection.recv(65_536):
            answer += part
    return answer.decode("utf-8", errors="replace")


def mode(host: str, port: int, timeout: float = 2.0) -> str | None:
    """Return "standalone", "leader" or "follower", or None while the server does not serve clients."""
    try:
        answer = ask(host, port, timeout=timeout)
    except OSError:
        return None  # not an error here: a server that is down, paused or cut off has no mode
    match = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
    return match[1] if match and match[1] in SERVING else None


def await_serving(
    addresses: Iterable[tuple[str, int]], timeout: float, check: Callable[[], None] = lambda: None
) -> None:
    """Return once every server answers with a mode; `check` runs between attempts and may raise to give up early."""
    waiting, deadline = list(addresses), time.monotonic() + timeout
    while True:
        waiting = [(host, port) for host, port in waiting if mode(host, port) is None]
        if not waiting:
            return
        check()
        if time.monotonic() > deadline:
            names = ", ".join(f"{host}:{port}" for host, port in waiting)
            raise ServerError(f"ZooKeeper on {names} does not answer after {timeout:g} s")
        time.sleep(0.02)
