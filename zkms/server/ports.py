"""TCP ports on loopback: free ones for a server to come, and whether a given one is taken."""

from __future__ import annotations

import random
import socket

from zkms.server.errors import ServerError

# Below the range from which kernels take local ports for outgoing connections (Linux 32768+, macOS 49152+): from there
# a client that keeps trying a dead server's port would sooner or later be given that very port as its own.
_RANGE = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that nobody listens on now; they are not reserved, so be ready to try others."""
    ports: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        if len(ports) == count:
            break
        if is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise ServerError(f"no {count} free ports between {_RANGE.start} and {_RANGE.stop}")
    return ports


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port, on loopback and on every interface."""
    return all(_can_bind(address, port) for address in ("127.0.0.1", ""))


def _can_bind(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier server that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except (OSError, OverflowError):
            return False
        return True
