"""True session expiry on demand: the server closes the session, as it does for a client that was away too long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from zkms.server.errors import ServerError

if TYPE_CHECKING:
    from zkms.bus import Bus


def expire(bus: Bus, timeout: float = 20.0) -> None:
    """End the bus's session on the server, and return when it is gone there; the bus learns it when it reconnects.

    A second client takes the session over and closes it. The bus may take it back in between, so this is repeated until
    the server gives a newcomer with that session's id a new one, which proves that the old one has ended.
    """
    if bus.parts.session.client_id is None:
        raise ServerError("the bus has no session to expire: it has not connected yet")
    session_id, password = bus.parts.session.client_id
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        client = KazooClient(bus.parts.session.config.hosts, client_id=(session_id, password))
        try:
            client.start(timeout=max(0.1, deadline - time.monotonic()))
            granted, _ = client.client_id
        finally:
            client.stop()
            client.close()
        if granted != session_id:
            return
    raise ServerError(f"session 0x{session_id:x} has not ended after {timeout:g} s")
