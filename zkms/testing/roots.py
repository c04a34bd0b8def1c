"""Fresh roots for tests, and their removal, whoever has written what under them."""

from __future__ import annotations

import secrets
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError, RolledBackError, RuntimeInconsistency

from zkms.server.errors import ServerError

_BATCH = 1_000  # deletes in a transaction, far below the server's limit for a request


def new_root() -> str:
    """Return a root that no other test has used."""
    return f"/zkms-test-{secrets.token_hex(6)}"


def delete_root(hosts: str, root: str, timeout: float = 30.0) -> None:
    """Delete `root` and all below it through a client of its own; nothing happens if it does not exist."""
    client = KazooClient(hosts)
    client.start(timeout=timeout)
    deadline = time.monotonic() + timeout
    try:
        while not _try_delete(client, root):
            if time.monotonic() > deadline:
                raise ServerError(f"{root} cannot be deleted: something still writes below it after {timeout:g} s")
    finally:
        client.stop()
        client.close()


def _try_delete(client: KazooClient, root: str) -> bool:
    """Delete what is there now, in large transactions; False if it changed meanwhile, as when a dead session ends."""
    level, levels = [root], [[root]]
    while level:
        replies = [(path, client.get_children_async(path)) for path in level]
        try:
            level = [f"{path}/{child}" for path, reply in replies for child in reply.get(timeout=30)]
        except NoNodeError:
            return client.exists(root) is None
        levels.append(level)
    paths = [path for below in reversed(levels) for path in below]
    for start in range(0, len(paths), _BATCH):
        transaction = client.transaction()
        for path in paths[start : start + _BATCH]:
            transaction.delete(path)
        for result in transaction.commit():
            if isinstance(result, NoNodeError | NotEmptyError):
                return False
            # The other operations of a failed transaction carry no reason of their own.
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                raise result
    return True
