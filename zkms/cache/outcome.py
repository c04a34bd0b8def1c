"""What invalidate(wait=...) returns: who has dropped it, and who has not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from zkms.errors import ZkmsError


class Outcome(msgspec.Struct, frozen=True):
    """True if every live node has dropped it; else `missing` says who has not, and why."""

    dropped: tuple[str, ...] = ()
    """Clients that have dropped it, or that cannot serve it any more. This node itself is not among them."""
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Clients that may still serve the old value, each with the reason. They do so for `max_staleness` at the most."""
    error: ZkmsError | None = None
    """Why nobody could be told yet, if so. It is tried on."""

    @property
    def sent(self) -> bool:
        """Whether the invalidation is on its way: stored in ZooKeeper for every live node."""
        return self.error is None

    def __bool__(self) -> bool:
        return self.error is None and not self.missing


def client_of(subscription: str) -> str:
    """The client that a subscription's id begins with: a process has several subscriptions."""
    client, mark, number = subscription.rpartition("~")
    return client if mark and number.isdecimal() else subscription
