"""A real ZooKeeper for tests: embedded or in containers, with faults on demand.

    EmbeddedZooKeeper    child processes of this one, from `zkms[server]`
    ZooKeeperContainer   containers, from `zkms[test]`
    Proxy                cut, delay or swallow what goes between a client and ZooKeeper
    expire               end a bus's session for good, as an expiry does
    ServerError          what all of them raise

pytest finds the fixtures `zookeeper`, `zookeeper_ensemble`, `zookeeper_root` and `bus` by itself.

For tests only: programs import `zkms.server`. May import the façade and `zkms.server`. Read `fixtures` first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zkms.server.embedded import EmbeddedZooKeeper
    from zkms.server.errors import ServerError
    from zkms.testing.container import ZooKeeperContainer
    from zkms.testing.expiry import expire
    from zkms.testing.proxy import Proxy

__all__ = ["EmbeddedZooKeeper", "Proxy", "ServerError", "ZooKeeperContainer", "expire"]

_HOMES = {
    "EmbeddedZooKeeper": "zkms.server.embedded",
    "Proxy": "zkms.testing.proxy",
    "ServerError": "zkms.server.errors",
    "ZooKeeperContainer": "zkms.testing.container",
    "expire": "zkms.testing.expiry",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: pytest loads this package in every run, and Docker's client is slow to load."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
